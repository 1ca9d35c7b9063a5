"""Run attempts: the supervisor, the local granule cache, the four phases, the sandbox."""
