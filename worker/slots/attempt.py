"""The way from the supervisor to the child's code, without the supervisor having it in memory."""

from multiprocessing.connection import Connection

from worker.sandbox.messages import Job


def run(job: Job, reports: Connection) -> int:
    """Do the job, in the child; returns its exit code."""
    # Here and not above: the forkserver has all the phases and their libraries imported, and the
    # supervising process, which names this function only, needs none of them.
    from worker.slots import child

    return child.run(job, reports)
