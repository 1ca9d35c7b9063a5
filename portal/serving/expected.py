"""Express the time and cost of a request in words, for the pages, the API and the command."""

from dataclasses import dataclass
from typing import Self

from portal.serving.quantities import duration_text
from tasks.operators.prices import PriceList, calls_text, time_text
from tasks.requests.request_table import Preview

_UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Time and cost of a plan in words. `notes` say what both are based on and leave out."""

    time: str
    cost: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, preview: Preview) -> Self:
        """Express the counts of planning in words."""
        if preview == Preview():
            return cls(time=_UNKNOWN, cost=_UNKNOWN, notes=("Nothing is counted yet.",))
        left = max(0, preview.tasks - preview.reused)
        if not left:
            there = "nothing to do" + (": all tasks are done already" if preview.tasks else "")
            return cls(time=there, cost=(preview.cost and _price(preview)) or "nothing", notes=())
        return cls(
            time=_time(preview),
            cost=_cost(preview),
            notes=_notes(preview, left),
        )


def _time(preview: Preview) -> str:
    if not preview.busy:
        return _UNKNOWN
    clock = f", {duration_text(preview.elapsed)} with the workers there are"
    return f"{duration_text(preview.busy)} of one core{clock if preview.elapsed else ''}"


def _cost(preview: Preview) -> str:
    """Say the amount, and of what; only of what, where operators gave no prices."""
    if not preview.busy:
        return _UNKNOWN
    of = ", ".join(
        [f"{time_text(preview.use.cpu)} of processors", *filter(None, [calls_text(preview.use)])]
    )
    price = _price(preview)
    said = f"{price} ({of})" if price else of
    return f"at least {said}" if preview.unmeasured else said


def _price(preview: Preview) -> str:
    """Return the amount in words; "" where operators gave no prices."""
    if not preview.currency:  # of an earlier build's plan nobody knows in what its cost is
        return ""
    money = PriceList(currency=preview.currency).text(preview.cost)
    return f"{money}, with a month of storage"


def _notes(preview: Preview, left: int) -> tuple[str, ...]:
    notes = []
    if preview.unmeasured >= left:
        notes.append("Time and cost are not known: no task like these was ever timed here.")
    elif preview.unmeasured:
        notes.append(
            f"Time and cost leave out {_share(preview.unmeasured, left)}: "
            "no task like them was ever timed here."
        )
    if preview.similar:
        notes.append(
            f"For {_share(preview.similar, left)}, the time is estimated from similar work: "
            "another resolution, amount or product."
        )
    return tuple(notes)


def _share(part: int, whole: int) -> str:
    percent = 100 * part / whole
    said = "less than 1%" if percent < 1 else f"{min(percent, 99 if part < whole else 100):.0f}%"
    return f"{part:,} of {whole:,} tasks ({said})"
