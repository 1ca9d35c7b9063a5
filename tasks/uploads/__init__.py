"""Packages and rasters that users have uploaded: their rows and what is done with them."""
