"""Checkpoints by name: the newest state of a task's present generation, whoever stores it when."""

from dataclasses import replace

from tasks.bag import checkpoints
from tasks.bag.checkpoints import digest_of_state, earlier_states, latest_state, state_name
from tasks.bag.model import Phase, State, Task
from tasks.storage.blobs import CHECKPOINTS, MemoryBlobs

KEY, SHA = "a1" * 32, "c" * 64
TASK = Task(
    key=KEY, phase=Phase.REDUCTION, task_class="c", inputs=1, state=State.RUNNING, attempt=2
)
FIRST = replace(TASK, attempt=1)
AGAIN = replace(TASK, attempt=3, generation=2)


def stored(*names: str) -> MemoryBlobs:
    blobs = MemoryBlobs()
    for name in names:
        blobs.put_bytes(CHECKPOINTS, name, b"state")
    return blobs


def test_what_a_stalled_attempt_stores_late_never_takes_the_place_of_a_newer_state() -> None:
    late, newer = state_name(FIRST, 900, SHA), state_name(TASK, 1, SHA)
    blobs = stored(late, newer)
    assert latest_state(blobs, TASK) == newer
    assert [*earlier_states(blobs, newer)] == [late]
    assert [*earlier_states(blobs, late)] == []


def test_numbers_of_states_and_attempts_are_ordered_as_numbers() -> None:
    names = [state_name(replace(TASK, attempt=a), n, SHA) for a in (2, 10) for n in (2, 10)]
    assert names == sorted(names)
    assert digest_of_state(names[0]) == SHA


def test_what_is_tried_again_after_its_end_begins_anew() -> None:
    blobs = stored(state_name(TASK, 1, SHA))
    assert latest_state(blobs, AGAIN) == ""
    own = state_name(AGAIN, 1, SHA)
    blobs.put_bytes(CHECKPOINTS, own, b"state")
    assert [*earlier_states(blobs, own)] == [state_name(TASK, 1, SHA)]


def test_a_state_is_of_use_while_its_task_lives() -> None:
    name = state_name(TASK, 1, SHA)
    for state in State:
        assert checkpoints.is_of_use(replace(TASK, state=state), name) == state.live
    assert not checkpoints.is_of_use(AGAIN, name)
    assert not checkpoints.is_of_use(None, name)


def test_all_states_of_a_task_and_no_other_are_deleted() -> None:
    other = replace(TASK, key="b2" * 32)
    blobs = stored(state_name(TASK, 1, SHA), state_name(AGAIN, 1, SHA), state_name(other, 1, SHA))
    assert checkpoints.delete_states(blobs, KEY) == 2
    assert [*blobs.names(CHECKPOINTS)] == [state_name(other, 1, SHA)]
