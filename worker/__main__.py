"""Run a Celery worker whose slots supervise children: `python -m worker`."""

import sys

from worker.pool.lender import pooled
from worker.slots.service import main

if __name__ == "__main__":
    sys.exit(main(pooled))
