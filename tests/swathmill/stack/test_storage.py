"""A data folder keeps to one storage: no stack starts beside data that it would not see."""

from pathlib import Path

import pytest

from swathmill.commands.stored.backup import open_storage
from swathmill.diagnosis import Verdict, checks_of, storage_finding
from swathmill.errors import StackError
from swathmill.stack import storage
from swathmill.stack.folder import DataFolder
from swathmill.stack.stack import Stack, StackOptions
from swathmill.stack.storage import Storage
from tasks.service.connect import connect_storage
from tasks.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    one = DataFolder(path=tmp_path / "data")
    one.prepare()
    return one


def fill(folder: DataFolder, kind: Storage) -> None:
    if kind is Storage.EMBEDDED:
        connect_storage(storage.embedded(folder))
    else:
        folder.azurite.mkdir()
        (folder.azurite / "__azurite_db_table__.json").write_text("{}")


def test_a_new_folder_gets_embedded_storage_or_what_is_wanted(folder: DataFolder) -> None:
    assert storage.held(folder) is None
    assert storage.choose(folder, None) is Storage.EMBEDDED
    assert storage.choose(folder, Storage.AZURITE) is Storage.AZURITE


@pytest.mark.parametrize("kind", [*Storage])
def test_a_folder_goes_on_with_what_it_holds(folder: DataFolder, kind: Storage) -> None:
    fill(folder, kind)
    assert storage.choose(folder, None) is kind
    assert storage.choose(folder, kind) is kind


@pytest.mark.parametrize("kind", [*Storage])
def test_the_other_storage_does_not_start_beside_data(folder: DataFolder, kind: Storage) -> None:
    fill(folder, kind)
    (other,) = set(Storage) - {kind}
    options = StackOptions(folder=folder, archive="", storage=other, settings=Settings())
    stack = Stack(options, say=lambda _: None)
    with pytest.raises(StackError, match="would not see it") as caught:
        stack.start()
    assert stack.supervisor.names() == []
    assert f"--storage {kind}" in caught.value.remedy
    for command in ("swathmill export", "swathmill restore", "--data NEW"):
        assert command in caught.value.remedy


def test_tables_that_are_away_do_not_make_a_folder_new(folder: DataFolder) -> None:
    """Where only the WAL is left, an empty stack would hide that."""
    folder.storage.mkdir()
    folder.tables.with_name("tables.sqlite-wal").write_bytes(b"x")
    assert storage.held(folder) is Storage.EMBEDDED
    with pytest.raises(StackError, match="is absent"), open_storage(folder, alone=False):
        pass


def test_what_an_older_version_had_azurite_write_is_refused(folder: DataFolder) -> None:
    """Azurite as its makers ship it would see an empty database there."""
    fill(folder, Storage.AZURITE)
    (folder.azurite / "__azurite_db_table__.json.journal-0").write_text("[]")
    for wanted in (None, *Storage):
        with pytest.raises(StackError, match="older version") as caught:
            storage.choose(folder, wanted)
        assert "swathmill restore" in caught.value.remedy


def test_doctor_starts_azurite_only_for_a_folder_whose_data_are_in_it(
    folder: DataFolder, tmp_path: Path
) -> None:
    def subjects(of: DataFolder) -> set[str]:
        return {subject for subject, _ in checks_of(of, Settings())}

    servers = {"Node", "Azurite"}
    assert not servers & subjects(folder)
    with_azurite = DataFolder(path=tmp_path / "other")
    with_azurite.azurite.mkdir(parents=True)
    (with_azurite.azurite / "__azurite_db_table__.json").write_text("{}")
    assert servers <= subjects(with_azurite)
    assert "message server" in subjects(folder)


def test_doctor_says_where_the_data_are(folder: DataFolder, tmp_path: Path) -> None:
    assert "embedded" in storage_finding(folder).found
    fill(folder, Storage.EMBEDDED)
    assert str(folder.tables) in storage_finding(folder).found
    folder.tables.write_bytes(b"this is no database" * 1000)
    finding = storage_finding(folder)
    assert finding.verdict is Verdict.FAULT
    assert "damaged" in finding.found
    assert "restore the last export" in finding.found
    assert "Embedded storage" in finding.remedy
    with_azurite = DataFolder(path=tmp_path / "other")
    with_azurite.prepare()
    fill(with_azurite, Storage.AZURITE)
    assert "Azurite" in storage_finding(with_azurite).found
