"""Hostile packages, run in each tier of the sandbox."""
