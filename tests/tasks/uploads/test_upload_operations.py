"""Packages in the table: versions never change, names mean the newest, archives go when unused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.answers.uploads import Visibility
from tasks.bag.model import RequestState
from tasks.bag.runtime import Runtime
from tasks.errors import RequestRefusedError, StoreError
from tasks.packages.package_reference import PackageReference
from tasks.packages.package_uploads import repack
from tasks.packages.packages import PackageError, Packages, blob_of
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import PACKAGES
from tasks.uploads import package_operations, upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS, ExactPackages, PackagesOf, VersionRow
from tasks.uploads.upload_operations import NoSuchUploadError, UploadConflictError
from tasks.uploads.upload_table import UploadRow
from tests.portal.submissions import DOCUMENT
from tests.tasks.package_files import upload_of

ADA, BEN = "ada@example.org", "ben@example.org"


class Shelf:
    """A table of packages, and a folder for uploads."""

    def __init__(self, folder: Path) -> None:
        self.runtime: Runtime = memory_runtime()
        self.folder = folder
        self.count = 0

    def push(
        self, owner: str = ADA, name: str = "own", version: str = "1", program: str = "true"
    ) -> VersionRow:
        self.count += 1
        at = self.folder / str(self.count)
        (at / "files").mkdir(parents=True)
        (at / "upload").write_bytes(upload_of(name, version, program))
        upload = repack(at / "upload", at / "files", at / "archive.tar")
        self.runtime.clock.sleep(1)
        return package_operations.push(self.runtime, owner, upload, at / "archive.tar")

    def row(self, version: VersionRow) -> UploadRow:
        found = PACKAGE_UPLOADS.table(self.runtime).upload(version.package)
        assert found is not None
        return found

    def find(self, person: str, reference: str) -> str:
        """Version and digest of what a person's reference means."""
        local = Packages.of(Settings())
        found = PackagesOf(self.runtime, local, person).find(reference)
        return f"{found.name} {found.digest}"

    def pinned(self, person: str, reference: str) -> str:
        reduction = package_operations.pinned(self.runtime, person, request(reference)).steps[0]
        assert reduction is not None
        return reduction.package

    def there(self, version: VersionRow) -> bool:
        return self.runtime.blobs.exists(PACKAGES, blob_of(version.digest))


def request(package: str) -> Request:
    return parse_request({**DOCUMENT, "reduction": {"package": package}})


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_name_means_the_version_pushed_last(shelf: Shelf) -> None:
    one = shelf.push()
    two = shelf.push(version="0.9", program="echo two")
    assert shelf.find(ADA, "own") == f"{ADA}/own@0.9 {two.digest}"
    assert shelf.find(ADA, "own@1") == f"{ADA}/own@1 {one.digest}"
    assert shelf.find(ADA, f"{ADA}/own@{one.digest}") == f"{ADA}/own@1 {one.digest}"
    with pytest.raises(PackageError, match="no package 'own@3'"):
        shelf.find(ADA, "own@3")


def test_a_version_never_changes_and_pushing_it_again_is_success(shelf: Shelf) -> None:
    first = shelf.push()
    assert shelf.push() == first
    with pytest.raises(UploadConflictError, match="Raise `version`"):
        shelf.push(program="echo other")
    assert len(PACKAGE_UPLOADS.table(shelf.runtime).versions(first.package)) == 1
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 1, (
        "what was refused is deleted"
    )
    assert [*shelf.runtime.blobs.names(PACKAGES)] == [blob_of(first.digest)]


def test_versions_and_packages_are_bounded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_operations, "MOST_VERSIONS", 2)
    monkeypatch.setattr(upload_operations, "MOST_OWNED", 2)
    shelf.push(version="1")
    shelf.push(version="2")
    with pytest.raises(UploadConflictError, match="has 2 versions"):
        shelf.push(version="3")
    shelf.push(name="another")
    with pytest.raises(UploadConflictError, match="You have 2 packages"):
        shelf.push(name="third")
    shelf.push(owner=BEN, name="third")


def test_a_deprecated_version_is_run_by_those_who_name_it(shelf: Shelf) -> None:
    one, two = shelf.push(version="1"), shelf.push(version="2", program="echo two")
    upload_operations.deprecate(
        PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), "2", "it is wrong"
    )
    assert shelf.find(ADA, "own").endswith(one.digest)
    assert shelf.find(ADA, "own@2").endswith(two.digest)
    upload_operations.deprecate(
        PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(one), "1", "so is it"
    )
    with pytest.raises(PackageError, match="all versions of own are deprecated"):
        shelf.find(ADA, "own")
    upload_operations.deprecate(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), "2", "")
    assert shelf.find(ADA, "own").endswith(two.digest)
    with pytest.raises(NoSuchUploadError):
        upload_operations.deprecate(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), "3", "x")


def test_ones_own_package_hides_a_shipped_one_which_keeps_its_full_name(shelf: Shelf) -> None:
    mine = shelf.push(name="mean", version="9")
    assert shelf.find(ADA, "mean") == f"{ADA}/mean@9 {mine.digest}"
    assert shelf.find(ADA, "swathmill/mean").startswith("swathmill/mean@2")
    assert shelf.find(BEN, "mean").startswith("swathmill/mean@2")
    assert shelf.pinned(ADA, "mean") == f"{ADA}/mean@{mine.digest}"
    assert shelf.pinned(BEN, "mean") == "mean"


def test_a_pinned_request_names_one_content_that_planning_finds(shelf: Shelf) -> None:
    one = shelf.push()
    exact = shelf.pinned(ADA, "own")
    assert exact == f"{ADA}/own@{one.digest}"
    shelf.push(version="2", program="echo two")
    packages = ExactPackages(shelf.runtime, Packages.of(Settings()))
    assert packages.find(exact).digest == one.digest
    assert packages.find("mean").owner == "swathmill"
    shelf.runtime.blobs.delete(PACKAGES, blob_of(one.digest))
    with pytest.raises(PackageError, match="storage has lost"):
        packages.find(exact)
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(one), "1")
    with pytest.raises(PackageError, match="was deleted"):
        packages.find(exact)


@pytest.mark.parametrize(
    "reference", ["{owner}/own", "{owner}/own@1", "{owner}/own@{digest}", "own@{digest}"]
)
def test_a_request_for_what_its_owner_may_not_run_is_refused_at_planning(
    shelf: Shelf, reference: str
) -> None:
    mine = shelf.push()
    text = reference.format(owner=ADA, digest=mine.digest)
    with pytest.raises(RequestRefusedError, match="no package"):
        shelf.pinned(BEN, text)
    upload_operations.share(
        PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(mine), Visibility.EVERYONE
    )
    if reference.startswith("{owner}"):
        assert shelf.pinned(BEN, text) == f"{ADA}/own@{mine.digest}"


def test_a_link_opens_until_it_is_renewed_or_withdrawn(shelf: Shelf) -> None:
    mine = shelf.push()
    row = upload_operations.share(
        PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(mine), Visibility.LINK
    )
    assert row.secret
    with pytest.raises(PackageError):
        shelf.find(BEN, f"{ADA}/own")
    for wrong in ("", "0" * 32, row.secret[:-1], row.secret + "0", "é"):
        with pytest.raises(NoSuchUploadError):
            upload_operations.open_link(PACKAGE_UPLOADS.table(shelf.runtime), BEN, row.id, wrong)
    upload_operations.open_link(PACKAGE_UPLOADS.table(shelf.runtime), BEN, row.id, row.secret)
    assert shelf.find(BEN, f"{ADA}/own").endswith(mine.digest)
    assert [
        r.name for r in upload_operations.visible(PACKAGE_UPLOADS.table(shelf.runtime), BEN)
    ] == ["own"]
    again = upload_operations.share(PACKAGE_UPLOADS.table(shelf.runtime), row, Visibility.LINK)
    assert again.secret == row.secret
    renewed = upload_operations.share(
        PACKAGE_UPLOADS.table(shelf.runtime), row, Visibility.LINK, renew=True
    )
    with pytest.raises(PackageError):
        shelf.find(BEN, f"{ADA}/own")
    upload_operations.open_link(PACKAGE_UPLOADS.table(shelf.runtime), BEN, row.id, renewed.secret)
    upload_operations.share(PACKAGE_UPLOADS.table(shelf.runtime), row, Visibility.PRIVATE)
    with pytest.raises(PackageError):
        shelf.find(BEN, f"{ADA}/own")
    with pytest.raises(NoSuchUploadError):
        upload_operations.open_link(PACKAGE_UPLOADS.table(shelf.runtime), BEN, row.id, "")
    relinked = upload_operations.share(PACKAGE_UPLOADS.table(shelf.runtime), row, Visibility.LINK)
    assert relinked.secret not in (row.secret, renewed.secret)


def test_an_archive_goes_when_no_version_and_no_live_request_names_it(shelf: Shelf) -> None:
    mine, same = shelf.push(), shelf.push(owner=BEN)
    assert mine.digest == same.digest
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(mine))
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 0
    assert shelf.there(same)
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(same))
    name = request_operations.submit(shelf.runtime, BEN, request("own"))
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 0, (
        "a request may be about to name it"
    )

    steps = f"{BEN}/own@1 {same.digest}, {BEN}/other@1 {'0' * 64}"
    live: dict[str, Any] = {"state": RequestState.RUNNING, "package": steps}
    request_operations.change_request(shelf.runtime, name, lambda row: replace(row, **live))
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 0, "a live request names it"
    over: dict[str, Any] = {"state": RequestState.COMPLETE}
    request_operations.change_request(shelf.runtime, name, lambda row: replace(row, **over))
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 1
    assert not shelf.there(same)
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 0


def test_an_archive_that_is_pushed_again_stays(shelf: Shelf) -> None:
    mine = shelf.push()
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(mine))
    again = shelf.push()
    assert PACKAGE_UPLOADS.table(shelf.runtime).unnamed(again.digest) is None
    assert upload_operations.collect(shelf.runtime, PACKAGE_UPLOADS) == 0
    assert shelf.there(again)


def test_an_archive_that_a_version_names_stays_and_can_be_pushed(shelf: Shelf) -> None:
    """The version came while unnamed archives were looked for."""
    mine, same = shelf.push(), shelf.push(owner=BEN)
    table = PACKAGE_UPLOADS.table(shelf.runtime)
    upload_operations.delete(table, shelf.row(mine))
    (note,) = table.all_unnamed()
    assert not upload_operations.remove_unnamed(table, note, lambda: pytest.fail("removed"))
    assert table.all_unnamed() == []
    assert shelf.push().digest == same.digest


def test_no_archive_is_stored_while_one_of_the_same_content_is_deleted(shelf: Shelf) -> None:
    mine = shelf.push()
    table = PACKAGE_UPLOADS.table(shelf.runtime)
    upload_operations.delete(table, shelf.row(mine))
    (note,) = table.all_unnamed()

    def remove() -> None:
        shelf.runtime.blobs.delete(PACKAGES, blob_of(mine.digest))
        with pytest.raises(StoreError, match="is being deleted"):
            shelf.push()
        assert not shelf.there(mine)

    assert upload_operations.remove_unnamed(table, note, remove)
    assert shelf.there(shelf.push())


def test_deleting_a_version_twice_because_an_answer_got_lost_is_success(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = shelf.push(version="1"), shelf.push(version="2", program="echo two")
    transact = shelf.runtime.store.transact

    def lost(*given: Any) -> tuple[str, ...]:
        monkeypatch.undo()
        transact(*given)
        raise StoreError("no answer")

    monkeypatch.setattr(shelf.runtime.store, "transact", lost)
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), "2")
    assert shelf.find(ADA, "own").endswith(one.digest)


def test_deleting_a_version_leaves_the_others(shelf: Shelf) -> None:
    one, two = shelf.push(version="1"), shelf.push(version="2", program="echo two")
    upload_operations.share(
        PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), Visibility.EVERYONE
    )
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(two), "2")
    assert shelf.find(BEN, f"{ADA}/own").endswith(one.digest)
    with pytest.raises(NoSuchUploadError):
        upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(one), "2")
    upload_operations.delete(PACKAGE_UPLOADS.table(shelf.runtime), shelf.row(one), "1")
    assert PACKAGE_UPLOADS.table(shelf.runtime).upload(one.package) is None
    assert PACKAGE_UPLOADS.table(shelf.runtime).for_everyone() == []
    assert PACKAGE_UPLOADS.table(shelf.runtime).owned(ADA) == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("mean", ("", "mean", "", "")),
        ("mean@2", ("", "mean", "2", "")),
        ("ada@example.org/own", ("ada@example.org", "own", "", "")),
        ("a/b c@d/own@1.2+x", ("a/b c@d", "own", "1.2+x", "")),
        ("own@" + "a" * 64, ("", "own", "", "a" * 64)),
    ],
)
def test_references_are_read_and_written(text: str, parts: tuple[str, str, str, str]) -> None:
    found = PackageReference.parse(text)
    assert (found.owner, found.name, found.version, found.digest) == parts
    assert str(found) == text


@pytest.mark.parametrize("text", ["", "Own", "a/", "/own", "own@", "own@a b", "own\n", "x/../own@"])
def test_other_texts_name_no_package(text: str) -> None:
    with pytest.raises(ValueError, match="names no package"):
        PackageReference.parse(text)
