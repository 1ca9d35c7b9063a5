"""From granules to the table of sites: the phases that a worker runs."""

import io
from datetime import date, timedelta
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet

from tasks.model.spec import ExtractSpec, Input, SitesSpec, TableSpec
from tasks.request.sites import COLUMNS, parse_sites, sites_text
from tests.worker.mill import Mill, leaf_area

SITES = parse_sites(
    "id,latitude,longitude,cover\nMoor,56.6,-6.7,shrubs\nBeech,51.5,-2.2,forest\nFar,-30,100,\n"
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
    assert {*files} == {
        *("sites.csv", "sites.parquet", "MCD15A2.5.Lai_1km.png", "MCD15A2.5.FparLai_QC.png"),
    }
    rows = pyarrow.parquet.read_table(io.BytesIO(files["sites.parquet"]))
    assert rows.column_names == [*COLUMNS, "cover"]
    # Two sites, two layers, two dates; no granule saw the third site.
    assert rows["site"].to_pylist() == ["Moor"] * 4 + ["Beech"] * 4
    assert rows["cover"].to_pylist() == ["shrubs"] * 4 + ["forest"] * 4
    first = rows.slice(2, 1).to_pylist()[0]
    assert (first["layer"], first["date"]) == ("Lai_1km", day_of(105))
    assert (round(first["value"], 6), first["valid"], first["quality"]) == (3.1, 9, 0)
    classes = [r for r in rows.to_pylist() if r["layer"] == "FparLai_QC"]
    assert {(r["mean"], r["std"]) for r in classes} == {(None, None)}
    table = pyarrow.csv.read_csv(io.BytesIO(files["sites.csv"]))
    assert table.num_rows == 8
