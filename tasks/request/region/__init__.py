"""Regions of requests: areas, files in which they are given, and the child that reads these."""
