"""Requests and results by the standards of OGC and STAC."""
