"""Generated granules of any product, for tests and measurements."""
