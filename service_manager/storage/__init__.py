"""What stays in storage and for how long."""
