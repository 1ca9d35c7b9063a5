"""Make synthetic granules in the real formats, for demonstrations and tests."""
