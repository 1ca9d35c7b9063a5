"""Messages between processes: the request queue, Celery, wake-ups, places at hosts."""
