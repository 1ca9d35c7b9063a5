"""Keep children running: restart those that end, with growing pauses; stop them in order."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swathmill.stack import interruption
from swathmill.stack.children import Child, ChildSpec
from tasks.service import exits

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 60.0


@dataclass
class Watched:
    """A child that is meant to run, and the record of its unexpected ends."""

    child: Child
    started: float
    pause: float = FIRST_PAUSE_SECONDS
    again_at: float | None = None
    restarts: int = 0
    falls: int = 0  # ends in a row, without a steady run in between
    paused: bool = False
    misconfigured: bool = False  # the child reported that its settings are wrong


@dataclass(kw_only=True)
class Supervisor:
    """Children by name, in the order of their start.

    Everything happens in the caller's thread, which must be the main one: call `tick` a few times a
    second.
    """

    clock: Callable[[], float] = time.monotonic
    longest_pause: float = LONGEST_PAUSE_SECONDS
    _watched: dict[str, Watched] = field(default_factory=dict)

    def adopt(self, child: Child) -> None:
        """Watch a child that was started by other means."""
        self._watched[child.spec.name] = Watched(child=child, started=self.clock())

    def start(self, spec: ChildSpec, *, fork: bool = False) -> Child:
        """Start a child and watch it; with `fork`, fork it if that can be done."""
        child = Child(spec)
        with interruption.held_back():
            child.start(fork=fork)
            self.adopt(child)
        return child

    def names(self) -> list[str]:
        """List the children's names, in the order of their start."""
        return list(self._watched)

    def child(self, name: str) -> Child:
        """Return one child by its name."""
        return self._watched[name].child

    def restarts(self, name: str) -> int:
        """Return how often a child had to be started again."""
        return self._watched[name].restarts

    def falls(self, name: str) -> int:
        """Return how often in a row a child ended soon after its start."""
        return self._watched[name].falls

    def misconfigured(self) -> list[str]:
        """List the children that ended because of wrong settings; they are not started again."""
        return [name for name, watched in self._watched.items() if watched.misconfigured]

    def tick(self) -> list[str]:
        """Look after every child once; return a sentence for each that ended or was restarted."""
        said: list[str] = []
        for name, watched in self._watched.items():
            if watched.paused or watched.misconfigured:
                continue
            if watched.again_at is not None:
                if self.clock() >= watched.again_at:
                    self._start_again(watched)
                    said.append(f"{name} was started again (restart {watched.restarts}).")
                continue
            code = watched.child.exit_code()
            if code is not None:
                said.append(self._note_end(name, watched, code))
        return said

    def pause(self, names: Sequence[str]) -> None:
        """Stop children, and leave them stopped until `resume`."""
        for name in names:
            self._watched[name].paused = True
        self._stop_together(names)

    def resume(self, names: Sequence[str]) -> None:
        """Start paused children again."""
        for name in names:
            watched = self._watched[name]
            if watched.paused:
                watched.paused = False
                self._start_again(watched)

    def ask_to_stop(self, names: Sequence[str]) -> None:
        """Send SIGTERM to those of the named children that are there, and return at once."""
        for child in self._present(names):
            child.ask_to_stop()

    def release(self, names: Sequence[str]) -> None:
        """Send SIGTERM as `ask_to_stop` does; what ends then is not started again."""
        for name in names:
            if name in self._watched:
                self._watched[name].paused = True
        self.ask_to_stop(names)

    def stop(self, order: Sequence[Sequence[str]]) -> None:
        """Stop group after group; ask all children of a group first, then wait for them.

        A group takes no longer than the longest grace among its children, and a second for each.
        """
        for group in order:
            self._stop_together(group)
        self._watched.clear()

    def _stop_together(self, names: Sequence[str]) -> None:
        self.ask_to_stop(names)
        asked = time.monotonic()
        for child in self._present(names):
            child.stop(waited=time.monotonic() - asked)

    def kill(self) -> None:
        """End everything at once."""
        for watched in self._watched.values():
            watched.child.kill()
        self._watched.clear()

    def _present(self, names: Sequence[str]) -> list[Child]:
        return [self._watched[name].child for name in names if name in self._watched]

    def _note_end(self, name: str, watched: Watched, code: int) -> str:
        if code == exits.CONFIGURATION:
            watched.misconfigured = True
            return f"{name} cannot work with these settings. Its log: {watched.child.spec.log}"
        if self.clock() - watched.started > STEADY_SECONDS:
            watched.pause, watched.falls = FIRST_PAUSE_SECONDS, 0
        watched.falls += 1
        watched.again_at = self.clock() + watched.pause
        sentence = (
            f"{name} ended unexpectedly (exit code {code}); next start in {watched.pause:.0f} s. "
            f"Its log: {watched.child.spec.log}"
        )
        watched.pause = min(2 * watched.pause, self.longest_pause)
        # Processes that the child left in its group end with it.
        watched.child.kill()
        return sentence

    def _start_again(self, watched: Watched) -> None:
        watched.again_at = None
        with interruption.held_back():
            watched.child = Child(watched.child.spec)
            watched.child.start()
        watched.started = self.clock()
        watched.restarts += 1
