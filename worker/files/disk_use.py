"""Whether others filled the disk, when an attempt fails for want of room on it."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from worker.files.cache import Cache

_LEAST = 2**20  # bytes that others hold: less is what any attempt begins with
_PART = 8  # what others hold matters if it is at least this part of what is free now
_NOTE = "full"  # a file, touched by each attempt that finds the disk full


def filled_by_others(root: Path, cache: Path, own: Sequence[Path], since: float) -> str:
    """Say what others had on the disk; "" if the attempt had it to itself, or it has room.

    A cache that had much of it is emptied, so that the next attempt has that.

    Args:
        root: The scratch folder of all workers over a data folder; its folders of attempts and of
            makers lie one below those of workers.
        cache: The cache of the machine.
        own: The folders of this attempt, and of its maker; the disk is that of the first.
        since: POSIX time at which the attempt began. Another one that has found no room since then
            counts, too: its files may be gone.
    """
    with suppress(OSError):
        room, disk = shutil.disk_usage(own[0]), own[0].stat().st_dev
        much = max(_LEAST, room.free // _PART)
        if root.stat().st_dev == disk:
            held = sum(map(_size, _others(root.resolve(), [one.resolve() for one in own])))
            lacked = _lacked(root, now=room.free < room.total // _PART)
            if held >= much:
                return f"other attempts held {held / 1e9:.3g} GB of the disk"
            if lacked >= since:
                return "another attempt on this disk met the same at that time"
        if cache.stat().st_dev == disk and (held := (kept := Cache(cache, 0)).size()) >= much:
            kept.shrink(0)
            return f"the cache held {held / 1e9:.3g} GB of the disk, and is emptied"
    return ""


def _lacked(root: Path, *, now: bool) -> float:
    """Return when an attempt last found the disk full, in POSIX time; take note if one does now."""
    note, before = root / _NOTE, 0.0
    with suppress(OSError):
        before = note.stat().st_mtime
    with suppress(OSError):
        if now:
            note.touch()
    return before


def _others(root: Path, own: Sequence[Path]) -> Iterator[Path]:
    for folder in root.glob("*/*"):
        if not any(one == folder or folder in one.parents for one in own):
            yield folder


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files, without those that are linked from elsewhere."""
    size = 0
    with suppress(OSError):  # it is being removed
        for path in folder.rglob("*"):
            with suppress(OSError):
                stat = path.lstat()
                size += stat.st_blocks * 512 if stat.st_nlink == 1 else 0
    return size
