"""Kill processes of a stack at random, then ask it to stop: it ends in time, with nothing left.

`python -m bench.kills --rounds 20`. In each round `swathmill up` runs a request over the synthetic
sample while processes are killed: Redis, a worker, its forkserver, a manager, the portal, the mail
catcher, and Azurite where it is used. Every second round is stopped in the midst, the others when
the request has ended.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from processes import proctree
from swathmill.access import local_client
from swathmill.errors import StackError
from swathmill.stack.folder import DataFolder
from swathmill.stack.storage import Storage
from tasks.errors import SwathmillError
from tasks.request.request_file import load_request

ROUNDS, KILLS, GRACE_SECONDS = 20, 6, 5.0
STOP_SECONDS = GRACE_SECONDS + 10 + 10 + 10
"""What the stack may take: the workers' grace, the services', the servers', and some for itself."""
END_SECONDS = 180.0
MEAN_PAUSE = 1.0
ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / ".swathmill" / "sample-archive"
REQUEST = ROOT / "examples" / "sample.yaml"


class Round:
    """One `swathmill up` over a folder of its own."""

    def __init__(self, folder: Path, storage: Storage, choose: random.Random) -> None:
        self.choose = choose
        self.folder = DataFolder(path=folder)
        command = [sys.executable, "-m", "swathmill.cli", "up", "--data", str(folder)]
        command += ["--archive", str(SAMPLE), "--storage", storage.value, "--managers", "2"]
        env = {
            **os.environ,
            "SWATHMILL_GRACE_SECONDS": str(GRACE_SECONDS),
            "SWATHMILL_LEASE_SECONDS": "5",
            "SWATHMILL_RETRY_BASE": "0.2",
        }
        self.output = (folder.parent / f"{folder.name}.txt").open("w+b")
        self.process = subprocess.Popen(command, env=env, stdout=self.output, stderr=self.output)

    def await_ready(self) -> None:
        """Wait until it has printed its address."""
        for _ in _seconds(120.0):
            if b"Sign in" in self.said():
                return
            if self.process.poll() is not None:
                break
        raise RuntimeError(f"the stack did not start: {self.said().decode()}")

    def said(self) -> bytes:
        """Return what it has printed."""
        return Path(self.output.name).read_bytes()

    def kill_one(self) -> str:
        """Kill one process of the stack with SIGKILL; return its name."""
        tree = {pid: _name(pid) for pid in proctree.descendants(self.process.pid)}
        victims = {pid: name for pid, name in tree.items() if name}
        if not victims:
            return "nothing"
        # Each kind is as likely as the others, however many processes it has.
        name = self.choose.choice(sorted(set(victims.values())))
        pid = self.choose.choice([pid for pid, one in victims.items() if one == name])
        proctree.kill(pid)
        return name

    def has_ended(self, request: str) -> bool:
        """Tell whether a request has ended; False while the portal does not answer."""
        try:
            return local_client(self.folder).status(request).state.ended
        except (SwathmillError, StackError, OSError):
            return False

    def stop(self) -> float:
        """Ask it to stop; return the seconds that it took. Raise TimeoutExpired if it is late."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_SECONDS)
        return time.monotonic() - begin

    def left(self) -> list[str]:
        """List the processes that name the folder in their environment, at the end."""
        own = str(self.folder.path).encode()
        found = []
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and own in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return found


def _name(pid: int) -> str:
    """Name a process of the stack by what it is; "" for those that are not killed."""
    try:
        command = (Path("/proc") / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
        name = (Path("/proc") / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""
    for word in ("redis-server", "valkey-server", "azurite", "forkserver"):
        if word in command or word == name:
            return word
    for word, meaning in (("service_manager", "manager"), ("mail_catcher", "mail")):
        if word in command or name == word[:15]:
            return meaning
    if "-m\0worker" in command:
        return "worker"
    return "portal" if name == "portal" or "-m\0portal" in command else ""


def _seconds(limit: float) -> Iterator[float]:
    """Yield ten times a second until the limit."""
    end = time.monotonic() + limit
    while (now := time.monotonic()) < end:
        yield now
        time.sleep(0.1)


def run_round(folder: Path, storage: Storage, seed: int, *, to_the_end: bool) -> str:
    """Run one round; return what happened. Raise RuntimeError where it did not end or stop."""
    choose = random.Random(seed)
    one = Round(folder, storage, choose)
    try:
        one.await_ready()
        request = local_client(one.folder).submit(load_request(REQUEST)).id
        killed = []
        for _ in range(KILLS):
            time.sleep(choose.expovariate(1 / MEAN_PAUSE))
            killed.append(one.kill_one())
        ended = False
        if to_the_end:
            ended = any(one.has_ended(request) for _ in _seconds(END_SECONDS))
            if not ended:
                raise RuntimeError(f"the request did not end after {killed}")
        try:
            seconds = one.stop()
        except subprocess.TimeoutExpired as late:
            raise RuntimeError(f"it did not stop within {late.timeout} s after {killed}") from late
        if one.process.returncode != 0:
            raise RuntimeError(f"it ended with {one.process.returncode} after {killed}")
        if left := one.left():
            raise RuntimeError(f"processes were left after {killed}: {left}")
        how = "after its end" if ended else "in the midst"
        return f"stopped {how} in {seconds:4.1f} s; killed: {', '.join(killed)}"
    finally:
        if one.process.poll() is None:
            proctree.kill_descendants(one.process.pid)
            one.process.kill()
            one.process.wait()
        one.output.close()


def main() -> int:
    """Run the rounds; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="bench.kills")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--storage", type=Storage, default=Storage.EMBEDDED)
    given = parser.parse_args()
    sample = [sys.executable, "-m", "swathmill.cli", "sample", str(SAMPLE)]
    subprocess.run(sample, check=True, stdout=subprocess.DEVNULL)
    failed = 0
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="swathmill-kills-") as name:
            try:
                said = run_round(
                    Path(name) / "data",
                    given.storage,
                    given.seed * 1000 + number,
                    to_the_end=number % 2 == 1,
                )
            except RuntimeError as error:
                failed += 1
                said = f"FAILED: {error}"
            print(f"round {number + 1:2}: {said}", flush=True)
    print(f"{given.rounds - failed} of {given.rounds} rounds ended and stopped cleanly")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
