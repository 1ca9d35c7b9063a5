"""The thread that has a worker, or a runner, test its machine when that is due."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import structlog

from tasks.errors import SwathmillError
from worker.files.scratch import Scratch
from worker.sandbox.children import Children
from worker.sandbox.messages import Failed, Message, SelfTest, Succeeded
from worker.slots.fitness import Fitness

_LOOK = 0.1  # seconds between two looks whether a test is due
_SECONDS = 60.0  # that a test may take

log = structlog.get_logger("worker")

Test = Callable[[bool], str]
"""Tests the machine once, with the sandbox or without; returns what failed, "" for nothing."""


@dataclass(frozen=True, kw_only=True)
class FitnessWatch:
    """Has `test` run whenever it is due, until the process ends.

    The first test is without the sandbox, which the process has tried to find its tier.
    `held` says that the manager holds the worker, `ending` that nothing new begins here anyway.
    """

    fitness: Fitness
    test: Test
    held: Callable[[], bool] = lambda: False
    ending: Callable[[], bool] = lambda: False

    def start(self) -> None:
        """Look in a thread of its own."""
        threading.Thread(target=self._look_on, name="fitness", daemon=True).start()

    def look(self) -> None:
        """Test if that is due."""
        if self.ending() or not self.fitness.is_due(held=self.held()):
            return
        before, first = self.fitness.why, not self.fitness.tested
        fault = self.test(not first)
        self.fitness.found(fault)
        if fault and fault != before:
            log.error("self-test failed: nothing is begun", why=fault)
        elif not fault and (first or before):
            log.info("self-test passed")

    def _look_on(self) -> None:
        wait = threading.Event()
        while True:
            try:
                self.look()
            except Exception:
                log.exception("not tested")
            wait.wait(_LOOK)


def test_once(scratch: Scratch, children: Children, sandbox: bool) -> str:
    """Test this machine: by a child that is given all that an attempt begins with.

    With `sandbox`, a program is run in it, too.
    """
    said: list[Message] = []
    try:
        scratch.restore()
        with scratch.attempt(f"self-test-{uuid4().hex}") as folder:
            process = children.start(SelfTest(scratch=folder.resolve(), sandbox=sandbox))
            late = threading.Timer(_SECONDS, process.kill)
            late.daemon = True
            late.start()
            try:
                ended = process.follow(said.append)
            finally:
                late.cancel()
    except (OSError, SwathmillError) as error:
        return str(error) or type(error).__name__
    words = ended.log.strip().splitlines() if ended is not None else []
    for message in said:
        if isinstance(message, Failed):
            return f"{message.message} ({words[-1]})" if words else message.message
        if isinstance(message, Succeeded):
            return ""
    return f"the child that tests ended without a word: {words[-1] if words else 'nothing said'}"
