"""Freeze garbage collection: the forkserver imports this module after everything else.

A collection writes into every object it inspects, and in a forked child each page written to is
copied: about 100 ms and 80 MB per attempt. gc.freeze exempts the objects that exist before the fork
(Python documentation, module gc). The shipped packages are packed here, once for all children, and
libraries used for the first time (`first_use.py`).
"""

import gc

from worker.phases.package_files import shipped_packages
from worker.slots.first_use import use_libraries

shipped_packages()
use_libraries()
gc.freeze()
