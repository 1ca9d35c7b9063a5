"""Whole requests beside the script that a scientist would write, on the same cores in one run."""
