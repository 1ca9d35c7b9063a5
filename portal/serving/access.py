"""Which requests a caller may read, and which he may give orders about."""

from portal.serving.problems import ForbiddenError, NotFoundError
from portal.serving.tokens import Person
from tasks.accounts.group_table import GroupTable
from tasks.bag.runtime import Runtime
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
