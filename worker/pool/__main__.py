"""Run a runner of the reduction pool: `python -P -m worker.pool`."""

import sys

from worker.pool.service import main

if __name__ == "__main__":
    sys.exit(main())
