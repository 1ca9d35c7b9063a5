"""The entry to the child's code, which keeps that code out of the supervisor's memory."""

from multiprocessing.connection import Connection

from worker.sandbox.messages import Job


def run(job: Job, reports: Connection) -> int:
    """Do the job in the child; return its exit code."""
    # Imported here: the forkserver has already imported all phases and their libraries, and the
    # supervising process, which only names this function, needs none of them.
    from worker.slots import child

    return child.run(job, reports)
