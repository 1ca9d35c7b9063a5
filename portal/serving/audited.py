"""Write down what is done with what is another's, and what came of it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from portal.serving.problems import PortalError
from portal.serving.tokens import Person
from tasks.bag.runtime import Runtime
from tasks.errors import SwathmillError
from tasks.operators import audit
from tasks.requests.request_table import RequestRow


@dataclass
class AuditedAction:
    """The row of an action in the audit, and what came of it."""

    entry: audit.AuditRow
    result: str = "done"


@contextmanager
def audited(
    runtime: Runtime, who: str, action: str, subject: str, reason: str
) -> Iterator[AuditedAction]:
    """Write down an action before the block does it, and afterwards what came of it.

    What the block raises is written down as the result, and raised.
    """
    entry = audit.begin(runtime, who, action, subject, reason.strip())
    record = AuditedAction(entry)
    try:
        yield record
    except PortalError as error:
        audit.complete(runtime.store, entry, f"refused: {error.problem}")
        raise
    except SwathmillError as error:
        audit.complete(runtime.store, entry, f"failed: {error}")
        raise
    audit.complete(runtime.store, entry, record.result)


def audited_for_others(
    runtime: Runtime, caller: Person, row: RequestRow, what: str
) -> AbstractContextManager[object]:
    """Write down what is done with a request, if its owner is somebody else."""
    if caller.owner == row.owner:
        return nullcontext()
    return audited(runtime, caller.owner, f"{what} request", f"{row.id} of {row.owner}", "")
