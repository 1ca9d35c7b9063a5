"""From granules to the table of sites: the phases that a worker runs."""

import csv
import io
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tasks.bag.site_specs import ExtractSpec, SitesSpec, TableSpec
from tasks.bag.spec import Input
from tasks.request.sites import COLUMNS, parse_sites, sites_text
from tests.worker.mill import Mill, leaf_area
from worker.phases.sites import table as table_phase
from worker.phases.sites import table_csv
from worker.phases.sites.extract import schema

SITES = parse_sites(
    "id,latitude,longitude,cover\nMoor,57.1,-3.5,shrubs\nBeech,51.5,-2.2,forest\nFar,-30,100,\n"
)


def day_of(number: int) -> date:
    return date(2011, 12, 31) + timedelta(days=number)


def extraction(mill: Mill, listed: SitesSpec, day: int) -> ExtractSpec:
    collected = leaf_area(mill.archive, f"{day:03d}")
    mill.make(collected)
    return ExtractSpec(
        inputs=(Input(key=collected.key), Input(key=listed.key, file="sites.json")),
        product="MCD15A2",
        collection="5",
        layers=("Lai_1km", "FparLai_QC"),
        qa=("good", ""),
        mask=True,
        day=day_of(day),
    )


def test_dates_become_one_tidy_table_with_equal_bytes(sample_archive: Path, tmp_path: Path) -> None:
    def made(folder: Path) -> dict[str, bytes]:
        mill = Mill(folder, sample_archive)
        listed = SitesSpec(sites=sites_text(SITES))
        mill.make(listed)
        inputs = []
        for day in (105, 113):
            spec = extraction(mill, listed, day)
            mill.make(spec)
            inputs.append(Input(key=spec.key, file="rows.parquet"))
        table = TableSpec(inputs=(*inputs, Input(key=listed.key, file="sites.json")))
        return {file.name: mill.fetch(file).read_bytes() for file in mill.make(table)}

    files = made(tmp_path / "one")
    assert files == made(tmp_path / "other")
    assert {*files} == {"sites.csv", "sites.parquet"}
    rows = pyarrow.parquet.read_table(io.BytesIO(files["sites.parquet"]))
    assert rows.column_names == [*COLUMNS, "cover"]
    # Two sites, two layers, two dates; no granule saw the third site.
    assert rows["site"].to_pylist() == ["Moor"] * 4 + ["Beech"] * 4
    assert rows["cover"].to_pylist() == ["shrubs"] * 4 + ["forest"] * 4
    first = rows.slice(2, 1).to_pylist()[0]
    assert (first["layer"], first["date"]) == ("Lai_1km", day_of(105))
    assert (round(first["value"], 6), first["valid"], first["quality"]) == (1.5, 9, 0)
    classes = [r for r in rows.to_pylist() if r["layer"] == "FparLai_QC"]
    assert {(r["mean"], r["std"]) for r in classes} == {(None, None)}
    table = pyarrow.csv.read_csv(io.BytesIO(files["sites.csv"]))
    assert table.num_rows == 8


def test_rows_of_the_build_before_are_joined_with_those_of_this_one(tmp_path: Path) -> None:
    """Requests go on after an upgrade: their extractions had no column `last`."""
    texts = {name: ["x"] for name, kind in _kinds() if kind == "text"}
    columns: dict[str, Any] = {name: texts.get(name, [None]) for name, _ in _kinds()}
    rows = pa.table(columns | {"n": [0], "last": [day_of(112)]}).cast(schema())
    earlier, now = tmp_path / "earlier", tmp_path / "now"
    pyarrow.parquet.write_table(rows.drop_columns("last"), earlier)
    pyarrow.parquet.write_table(rows, now)
    joined = table_phase.joined([earlier, now], parse_sites("id,latitude,longitude\ns,50,0\n"))
    assert joined["last"].to_pylist() == [None, day_of(112)]


def _kinds() -> list[tuple[str, str]]:
    return [(one.name, "text" if pa.types.is_dictionary(one.type) else "") for one in schema()]


def test_a_table_written_some_rows_at_a_time_is_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array(["a,b", 'say "c"', None, "", "d", "a,b", "e"])
    rows = pa.table({"text": texts.dictionary_encode(), "value": [1.5, None, 2, 3, 4, 5, 6]})
    monkeypatch.setattr(table_csv, "_ROWS_AT_ONCE", 3)
    for number, some in enumerate((rows, rows.slice(0, 0))):
        table_csv.write_csv(some, tmp_path / f"{number}.csv")
        pyarrow.csv.write_csv(table_csv.as_texts(some), tmp_path / "whole.csv")
        assert (tmp_path / f"{number}.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_no_text_of_a_table_runs_in_a_spreadsheet(tmp_path: Path) -> None:
    """A site's name and its columns come from a request; Parquet has them as they are."""
    site = pa.array(["=HYPERLINK(1)", "plain", "-2.5", None])
    rows = pa.table({"site": site.dictionary_encode(), "=1+1": site, "value": [-1.5, 2, 3, 4]})
    table_csv.write_csv(rows, tmp_path / "sites.csv")
    with (tmp_path / "sites.csv").open(newline="") as file:
        head, first, *_, number, _ = csv.reader(file)
    assert head == ["site", "'=1+1", "value"]
    assert first == ["'=HYPERLINK(1)", "'=HYPERLINK(1)", "-1.5"]
    assert number == ["-2.5", "-2.5", "3"]
