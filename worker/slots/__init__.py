"""Slots: the worker's service, the supervisor of attempts, its heartbeat."""
