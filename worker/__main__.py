"""Run a Celery worker whose slots supervise children: `python -m worker`."""

from functools import partial

from processes import handed_over
from processes.one_thread import use_one_thread
from processes.quick_end import leave
from tasks.secret_settings import is_secret

if __name__ == "__main__":
    use_one_thread()
    # Before the imports that take long: it starts this program anew.
    handed_over.without(is_secret)

from worker.pool.lender import pooled
from worker.slots.service import main

if __name__ == "__main__":
    leave(partial(main, pooled))
