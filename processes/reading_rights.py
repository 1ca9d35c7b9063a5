"""What a confined process may open of the system, and the last step by which it is confined."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from processes import confine
from processes.one_thread import ONE_THREAD
from processes.refused_calls import filter_of, seccomp_known

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
# The files of /etc that programs need to start and to write dates and numbers; no secrets.
_ETC = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/timezone",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/mime.types",
    "/etc/R",  # Debian keeps here what R starts with; /usr/lib/R/etc links to it
    "/etc/julia",
    "/etc/fonts",
)
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
# Of /dev/zero, written pages could be shared that belong to no process.
KERNEL = ("/dev/zero", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")

OURS = (
    *("archives", "modis", "portal", "processes", "reprojection", "service_manager"),
    *("swathmill", "tasks", "worker"),
)
"""Names of our packages, which lie side by side."""
_PACKAGES = ("site-packages", "dist-packages")
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1 << 1, 1 << 2  # capabilities(7)
# What a reader gets of the environment: nothing of Swathmill's settings but one that is no secret.
_PASSED_ON = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL"),
    *("PROJ_DATA", "PROJ_LIB", "GDAL_DATA", "OMP_NUM_THREADS", "SWATHMILL_KERNELS"),
)


def readable() -> list[str]:
    """List the folders of the system, our Python and its packages, which a program may read."""
    return list(dict.fromkeys((*_SYSTEM, *_ETC, *_python(), *packages_elsewhere())))


def packages_elsewhere() -> list[str]:
    """List the folders outside our Python from which this process imports packages.

    Where `pip install --user` or PYTHONPATH puts them, libraries read their data after the process
    was confined: PROJ ends a process that cannot open its database.
    """
    inside = (*_SYSTEM, *_python())
    return [
        place
        for place in sys.path
        if Path(place).name in _PACKAGES
        and os.access(place, os.X_OK)
        and not any(Path(place).is_relative_to(one) for one in inside)
    ]


def _python() -> tuple[str, str, str]:
    """Return the folders of our Python: of its environment, and of what that is made from."""
    return sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parents[1])


def can_shut_in() -> bool:
    """Tell whether this machine has what `shut_in` needs: Landlock, and system calls it knows."""
    return confine.landlock_abi() > 0 and seccomp_known()


def shut_in(read: Sequence[str], write: Sequence[str], *, shared: bool) -> None:
    """Give up for good all files but these and the system's, and sockets and other system calls.

    The process keeps its open files and its resource limits.

    Args:
        read: Further files and folders that it may read.
        write: Files and folders that it may write.
        shared: It has the user id of others, so it may not change rights of files.

    Raises:
        OSError: the kernel refuses it.
    """
    confine.gain_nothing()
    confine.restrict_files([*readable(), *read, *KERNEL], [*write, *DEVICES])
    confine.refuse_calls(filter_of(shared=shared, one_group=True, tcp=False))


def reader_environment() -> dict[str, str]:
    """Return the environment of a process that reads strangers' files: no setting, no secret."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | ONE_THREAD


def shut_in_reader(read: Sequence[Path] = (), write: Sequence[Path] = ()) -> bool:
    """Confine this process, which reads strangers' files, by `shut_in`; False: it cannot be.

    It may open what is `readable`, our code, and what is given here. Where it is root, that may
    belong to other users.

    Args:
        read: Files and folders that it may read; one that is not there is left out.
        write: Folders that it may write.

    Raises:
        OSError: the kernel has what it takes, and refuses it.
    """
    if not can_shut_in():
        return False
    ours = [str(Path(confine.__file__).resolve().parents[1] / name) for name in OURS]
    given = [str(path) for path in read if os.access(path, os.F_OK)]
    confine.drop_capabilities(but=_DAC_OVERRIDE | _DAC_READ_SEARCH)
    shut_in([*ours, *given], [str(path) for path in write], shared=True)
    return True
