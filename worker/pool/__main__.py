"""Run a runner of the reduction pool: `python -P -m worker.pool`."""

import sys

from processes.one_thread import use_one_thread

if __name__ == "__main__":
    use_one_thread()

from worker.pool.service import main

if __name__ == "__main__":
    sys.exit(main())
