"""Which requests a caller may read or give orders about, and the audit of what others do."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from portal.serving.problems import ForbiddenError, NotFoundError, PortalError
from portal.serving.tokens import Person
from tasks.accounts.group_table import GroupTable
from tasks.bag.runtime import Runtime
from tasks.errors import SwathmillError
from tasks.operators import audit
from tasks.requests import request_operations
from tasks.requests.request_operations import NoSuchRequestError
from tasks.requests.request_table import RequestRow


def load_for(runtime: Runtime, person: Person, request: str) -> RequestRow:
    """Load a request that this person owns or operates.

    Raises NotFoundError if it does not exist or is somebody else's.
    """
    row = read_for(runtime, person, request)
    if not person.may_see(row.owner):
        raise _not_found(request)
    return row


def load_to_change(runtime: Runtime, person: Person, request: str) -> RequestRow:
    """Load a request that this person may give orders about.

    Raises NotFoundError if it does not exist or this person may not read it, and ForbiddenError if
    this person may only read it.
    """
    row = read_for(runtime, person, request)
    if not person.may_see(row.owner):
        raise ForbiddenError(
            f"Request {request} is {row.owner}'s: you may read it, and not give orders about it.",
            "Ask its owner, or submit its document as a request of your own: what is finished is "
            "reused.",
        )
    return row


def read_for(runtime: Runtime, person: Person, request: str) -> RequestRow:
    """Load a request that this person may read.

    Raises NotFoundError if it does not exist or this person may not read it.
    """
    try:
        row = request_operations.load(runtime, request)
    except (NoSuchRequestError, ValueError):
        row = None
    if row is None or not _may_read(runtime, person, row):
        raise _not_found(request)
    return row


def _may_read(runtime: Runtime, person: Person, row: RequestRow) -> bool:
    """Tell whether a person owns or operates a request, has a link to it, or is in its group."""
    if person.may_see(row.owner) or person.has_link(row.id, row.links):
        return True
    return GroupTable(runtime.store).has(row.group, person.owner)


def _not_found(request: str) -> NotFoundError:
    return NotFoundError(
        f"There is no request {request}.", "Your requests are listed at /api/requests and /."
    )


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
