"""Read a region's file in a process of its own, which strangers' bytes may bring down.

The process has bounds of memory, processor and time, and nothing of Swathmill's settings in its
environment. Where the kernel has Landlock it can open no file but the system's and our code, and
has no sockets. It gets the file on standard input, and answers on standard output in JSON.
"""

import json
import resource
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from processes.reading_rights import reader_environment, shut_in_reader
from tasks.request.region.files import (
    ReadFeatures,
    ReadRegion,
    RegionFileError,
    read_features,
    read_region,
)

_OVER = 3  # exit code of a process that had no more memory


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What reading a file may take: bytes of memory, seconds of processor and of time."""

    memory: int = 2**30
    processor: int = 30
    seconds: float = 90.0


def read_apart(data: bytes, name: str = "", bounds: Bounds | None = None) -> ReadRegion:
    """Read a region from the content of a file, in another process.

    Args:
        data: The content.
        name: The file's name, for messages and to tell what is not a region.
        bounds: What it may take.

    Raises:
        RegionFileError: as `read_region` does, or reading takes more than the bounds.
    """
    said = _answer("region", data, name, bounds or Bounds())
    return ReadRegion(
        geojson=said["geojson"], sites=said["sites"], notes=tuple(map(str, said["notes"]))
    )


def features_apart(data: bytes, name: str = "", bounds: Bounds | None = None) -> ReadFeatures:
    """Read polygons and points from the content of a file, in another process.

    Args:
        data: The content.
        name: The file's name, for messages and to tell what is not a region.
        bounds: What it may take.

    Raises:
        RegionFileError: as `read_features` does, or reading takes more than the bounds.
    """
    said = _answer("features", data, name, bounds or Bounds())
    features = tuple((str(own), geometry) for own, geometry in said["features"])
    return ReadFeatures(features=features, notes=tuple(map(str, said["notes"])))


def _answer(what: str, data: bytes, name: str, limits: Bounds) -> dict[str, Any]:
    words = [what, str(limits.memory), str(limits.processor), name]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tasks.request.region.child", *words],
            input=data,
            capture_output=True,
            timeout=limits.seconds,
            check=False,
            env={**reader_environment(), "OPENBLAS_NUM_THREADS": "1"},
        )
        said: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    except (subprocess.TimeoutExpired, ValueError):
        said = {}
    if "wrong" in said:
        raise RegionFileError(said["wrong"])
    if not said:
        raise RegionFileError(
            f"{name or 'the text'} takes more than {limits.memory >> 20} MiB of memory or "
            f"{limits.processor} s to read, or is damaged; simplify its polygons, or give those of "
            "the region alone"
        )
    return said


def main() -> int:
    """Read standard input within the bounds that the arguments say; return the exit code."""
    what, memory, processor, name = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(processor), int(processor)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shut_in_reader()  # the file is on standard input
    data = sys.stdin.buffer.read()
    try:
        read = read_features(data, name) if what == "features" else read_region(data, name)
        answer: dict[str, object] = asdict(read)
    except RegionFileError as error:
        answer = {"wrong": str(error)}
    except (MemoryError, RecursionError):
        return _OVER
    sys.stdout.write(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
