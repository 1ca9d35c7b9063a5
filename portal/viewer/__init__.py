"""A folder of granules on a map, on one's own machine and without a stack: `swathmill view`."""
