"""Show a request's progress: a bar per phase on a terminal, lines elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from swathmill.answers import RequestStatus
from tasks.bag.model import Phase, RequestState

PHASES = tuple(Phase)
LINE_SECONDS = 5.0
_RESULTS = "results"


class ProgressView:
    """Shows a request's phases as they advance; use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._last_line = ""
        self._next_line_at = 0.0
        self._newest = ""  # name of the file that arrived last

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description:13}"),
                BarColumn(bar_width=36),
                TextColumn("{task.completed:>6.0f} of {task.total:.0f}"),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(self, status: RequestStatus, *, now: float) -> None:
        """Show the state of the request; `now` is in seconds of any monotonic clock."""
        if self._bars is not None:
            self._show_bars(self._bars, status)
            return
        line = str(status)
        if line != self._last_line and now >= self._next_line_at:
            self._console.print(line, markup=False)
            self._last_line = line
            self._next_line_at = now + LINE_SECONDS

    def arrived(self, name: str) -> None:
        """Show the name of a file that has arrived: beside the number of results, or in a line."""
        self._newest = name
        if self._bars is None:
            self.say(f"made {name}")
        elif _RESULTS in self._rows:
            self._bars.update(self._rows[_RESULTS], note=_made(name))

    def say(self, text: str) -> None:
        """Print a sentence above the bars."""
        self._console.print(text, markup=False)

    def _show_bars(self, bars: Progress, status: RequestStatus) -> None:
        self._show_preparation(bars, status)
        if status.outputs and status.preparation is None:
            if _RESULTS not in self._rows:
                self._rows[_RESULTS] = bars.add_task(_RESULTS, total=status.outputs, note="")
            bars.update(
                self._rows[_RESULTS],
                total=status.outputs,
                completed=status.delivered,
                note=_made(self._newest),
            )
        for phase in PHASES:
            count = status.phases.get(phase)
            if count is None or count.total == 0:
                continue
            if phase not in self._rows:
                self._rows[phase] = bars.add_task(phase, total=count.total, note="")
            notes = [f"{count.running} running"] if count.running else []
            notes += [f"{count.failed} failed"] if count.failed else []
            notes += [f"{count.reused} reused"] if count.reused else []
            notes += [f"{count.cancelled} cancelled"] if count.cancelled else []
            notes += ["paused"] if status.paused and count.left else []
            bars.update(
                self._rows[phase],
                total=count.total,
                completed=count.total - count.left,
                note=", ".join(notes),
            )

    def _show_preparation(self, bars: Progress, status: RequestStatus) -> None:
        """Show a bar for planning or writing until it is over."""
        at = status.preparation
        for state in (RequestState.PLANNING, RequestState.WRITING):
            if at is not None and status.state is state:
                if state not in self._rows:
                    self._rows[state] = bars.add_task(state, total=at.total, note=at.unit)
                bars.update(self._rows[state], completed=at.done)
            elif state in self._rows:
                bars.remove_task(self._rows.pop(state))


def _made(newest: str) -> str:
    return f"made, newest {newest}" if newest else "made"
