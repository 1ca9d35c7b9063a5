"""Make synthetic granules, true to the formats, for demonstrations and tests."""
