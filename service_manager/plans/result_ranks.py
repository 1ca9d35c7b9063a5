"""The order in which the results of a request are made: a rank for each task of its plan.

A task has the rank of the first result that it serves, so all that one result needs comes before
what only later ones need. Results go by their dates, and those of one date in the order of the
plan. Pure: it takes a section of the plan, which holds whole dates. Dates of other sections, which
a window may take, have their own ranks there.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence

from tasks.bag.kinds import Spec
from tasks.bag.spec import GroupSpec
from tasks.request.document import First
from tasks.requests.plan import PlannedTask

_WITHIN = 20  # bits for the place among the tasks of a section
_DATES = 64  # more than `first` may list
_AFTER = 2**28  # of days after all that `first` lists; more than any other place of a day
_LATEST = dt.date.max.toordinal() + 1


def result_ranks(section: Sequence[PlannedTask], first: First) -> dict[str, int]:
    """Return the rank of each task of a section by key, above 0, or 0 where all windows need it.

    The section has inputs before what takes them. `first` is the request's.
    """
    places: dict[str, int] = {}
    for planned in section:
        places.setdefault(planned.key, _place(planned.spec, places, first))
    ranks: dict[str, int] = {}
    for number, planned in reversed([*enumerate(section)]):
        own = places[planned.key] << _WITHIN | min(number + 1, 2**_WITHIN - 1)
        if planned.output or planned.key not in ranks:
            ranks[planned.key] = min(own, ranks.get(planned.key, own))
        for given, rank in _served(planned.spec, ranks[planned.key]):
            if given in places:
                ranks[given] = min(rank, ranks.get(given, rank))
    return ranks


def place_of(day: dt.date, first: First) -> int:
    """Return the place of a day in the order that a request asks for, from 1.

    Of listed dates, what begins on one goes first, then what begins before one, the nearest first,
    then all that begins after them.
    """
    number = day.toordinal()
    if first == "oldest":
        return number
    if first == "newest":
        return _LATEST - number
    before = [
        (listed.toordinal() - number) * _DATES + turn
        for turn, listed in enumerate(first, 1)
        if day <= listed
    ]
    return min(before, default=_AFTER + number)


def _place(spec: Spec, places: Mapping[str, int], first: First) -> int:
    """Return the place of the day by which a task's last input is there; 0: of no day."""
    if spec.own_day is not None:
        return 0 if spec.own_day == dt.date.min else place_of(spec.own_day, first)
    match spec:
        case GroupSpec():
            found = [
                places.get(given.key, 0) or place_of(band.day, first)
                for given, band in zip(spec.inputs, spec.bands, strict=True)
                if band.use != "static"
            ]
            if not found:
                return place_of(spec.time.days[0][0], first) if spec.time is not None else 0
            # A window that holds a listed date is its result, though it ends after it.
            return max((n for n in found if n < _AFTER), default=max(found))
        case _:
            return max((places.get(given.key, 0) for given in spec.inputs), default=0)


def _served(spec: Spec, rank: int) -> Iterator[tuple[str, int]]:
    """Yield the key of each input of a task, with the rank that it has from it."""
    statics = [b.use == "static" for b in spec.bands] if isinstance(spec, GroupSpec) else []
    for i, given in enumerate(spec.inputs):
        yield given.key, 0 if statics and statics[i] else rank
