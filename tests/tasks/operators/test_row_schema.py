"""Two builds over one storage: the newer one writes as the older one does until the end."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tasks.bag import workers
from tasks.bag.runtime import Runtime
from tasks.bag.workers import WorkerRow
from tasks.operators import row_schema
from tasks.requests.request_table import PARTITION, TABLE, WRITTEN
from tasks.service.connect import connect_storage
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import WrongSettingError
from tasks.storage import schema
from tasks.storage.codec import Codec
from tasks.storage.schema import SCHEMA, OtherSchemaError
from tasks.storage.store import Entity, Row, Upsert

NEXT = SCHEMA + 1


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A kind of row whose next build calls its size by another name."""

    name: str
    pixels: int


THING = Codec(Thing, "thing")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    schema.write_as(SCHEMA)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one of the next build."""
    monkeypatch.setattr(schema, "SCHEMA", NEXT)
    monkeypatch.setattr(row_schema, "SCHEMA", NEXT)
    monkeypatch.setattr(schema, "UPGRADES", {"thing": {SCHEMA: renamed("size", "pixels")}})
    monkeypatch.setattr(schema, "DOWNGRADES", {"thing": {NEXT: renamed("pixels", "size")}})


def renamed(old: str, new: str) -> schema.Upgrade:
    return lambda entity: {new if name == old else name: value for name, value in entity.items()}


@pytest.fixture
def runtime() -> Runtime:
    """Storage in which the first manager, of this build, has noted how rows are written."""
    found = memory_runtime()
    noted: Entity = {"schema": SCHEMA, "number": SCHEMA}
    found.store.transact(TABLE, PARTITION, [Upsert(row=WRITTEN, entity=noted)])
    return found


def worker(runtime: Runtime, reads: int) -> None:
    row = WorkerRow(name="w", host="h", slots=1, started=1.0, beat_at=1.0, reads=reads)
    workers.beat(runtime.store, runtime.clock, row, 1e9)


@pytest.mark.usefixtures("newer")
def test_the_next_build_writes_as_this_one_until_the_end(runtime: Runtime) -> None:
    row_schema.adopt(runtime)
    entity = THING.dump(Thing(name="a", pixels=7))
    assert entity == {"name": "a", "size": 7, "schema": SCHEMA}
    assert THING.load(Row(partition="p", row="a", entity=entity, etag="")) == Thing(
        name="a", pixels=7
    )
    row_schema.finish(runtime)
    assert THING.dump(Thing(name="a", pixels=7)) == entity, "until the process starts anew"
    row_schema.adopt(runtime)
    assert THING.dump(Thing(name="a", pixels=7)) == {"name": "a", "pixels": 7, "schema": NEXT}


@pytest.mark.usefixtures("newer")
def test_an_upgrade_does_not_end_while_older_workers_run(runtime: Runtime) -> None:
    schema.write_as(SCHEMA)
    worker(runtime, SCHEMA)
    with pytest.raises(row_schema.OlderBuildsError, match="1 workers are of an older build: w"):
        row_schema.finish(runtime)
    assert row_schema.noted(runtime) == SCHEMA
    worker(runtime, NEXT)
    row_schema.finish(runtime)
    assert row_schema.noted(runtime) == NEXT


@pytest.mark.usefixtures("newer")
def test_new_storage_is_written_as_the_first_manager_does(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = memory_runtime()
    row_schema.note_new(runtime)
    assert row_schema.noted(runtime) == NEXT
    monkeypatch.setattr(row_schema, "SCHEMA", SCHEMA)
    row_schema.note_new(runtime)
    assert row_schema.noted(runtime) == NEXT


def test_after_the_end_an_older_build_says_why_it_cannot_start(tmp_path: Path) -> None:
    storage = f"file:{tmp_path}"
    store = connect_storage(storage).store
    entity: Entity = {"schema": NEXT, "number": NEXT}
    store.transact(TABLE, PARTITION, [Upsert(row=WRITTEN, entity=entity)])
    with pytest.raises(WrongSettingError, match=rf"schema {NEXT}.*install the newer version"):
        connect_storage(storage)


def test_a_build_does_not_skip_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "SCHEMA", SCHEMA + 2)
    with pytest.raises(OtherSchemaError):
        schema.write_as(SCHEMA)


def test_a_beat_tells_what_its_build_reads(runtime: Runtime) -> None:
    worker(runtime, SCHEMA)
    (found,) = workers.list_workers(runtime.store)
    assert found.reads == SCHEMA
    assert replace(found, reads=0) != found
