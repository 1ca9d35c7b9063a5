"""Tell whether a child may have crashed on a granule: decoding libraries trust their files."""

import signal

from modis.formats import is_granule_file
from reprojection.formats.held import PACKED
from tasks.bag.protocol import Claimed
from worker.sandbox.messages import Ended

_CRASHES = frozenset(
    -number
    for number in (
        signal.SIGSEGV,
        signal.SIGABRT,  # glibc found its heap damaged, or a library gave up
        signal.SIGBUS,  # a mapped file is shorter than it says
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
    )
)


def may_be_a_granules(claimed: Claimed, ended: Ended) -> bool:
    """Tell whether an attempt that ended so without a report may have crashed on a granule."""
    if ended.exit_code not in _CRASHES or ended.over_memory or ended.no_room:
        return False
    if claimed.spec.opens_granules:
        return True
    files = (file for files in claimed.input_files.values() for file in files)
    return any(is_granule_file(file.name.removesuffix(PACKED)) for file in files)
