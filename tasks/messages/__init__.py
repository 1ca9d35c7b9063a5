"""Messages between processes: Celery, wake-ups, places at hosts."""
