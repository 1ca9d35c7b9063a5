"""What Azurite has answered is there after SIGKILL, at whatever moment it comes."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.data.tables import UpdateMode
from azure.storage.blob import BlobBlock

from swathmill.errors import StackError
from swathmill.stack import programs
from swathmill.stack.azurite import JOURNAL
from tests.swathmill.azurite_place import TABLES, Place, row

pytestmark = pytest.mark.integration

PROBE = Path(__file__).with_name("azurite_journal_probe.cjs")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(folder=tmp_path)


def test_tables_survive_a_kill(place: Place) -> None:
    with place.killed() as storage:
        for key in ("kept", "updated", "merged", "deleted"):
            storage.table.create_entity(row(key, 1))
        storage.table.upsert_entity(row("updated", 2), UpdateMode.REPLACE)
        storage.table.upsert_entity(row("merged", 2), UpdateMode.MERGE)
        storage.table.delete_entity("a", "deleted")
        storage.table.submit_transaction(
            [("create", row("one", 3)), ("upsert", row("kept", 3)), ("delete", row("merged", 0))]
        )
    with place.killed() as storage:
        assert storage.rows() == {"kept": 3, "updated": 2, "one": 3}
        storage.table.update_entity(row("one", 4), UpdateMode.REPLACE)
    with place.killed() as storage:
        assert storage.rows() == {"kept": 3, "updated": 2, "one": 4}


def test_a_table_that_was_deleted_and_made_again_is_empty(place: Place) -> None:
    with place.killed() as storage:
        storage.table.create_entity(row("old", 1))
        storage.table.delete_table()
        storage.table.create_table()
        storage.table.create_entity(row("new", 2))
    with place.killed() as storage:
        assert storage.rows() == {"new": 2}


def test_blobs_survive_a_kill(place: Place) -> None:
    whole, part = os.urandom(300_000), os.urandom(100_000)
    with place.killed() as storage:
        storage.container.upload_blob("first", b"first")
        storage.container.upload_blob("whole", b"replaced")
        storage.container.upload_blob("whole", whole, overwrite=True)
        storage.container.upload_blob("deleted", b"deleted")
        storage.container.delete_blob("deleted")
        blocks = storage.container.get_blob_client("blocks")
        for name in ("1", "2"):
            blocks.stage_block(name, part + name.encode())
        blocks.commit_block_list([BlobBlock("2"), BlobBlock("1")])
        unfinished = storage.container.get_blob_client("unfinished")
        unfinished.stage_block("1", part)
    with place.killed() as storage:
        expected = {"first": b"first", "whole": whole, "blocks": part + b"2" + part + b"1"}
        assert storage.blobs() == expected
        unfinished = storage.container.get_blob_client("unfinished")
        unfinished.commit_block_list([BlobBlock("1")])
        storage.container.upload_blob("after", whole)
    with place.killed() as storage:
        assert storage.blobs() == expected | {"unfinished": part, "after": whole}


def test_messages_survive_a_kill(place: Place) -> None:
    with place.killed() as storage:
        for text in ("kept", "changed", "deleted"):
            storage.queue.send_message(text)
        kept, changed, deleted = storage.queue.receive_messages(visibility_timeout=1)
        storage.queue.delete_message(deleted)
        storage.queue.update_message(changed, content="as changed", visibility_timeout=0)
        storage.queue.update_message(kept, visibility_timeout=0)
    with place.killed() as storage:
        assert storage.messages() == {"kept", "as changed"}
    with place.killed() as storage:
        assert storage.messages() == set(), "they are still hidden"


def test_what_a_kill_left_unfinished_is_dropped(place: Place) -> None:
    with place.killed() as storage:
        storage.table.create_entity(row("kept", 1))
    journal = place.tables.with_name(f"{TABLES}.journal-0")
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines(keepends=True)[-1][:-1])
    with place.killed() as storage:
        assert journal.read_bytes() == whole
        storage.table.create_entity(row("later", 2))
    with place.killed() as storage:
        assert storage.rows() == {"kept": 1, "later": 2}
    assert "an unfinished change are dropped" in place.log.read_text()


def cut(path: Path) -> None:
    """Have a line in the middle of a file end early."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2][:-20] + b"\n"
    path.write_bytes(b"".join(lines))


def without_end(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'{"end":true}\n', b""))


@pytest.mark.parametrize(
    ("damage", "name", "said"),
    [
        (cut, f"{TABLES}.journal-0", "is damaged at byte"),
        (without_end, TABLES, "is damaged: it has no end"),
        (Path.unlink, TABLES, "is missing; its journals 0 are there"),
    ],
)
def test_damage_is_refused(
    place: Place, damage: Callable[[Path], None], name: str, said: str
) -> None:
    with place.killed() as storage:
        for n in range(3):
            storage.table.create_entity(row(str(n), n))
    damage(place.tables.with_name(name))
    before = {path: path.read_bytes() for path in place.tables.parent.glob("*table*")}
    with pytest.raises(StackError, match="while starting") as refused, place.killed():
        raise AssertionError("it has started")
    assert said in refused.value.remedy
    assert {path: path.read_bytes() for path in place.tables.parent.glob("*table*")} == before


def test_a_folder_that_azurite_wrote_by_itself_is_taken_over(place: Place) -> None:
    with place.killed(journal=False) as storage:
        storage.table.create_entity(row("kept", 1))
        storage.table.create_entity(row("deleted", 1))
        storage.container.upload_blob("blob", b"content")
        storage.queue.send_message("message")
    assert "collections" in json.loads(place.tables.read_text())
    with place.killed() as storage:
        storage.table.delete_entity("a", "deleted")
    assert place.tables.read_text().startswith('{"generation":1}\n')
    with place.killed() as storage:
        assert storage.rows() == {"kept": 1}
        assert storage.blobs() == {"blob": b"content"}
        assert storage.messages() == {"message"}


def probe(database: Path, killed_at: int, limit: str = "") -> subprocess.CompletedProcess[str]:
    command = f'{limit} exec "$@"'
    program = [str(programs.node()), "--require", *map(str, (JOURNAL, PROBE, database, killed_at))]
    return subprocess.run(
        ["sh", "-c", command, "sh", *program],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"AZURITE_JOURNAL_BYTES": "3000"},
    )


class Possible:
    """What a database may hold: what was acknowledged last, or what was tried after that."""

    def __init__(self) -> None:
        self.contents: list[object] = [{}, {"rows": []}]

    def follow(self, said: str) -> None:
        for word, contents in map(json.loads, said.splitlines()):
            assert word != "loaded" or contents in self.contents
            self.contents = [*self.contents[-1:], contents] if word == "trying" else [contents]


def test_a_kill_at_any_call_of_the_file_system_loses_nothing(tmp_path: Path) -> None:
    """Killed at the first call, the second and so on; each time again on the way back."""
    database = tmp_path / "database"
    possible = Possible()
    for call in range(1, 200):
        codes = []
        for killed_at in (call, call, 0):
            run = probe(database, killed_at)
            codes.append(run.returncode)
            assert run.returncode == 0 or (killed_at and run.returncode == -9), run.stderr
            possible.follow(run.stdout)
        if codes[0] == 0:
            break
    generation = json.loads(database.read_text().splitlines()[0])["generation"]
    assert codes[0] == 0, "it came through"
    assert generation > call > 30, "snapshots were taken meanwhile"


def test_what_does_not_fit_on_the_disk_is_not_acknowledged(tmp_path: Path) -> None:
    database = tmp_path / "database"
    possible = Possible()
    full = probe(database, 0, limit="ulimit -f 9;")
    possible.follow(full.stdout)
    assert f"{database} cannot be written" in full.stderr
    assert full.returncode == 1
    assert len(possible.contents) == 2, "the last change was not acknowledged"
    for _ in range(2):
        run = probe(database, 0)
        possible.follow(run.stdout)
        assert run.returncode == 0


def test_without_a_snapshot_the_journals_say_everything(tmp_path: Path) -> None:
    database, in_the_way = tmp_path / "database", tmp_path / "database~"
    possible = Possible()
    possible.follow(probe(database, 0).stdout)
    in_the_way.mkdir()
    for _ in range(3):
        run = probe(database, 0)
        possible.follow(run.stdout)
        assert run.returncode == 0
        assert f"No snapshot of {database}" in run.stderr
    in_the_way.rmdir()
    run = probe(database, 0)
    possible.follow(run.stdout)
    assert "No snapshot" not in run.stderr
