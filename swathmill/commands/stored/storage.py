"""`swathmill storage`: show what is kept in storage, its worth, and what would go next."""

import heapq
import time
from collections import Counter
from dataclasses import dataclass, field

import typer
from rich.table import Column, Table

from portal.serving.quantities import size_text
from service_manager.options import ManagerOptions
from service_manager.storage.retention import survey
from service_manager.storage.worth import Kept, Policy, Why
from swathmill.commands.shared.options import (
    DataOption,
    JsonOption,
    data_folder,
    print_json,
)
from swathmill.commands.stored.backup import open_storage
from swathmill.console import PlainConsole
from tasks.bag import history
from tasks.bag.expectation import Times
from tasks.bag.model import Phase
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS
from tasks.operators import prices
from tasks.operators.prices import PriceList
from tasks.settings import Settings

_GB = 1e9
_NEXT = 10


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(storage)


@dataclass
class Held:
    """The artifacts of one phase.

    Their number, their bytes in all and by the reason they are kept, and the cost of making them
    again.
    """

    count: int = 0
    size: int = 0
    remake: float = 0.0
    by_reason: Counter[Why] = field(default_factory=Counter)


def storage(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Show what is kept in storage, what it is worth, and what would go next."""
    now = time.time()
    with open_storage(data_folder(data), alone=False) as runtime:
        options = ManagerOptions.of(Settings(), "storage")
        known = prices.load(runtime.store)
        policy = Policy.of(options).priced(known.prices)
        held, least = look(runtime, policy, now)
    if as_json:
        print_json({"phases": held, "next": least})
        return
    show(PlainConsole(), policy, known, held, least, now)


def look(runtime: Runtime, policy: Policy, now: float) -> tuple[dict[Phase, Held], list[Kept]]:
    """Collect all artifacts by phase, and those that would go next, in order."""
    times = Times(history.class_statistics(runtime.store))
    held = {phase: Held() for phase in Phase}
    ended: dict[str, float] = {}
    least: list[Kept] = []
    for shard in SHARDS:
        for one in survey(runtime, shard, times, ended):
            why = one.why(policy, now)
            of = held[one.phase]
            of.count += 1
            of.size += one.size
            of.remake += one.remake(policy)
            of.by_reason[why] += one.size
            if why in (Why.WORTH, Why.NOT):
                least.append(one)
        least = heapq.nsmallest(_NEXT, least, key=lambda one: one.turn(policy, now))
    return held, least


def show(
    console: PlainConsole,
    policy: Policy,
    known: PriceList,
    held: dict[Phase, Held],
    least: list[Kept],
    now: float,
) -> None:
    """Print the artifacts by phase and those that would go next.

    Without prices what they are worth is told in hours of one core.
    """
    unit = known.currency or "core hours"
    table = Table(
        Column("phase", min_width=max(map(len, Phase))),
        "artifacts",
        "size",
        "needed",
        "results",
        "worth keeping",
        "to go",
        "to make again",
    )
    table.box = None
    for phase, of in held.items():
        parts = [size_text(of.by_reason[why]) for why in Why]
        table.add_row(
            phase, f"{of.count:,}", size_text(of.size), *parts, f"{_money(of.remake)} {unit}"
        )
    console.print(table)
    total = sum(of.size for of in held.values())
    month = total / _GB * policy.storage
    bound = f" of {policy.quota / _GB:g} GB (SWATHMILL_STORAGE_QUOTA_GB)" if policy.quota else ""
    weight = "at" if known else "which weighs as much as"
    console.print(
        f"{size_text(total)}{bound}, {weight} {_money(month)} {unit} a month.", markup=False
    )
    if not least:
        console.print("Nothing would go: all is needed or a result.", markup=False)
        return
    console.print("What would go next:", markup=False)
    for one in least:
        console.print(
            f"  {one.key[-16:]}  {one.phase:12}  {size_text(one.size):>9}  worth "
            f"{_money(one.worth(policy, now))} {unit}: {one.why(policy, now)}",
            markup=False,
        )


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if not amount or abs(amount) >= 1 else f"{amount:.2g}"
