"""Control of processes: signals at a parent's death, process trees, file locks.

The lowest room, beside `modis`: it imports nothing of ours.
"""
