"""Fetch files: downloads that resume, credentials, limits per host."""
