"""What all other packages use: granule names, collections, tiles, boxes, the sphere.

The lowest package: it imports nothing of ours.
"""
