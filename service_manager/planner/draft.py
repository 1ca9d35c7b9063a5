"""A plan while it is made: each task once, in an order in which inputs come first."""

from dataclasses import dataclass, field, replace

from tasks.errors import RequestRefusedError
from tasks.plan import PlannedTask
from tasks.spec import Input, Spec


@dataclass(kw_only=True)
class Draft:
    """The tasks so far; `limit` is the most a plan may have."""

    limit: int
    _tasks: dict[str, PlannedTask] = field(default_factory=dict)

    def add(self, spec: Spec, output: str = "") -> str:
        """Put a task at the end unless it is there; its key.

        Raises RequestRefusedError, naming the setting, when the plan grows beyond the limit.
        """
        key = spec.key
        there = self._tasks.get(key)
        if there is None:
            self._tasks[key] = PlannedTask(spec=spec, output=output)
            self._hold(len(self._tasks))
        elif output and not there.output:
            self._tasks[key] = replace(there, output=output)
        return key

    def input(self, spec: Spec, name: str, file: str = "", output: str = "") -> Input:
        """Add a task and name it as an input of another."""
        return Input(key=self.add(spec, output), name=name, file=file)

    @property
    def tasks(self) -> tuple[PlannedTask, ...]:
        """The tasks in order."""
        return tuple(self._tasks.values())

    def expect(self, more: int) -> None:
        """Refuse at once what will come to too many tasks; errors as `add`."""
        self._hold(len(self._tasks) + more)

    def _hold(self, count: int) -> None:
        if count > self.limit:
            raise RequestRefusedError(
                "request",
                f"it comes to more than {self.limit:,} tasks (SWATHMILL_MAX_TASKS).",
                "Ask for fewer days, layers or a coarser grid, or have the limit raised.",
            )
