"""Which task is sent next, and what the manager keeps in memory for that."""
