"""Read the rasters that a package wrote; run as a program inside the sandbox."""
