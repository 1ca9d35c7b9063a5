"""`swathmill fleet`: have an engine run as many workers as the acting manager wants.

`engine.py` has the interface and the rule, `registry.py` the names of engines, each other module
one engine.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from swathmill.access import client_for
from swathmill.client import Client
from swathmill.commands.fleet.engine import Engine, Fleet, Moves
from swathmill.commands.fleet.registry import FORMS, open_engine
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    TokenOption,
    data_folder,
    print_json,
)
from swathmill.console import PlainConsole
from swathmill.errors import StackError


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(fleet)


def fleet(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help=f"{', '.join(FORMS)}.")],
    slots: Annotated[int, typer.Option(min=1, help="Slots of a worker.")] = 2,
    most: Annotated[int, typer.Option(min=0, help="Most workers.")] = 200,
    every: Annotated[
        float, typer.Option(min=1.0, help="Seconds between two looks; see --once.")
    ] = 30.0,
    place: Annotated[
        str, typer.Option("--for", help="Place whose work they do; empty: work without one.")
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="Look once, and end.")] = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    token: TokenOption = None,
) -> None:
    """Start as many workers in an engine as the acting manager wants, until Ctrl-C (operators).

    Workers leave by themselves when the manager has told them to (SWATHMILL_SCALE_IN_SECONDS).
    """
    console = PlainConsole(stderr=as_json)
    there = open_engine(engine, slots, place)
    folder = data_folder(data)
    client_for(folder, token)  # raises at once where there is no portal
    rule, told = Fleet(slots=slots, most=most), dict[str, int]()
    while True:
        try:
            # Made anew: the token for this machine's stack is good for an hour.
            client = client_for(folder, token)
            with _understood(engine):
                _look(client, there, rule, console, place, told, as_json=as_json)
        except StackError as error:
            if once:
                raise
            # The engine or the portal is away for a while: what runs there goes on.
            console.print(f"{error.problem} {error.remedy}", markup=False)
        if once:
            return
        time.sleep(every)


@contextmanager
def _understood(engine: str) -> Iterator[None]:
    """Translate what an answer of another form makes Python raise."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StackError(
            f"{engine} or the portal answered what is not understood: {error!r}.",
            "It is asked again.",
        ) from error


def _wanted(seen: Mapping[str, Any], place: str) -> int:
    """Return the slots wanted at a place. Raises StackError where no work has it."""
    if not place:
        return int(seen["manager"]["wanted_slots"])
    for one in seen.get("places", ()):
        if one["place"] == place:
            return int(one["wanted_slots"])
    raise StackError(
        f"The acting manager knows no place {place!r}.",
        "Name it in the manager's SWATHMILL_WORK_PLACES (docs/settings.md).",
    )


def _look(
    client: Client,
    engine: Engine,
    rule: Fleet,
    console: PlainConsole,
    place: str,
    told: dict[str, int],
    *,
    as_json: bool,
) -> None:
    """See what is wanted for a place of work and what is there, and make the difference.

    `told` is what was said at the look before of workers that wait: it is said once.
    """
    seen = client.operations()
    wanted = _wanted(seen, place)
    leaving = {str(one["name"]) for one in seen["workers"] if one["draining"]}
    there = engine.there()
    own = {one.name for one in there}
    for one in seen["workers"]:
        if one["name"] in own and one.get("place", "") != place:
            console.print(
                f"{one['name']} is no worker of place {place or '(none)'}: correct "
                "SWATHMILL_WORKER_PLACE in what it is started from.",
                markup=False,
            )
    waiting = Counter(one.why for one in there if one.why)
    moves = rule.moves(wanted, there, leaving, time.monotonic())
    if moves.start:
        engine.start(moves.start)
    if moves.end:
        engine.end(moves.end)
    if as_json:
        said = {"wanted_slots": wanted, "there": len(there), "waiting": dict(waiting)}
        print_json({**said, **vars(moves)})
        return
    for why, number in waiting.items():
        if told.get(why) != number:
            console.print(f"{number} workers wait: {why}", markup=False)
    told.clear()
    told.update(waiting)
    if moves != Moves():
        console.print(
            f"Wanted: {wanted} slots; there: {len(there)} workers; started: {moves.start}; "
            f"ended while they waited: {len(moves.end)}"
        )
