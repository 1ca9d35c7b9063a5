"""A request's results: their files, downloads, pictures, the map."""
