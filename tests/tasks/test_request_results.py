"""What a request shows as its results."""

from tasks.model.keys import shard
from tasks.model.model import Phase, WantOutcome
from tasks.storage.store import Insert
from tasks.tables import requests, task_table
from tasks.tables.rows import Want
from tasks.tables.services import memory_services

T, STAND_IN, OTHER = "a" * 64, "b" * 64, "c" * 64


def test_what_stood_in_for_a_result_that_was_made_after_all_is_left_out() -> None:
    services = memory_services()
    for want in (
        Want(request="r", key=T, phase=Phase.AGGREGATION, outcome=WantOutcome.DONE, output="out"),
        Want(
            request="r",
            key=STAND_IN,
            phase=Phase.AGGREGATION,
            outcome=WantOutcome.DONE,
            output="out",
        ),
        Want(
            request="r", key=OTHER, phase=Phase.AGGREGATION, outcome=WantOutcome.DONE, output="more"
        ),
    ):
        named = want.succeeded(STAND_IN) if want.key == T else want
        services.store.transact(
            task_table.TABLE,
            shard(want.key),
            [Insert(row=task_table.want_row("r", want.key), entity=task_table.WANT.dump(named))],
        )
    assert [want.key for want in requests.results(services, "r")] == [OTHER, T]
