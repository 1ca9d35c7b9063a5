"""The entry to the child's code, which keeps that code out of the supervisor's memory."""

from worker.sandbox.guard import Work
from worker.sandbox.makers import Makers
from worker.sandbox.messages import ChildSettings


def prepare(given: ChildSettings, makers: Makers) -> Work:
    """Prepare a child for its jobs; runs in the child."""
    # Imported here: the forkserver has already imported all phases and their libraries, and the
    # supervising process, which only names this function, needs none of them.
    from worker.slots.child import WarmChild

    return WarmChild(given, makers)
