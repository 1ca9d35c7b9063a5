"""How rows are written in this storage: noted in a row of its own, which every build can read.

A build reads its own rows and older ones. Beside the build before it, it writes rows as that one
does, until an operator ends the upgrade. Processes look at the note when they start.
"""

from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.errors import SwathmillError
from tasks.requests.request_table import WRITTEN, RequestTable
from tasks.storage import updates
from tasks.storage.schema import SCHEMA, write_as
from tasks.storage.store import Insert, Operation, Row


class OlderBuildsError(SwathmillError):
    """Workers of an older build still run: they could not read the newer rows."""

    def __init__(self, names: tuple[str, ...]) -> None:
        some = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
        super().__init__(
            f"{len(names)} workers are of an older build: {some}. End them, or wait until they "
            "have ended, then the same again."
        )


def noted(runtime: Runtime) -> int:
    """Return the schema by which rows are written. Raises StoreError."""
    row = RequestTable(runtime.store).get(WRITTEN)
    return int(row.entity["number"]) if row is not None else SCHEMA


def adopt(runtime: Runtime) -> None:
    """Write rows as storage notes it.

    Raises:
        OtherSchemaError: this build cannot: it is too old, or by more than one step too new.
        StoreError: storage does not answer.
    """
    write_as(noted(runtime))


def note_new(runtime: Runtime) -> None:
    """Note how rows are written where that is not noted, in new storage. Raises StoreError."""

    def once(found: Row | None) -> tuple[Operation, ...]:
        if found is not None:
            return ()
        return (Insert(row=WRITTEN, entity={"schema": SCHEMA, "number": SCHEMA}),)

    RequestTable(runtime.store).update(runtime.clock, WRITTEN, once)


def finish(runtime: Runtime) -> None:
    """Write rows as this build does from the next start of each process on.

    Builds before this one can read the storage no longer.

    Raises:
        OlderBuildsError: workers of an older build run.
        StoreError: storage does not answer.
    """
    older = tuple(one.name for one in workers.list_workers(runtime.store) if one.reads < SCHEMA)
    if older:
        raise OlderBuildsError(older)

    def once(found: Row | None) -> tuple[Operation, ...]:
        return (updates.write(found, WRITTEN, {"schema": SCHEMA, "number": SCHEMA}),)

    RequestTable(runtime.store).update(runtime.clock, WRITTEN, once)
