"""Requests after they were submitted: their API, their pages, runs and retries."""
