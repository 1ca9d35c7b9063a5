"""What fixed work costs, in counts: a guard that a slower machine does not disturb."""
