"""Control of processes: signals at a parent's death, trees, confinement, file locks.

The lowest package, beside `modis`: it imports nothing of ours.
"""
