"""What a request shows as its results."""

from tasks.bag import task_table
from tasks.bag.model import Phase, TaskOutcome
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import Interest
from tasks.requests import request_operations
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.store import Insert

T, FALLBACK, OTHER = "a" * 64, "b" * 64, "c" * 64


def test_what_stood_in_for_a_result_that_was_made_after_all_is_left_out() -> None:
    runtime = memory_runtime()
    for interest in (
        Interest(
            request="r", key=T, phase=Phase.AGGREGATION, outcome=TaskOutcome.DONE, output="out"
        ),
        Interest(
            request="r",
            key=FALLBACK,
            phase=Phase.AGGREGATION,
            outcome=TaskOutcome.DONE,
            output="out",
        ),
        Interest(
            request="r", key=OTHER, phase=Phase.AGGREGATION, outcome=TaskOutcome.DONE, output="more"
        ),
    ):
        named = interest.with_fallback(FALLBACK) if interest.key == T else interest
        runtime.store.transact(
            task_table.TABLE,
            shard(interest.key),
            [
                Insert(
                    row=task_table.interest_row("r", interest.key),
                    entity=task_table.INTEREST.dump(named),
                )
            ],
        )
    assert [interest.key for interest in request_operations.results(runtime, "r")] == [OTHER, T]
