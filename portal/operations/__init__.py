"""What operators see and do, and whether the service works."""
