"""Imported by the forkserver after everything else: what is there now is never collected again.

A collection writes into every object it looks at, and in a forked child each page so touched is
copied: about 100 ms of an attempt, and 80 MB. Freezing before the fork is what gc.freeze is for
(Python documentation, module gc).
"""

import gc

gc.collect()
gc.freeze()
