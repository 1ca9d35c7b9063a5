"""The work of an attempt in each phase."""
