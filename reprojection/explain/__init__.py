"""Say which granule, row and column a pixel of a result came from."""
