"""The formats of archives: names, sidecars, checksums, listings, boundaries."""
