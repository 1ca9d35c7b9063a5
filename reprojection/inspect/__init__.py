"""What a granule holds, and whether all of it can be read."""
