"""Secrets that are handed over: in no memory of what is forked before they are taken."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr

from tasks.secret_settings import COLLECTOR_HEADERS, SECRET, is_secret
from tasks.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="handed over on Linux alone")

PROGRAM = """
import os, sys
from processes import handed_over

def in_memory(pid):
    found = 0
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            words = line.split()
            if "r" in words[1] and not line.rstrip().endswith(("[vvar]", "[vsyscall]")):
                start, end = (int(one, 16) for one in words[0].split("-"))
                memory.seek(start)
                try:
                    found += memory.read(end - start).count(bytes(reversed(b"yek-terces-yrev-a")))
                except OSError:
                    pass
    return found

if __name__ == "__main__":
    handed_over.without(lambda name, value: name.startswith("KEY"))
    asking, told = os.pipe()
    fork = os.fork()
    if fork == 0:
        handed_over.forgo()
        os.read(asking, 1)
        os._exit(0)
    handed_over.take()
    print(os.environ["KEY_ONE"], os.environ["OTHER"], handed_over.VARIABLE in os.environ)
    print(in_memory(fork) if "search" in sys.argv else "")
    os.write(told, b".")
    os.waitpid(fork, 0)
    print(in_memory(os.getpid()) > 0)
    print(sys.argv[1:])
"""
KEY = "a-very-secret-key"


def run(tmp_path: Path, *words: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    env = {"PATH": "/usr/bin", "KEY_ONE": KEY, "OTHER": "o", "PYTHONPATH": ":".join(sys.path)}
    told = subprocess.run(
        [sys.executable, program, *words], env=env, capture_output=True, check=True, text=True
    )
    return told.stdout.splitlines()


def test_a_fork_made_before_it_is_taken_has_it_nowhere(tmp_path: Path) -> None:
    taken, in_the_fork, in_the_parent, words = run(tmp_path, "search", "a b")
    assert taken == f"{KEY} o False"
    assert in_the_fork == "0"
    assert in_the_parent == "True", "the search finds it where it is"
    assert words == "['search', 'a b']", "the program starts anew with its words"


def test_all_secret_settings_are_handed_over_but_not_the_folder_of_storage() -> None:
    secret = {name for name, one in Settings.model_fields.items() if one.annotation is SecretStr}
    assert secret == {name.lower() for name in SECRET}
    for name in secret:
        assert is_secret(f"SWATHMILL_{name.upper()}", "x")
        assert is_secret(f"swathmill_{name}", "x"), "settings are read in any case"
    assert not is_secret("SWATHMILL_STORAGE", "file:/data")
    assert not is_secret("SWATHMILL_DATA_DIR", "x")
    assert all(is_secret(name, "x") for name in COLLECTOR_HEADERS)
