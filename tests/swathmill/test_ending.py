"""SIGTERM ends every command as Ctrl-C does: what it began is put away first."""

import signal
import subprocess
import sys

import pytest

from swathmill.stack.ports import choose

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)

WAITING = """
import signal, typer
from swathmill import cli

made = typer.Typer()

@made.command()
def wait():
    try:
        print("waits", flush=True)
        signal.pause()
    finally:
        print("put away", flush=True)

cli.application = lambda words: made
cli.main()
"""
"""Any command of `swathmill`, behind the door that all of them have."""


def ended(number: signal.Signals, *command: str, until: str) -> tuple[int, str]:
    """Run a program until it says what is named, and send it a signal; return how it ended."""
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell has its children in the background ignore Ctrl-C; not here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        before = ""
        while until not in before:
            line = process.stdout.readline()
            assert line, before
            before += line
        process.send_signal(number)
        said = process.stdout.read()
    return process.returncode, said


@BOTH
def test_each_command_puts_away_what_it_began(number: signal.Signals) -> None:
    code, said = ended(number, "-c", WAITING, until="waits")
    assert (code, said.splitlines()[0]) == (130, "put away")


@BOTH
@pytest.mark.parametrize("door", [("bench.platform",), ("bench", "platform")], ids=" ".join)
def test_a_study_of_the_platform_does(number: signal.Signals, door: tuple[str, ...]) -> None:
    (port,) = choose(1, preferred=[])
    answer = ("-m", *door, "answer", "--port", str(port))
    assert ended(number, *answer, until="Ctrl-C ends it") == (0, "Ended.\n")
