"""A stretch of a plan while it is made: each task once, inputs first."""

from dataclasses import dataclass, field, replace

from tasks.errors import RequestRefusedError
from tasks.plan import PlannedTask
from tasks.spec import Input, Spec


@dataclass(kw_only=True)
class Draft:
    """The tasks of the stretch so far; `limit` is the most it may have."""

    limit: int
    tasks: dict[str, PlannedTask] = field(default_factory=dict)

    def add(self, spec: Spec, output: str = "") -> str:
        """Put a task at the end unless it is there; its key.

        Raises RequestRefusedError, naming the setting, when the plan grows beyond the limit.
        """
        key = spec.key
        there = self.tasks.get(key)
        if there is None:
            self.tasks[key] = PlannedTask(spec=spec, output=output, key=key)
            self.expect(0)
        elif output and not there.output:
            self.tasks[key] = replace(there, output=output)
        return key

    def input(self, spec: Spec, name: str, file: str = "", output: str = "") -> Input:
        """Add a task and name it as an input of another."""
        return Input(key=self.add(spec, output), name=name, file=file)

    def expect(self, more: int) -> None:
        """Refuse at once what will come to too many tasks; errors as `add`."""
        if len(self.tasks) + more > self.limit:
            raise RequestRefusedError(
                "request",
                "it comes to more tasks than a plan may have (SWATHMILL_MAX_TASKS).",
                "Ask for fewer days, layers or a coarser grid, or have the limit raised.",
            )
