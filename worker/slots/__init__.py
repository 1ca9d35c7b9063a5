"""Slots: the worker's service, the supervisor of attempts, and its heartbeat."""
