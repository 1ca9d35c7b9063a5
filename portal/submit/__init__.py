"""Submitting a request: the form, its checks, the catalogue, the archive's holdings."""
