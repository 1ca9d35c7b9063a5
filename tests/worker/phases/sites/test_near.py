"""Dates read at sites where their granules lie: the rows of collected ones, and what is lacking."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from archives.kinds.folder import FolderArchive
from archives.sources import Sources
from reprojection.errors import UnknownLayerError, UnreadableGranuleError
from reprojection.read.completeness import Missing
from reprojection.read.granule import open_granule
from reprojection.read.outline import read_outlines
from reprojection.warp.sites import read_sites
from service_manager.events.causes import found_later
from service_manager.planner import parts as choice
from service_manager.planner.plan_stream import PlanStream
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, Phase, TaskOutcome
from tasks.bag.site_specs import ExtractNearSpec, ExtractSpec, SitesSpec, TableSpec
from tasks.bag.task_rows import Interest
from tasks.packages.packages import Packages
from tasks.request.document import parse_request
from tasks.requests.plan import Plan
from tests.service_manager.shelf import specs
from tests.worker.mill import Mill
from worker.phases.sites import near
from worker.sandbox.messages import Failed

REQUEST: dict[str, Any] = {
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "FparLai_QC"]}],
    "region": {"sites": "id,latitude,longitude\nMoor,57.1,-3.5\nDunes,51.8,4.7\n"},
    "time": {"start": "2012-04-06", "end": "2012-04-30"},
}


@pytest.fixture
def archive(sample_archive: Path, tmp_path: Path) -> Path:
    """Two tiles of three composites."""
    folder = tmp_path / "archive"
    folder.mkdir()
    for day in ("097", "105", "113"):
        for path in sample_archive.rglob(f"MCD15A2.A2012{day}.h1[78]v03.*.hdf"):
            shutil.copy2(path, folder)
    assert len([*folder.iterdir()]) == 6
    return folder


def planned(mill: Mill, **more: Any) -> Plan:
    request = parse_request({**REQUEST, **more})
    source: Any = Sources(
        [FolderArchive(mill.archive, mill.folder / "index.sqlite", read_outlines)]
    )
    course = PlanStream(request, source, Packages.of(mill.settings), mill.settings, lambda _: False)
    tasks = {task.key: task for stretch in course.stretches() for task in stretch.tasks()}
    return Plan(tasks=tuple(tasks.values()), gaps=tuple(course.gaps()), notes=course.notes)


def made(mill: Mill, found: Plan) -> tuple[ArtifactFile, ...]:
    """Make all of a plan; the files of its table."""
    files: tuple[ArtifactFile, ...] = ()
    for task in found:
        files = mill.make(task.spec)
    assert isinstance(task.spec, TableSpec)
    return files


def extraction(mill: Mill) -> ExtractNearSpec:
    """Plan, and make the list of the sites; the extraction of the first two composites."""
    found = planned(mill)
    mill.make(specs(found, SitesSpec)[0])
    first: ExtractNearSpec = specs(found, ExtractNearSpec)[0]
    return first


def read(mill: Mill, files: tuple[ArtifactFile, ...]) -> list[dict[str, Any]]:
    (file,) = (one for one in files if one.name.endswith(".parquet"))
    content = mill.fetch(file).read_bytes()
    rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
    return rows


def test_the_table_has_the_bytes_of_that_of_collected_granules(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill, other = Mill(tmp_path / "near", archive), Mill(tmp_path / "collected", archive)
    found = planned(mill)
    assert [len(one.dates) for one in specs(found, ExtractNearSpec)] == [2, 1]
    assert {*map(type, (task.spec for task in found))} == {SitesSpec, ExtractNearSpec, TableSpec}
    assert found.notes == ("MCD15A2.005: 6 granules are read where they lie (1.7 MB).",)
    files = made(mill, found)
    monkeypatch.setattr(choice.PartsPlan, "near", lambda *_: False)
    found = planned(other)
    assert len(specs(found, ExtractSpec)) == 3
    assert not specs(found, ExtractNearSpec)
    others = made(other, found)
    assert [mill.fetch(one).read_bytes() for one in files] == [
        other.fetch(one).read_bytes() for one in others
    ]
    assert [one.completeness for one in files] == [one.completeness for one in others]
    assert len(read(mill, files)) == 12


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3000])


def bent(path: Path) -> None:
    """Another byte within the values, which only reading them tells."""
    whole = path.read_bytes()
    for place in range(50_000, len(whole), 997):  # beyond the structure, which is told at once
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with open_granule(path) as granule:
            try:
                granule.read(granule.layers["Lai_1km"])
            except UnreadableGranuleError:
                return
    raise AssertionError("no byte of the values was found")


def a_page(path: Path) -> None:
    path.write_text("<html>please sign in</html>")


def gone(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    """Of the same size; it was listed before."""
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("after_crash", [False, True])
@pytest.mark.parametrize(
    ("spoil", "listed_after", "why"),
    [
        (truncated, True, Category.BAD_IMAGE_FORMAT),
        (bent, True, Category.UNREADABLE_INPUT_FILE),
        (a_page, True, Category.BAD_IMAGE_FORMAT),
        (gone, False, Category.SOURCE_NOT_PUBLISHED),
        (replaced, False, Category.SOURCE_NOT_PUBLISHED),
    ],
)
def test_a_granule_that_cannot_be_read_costs_none_of_the_others_and_is_told(
    archive: Path,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    listed_after: bool,
    why: Category,
    after_crash: bool,
) -> None:
    mill = Mill(tmp_path, archive)
    (path,) = archive.glob("MCD15A2.A2012105.h17v03.*")
    whole = extraction(mill)
    if listed_after:
        spoil(path)
        spec = next(one for one in specs(planned(mill), ExtractNearSpec) if one.stamps[0] != "")
        assert spec.key != whole.key  # nobody takes the one for the other
    else:
        spec = whole
        spoil(path)
    said = mill.attempt(spec, after_crash=after_crash)
    assert not isinstance(said, Failed), said
    (file,) = said.files
    assert file.completeness.missing == (Missing(what=path.name, why=why.value),)
    assert file.completeness.share == 0.75
    held = {(row["date"].isoformat(), row["n"]) for row in read(mill, said.files)}
    assert held == {("2012-04-06", 0), ("2012-04-06", 1), ("2012-04-14", 1)}
    interest = Interest(
        request="r",
        key=spec.key,
        phase=Phase.REPROJECTION,
        name="",
        output="sites",
        outcome=TaskOutcome.DONE,
        files=said.files,
    )
    (gap,) = found_later([interest])  # the request says that it has gaps, and which
    assert gap.what == path.name
    assert gap.reason.startswith(why.value)


def test_a_good_file_in_the_place_of_a_damaged_one_is_read(archive: Path, tmp_path: Path) -> None:
    mill = Mill(tmp_path, archive)
    (path,) = archive.glob("MCD15A2.A2012105.h17v03.*")
    good = path.read_bytes()
    bent(path)
    lacking = extraction(mill)
    assert mill.make(lacking)[0].completeness.share < 1.0
    path.write_bytes(good)
    (again, _) = specs(planned(mill), ExtractNearSpec)
    assert again.key != lacking.key
    assert mill.make(again)[0].completeness.share == 1.0


def test_where_no_granule_can_be_read_there_is_no_table(archive: Path, tmp_path: Path) -> None:
    mill = Mill(tmp_path, archive)
    spec = extraction(mill)
    for path in archive.iterdir():
        path.unlink()
    said = mill.attempt(spec)
    assert isinstance(said, Failed)
    assert said.category is Category.SOURCE_NOT_PUBLISHED
    assert "MCD15A2.A2012097.h17v03" in said.message


def test_a_date_that_is_refused_costs_none_of_the_others(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill = Mill(tmp_path, archive)
    spec = extraction(mill)
    sites = read_sites
    refusing = {"A2012105"}

    def refused(paths: Any, *given: Any, **more: Any) -> Any:
        if any(day in str(paths) for day in refusing):
            raise UnknownLayerError("Lai_1km", ())
        return sites(paths, *given, **more)

    monkeypatch.setattr(near, "read_sites", refused)
    (file,) = mill.make(spec)
    assert [one.what.split(".")[1] for one in file.completeness.missing] == ["A2012105"] * 2
    assert {row["date"].isoformat() for row in read(mill, (file,))} == {"2012-04-06"}
    refusing.add("A2012097")
    said = Mill(tmp_path / "other", archive)
    said.make(specs(planned(said), SitesSpec)[0])
    failed = said.attempt(spec)
    assert isinstance(failed, Failed)
    assert failed.category is Category.CHOICE_REFUSED


def test_a_file_that_is_there_and_cannot_be_read_now_is_no_gap(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again: the disk may answer then."""
    mill = Mill(tmp_path, archive)
    spec = extraction(mill)

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FolderArchive, "fetch", fails)
    assert isinstance(mill.attempt(spec), Failed)
