"""Search the memory of processes."""

import re
from pathlib import Path


def holds(pid: int, secret: str) -> bool:
    """Whether the secret is anywhere in a process's memory that can be written."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for begin, end in re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", maps, re.MULTILINE):
            try:
                memory.seek(int(begin, 16))
                if secret.encode() in memory.read(int(end, 16) - int(begin, 16)):
                    return True
            except OSError:
                continue
    return False
