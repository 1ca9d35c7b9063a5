"""Requests: their rows, what is done with them, their plans, gaps and mails."""
