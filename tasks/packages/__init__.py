"""What users bring: reduction packages, what they need, and rasters."""
