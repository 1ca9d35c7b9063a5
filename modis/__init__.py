"""Words of the field that every room uses: granule names, collections, tiles, boxes, the sphere.

The lowest room: it imports nothing of ours.
"""
