"""What makes the artifact of a task's kind."""

from typing import get_args

from tasks.bag.kinds import Spec
from worker.slots.making import MAKERS


def test_each_kind_of_task_is_made_by_one_maker() -> None:
    kinds = get_args(get_args(Spec)[0])
    assert len(kinds) > 5
    assert {*MAKERS} == {*kinds}
