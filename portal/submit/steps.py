"""The steps of the form, and how far each is."""

from dataclasses import dataclass

from portal.submit.field_problems import Problems

_SLOTS = {
    "what": ("products", "card"),
    "where": ("region",),
    "when": ("time",),
    "send": ("title", "notify", "labels", "group", "standing"),
}
"""Places of errors by step; all others are of the step "how"."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of the form; its state is "wrong", "to do" or "done"."""

    name: str
    state: str

    @property
    def title(self) -> str:
        """The name as its heading."""
        return self.name.capitalize()


def steps_of(problems: Problems) -> tuple[Step, ...]:
    """Say of each step whether something in it is wrong or still to be filled in."""
    states: dict[str, str] = {}
    for one in problems.found:
        step = _step(one.slot)
        if not one.waits or step not in states:
            states[step] = "to do" if one.waits else "wrong"
    return tuple(
        Step(name=name, state=states.get(name, "done"))
        for name in ("what", "where", "when", "how", "send")
    )


def _step(slot: str) -> str:
    begin = slot.partition("-")[0].partition(".")[0]
    return next((name for name, slots in _SLOTS.items() if begin in slots), "how")
