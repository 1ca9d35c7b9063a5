"""Lineages of rasters that are made of rasters: nothing is lost, and nothing is said twice."""

from collections.abc import Iterator

from modis.composites import Counted
from reprojection.read.completeness import Completeness, Missing
from reprojection.read.description import (
    Band,
    Description,
    GridDescription,
    Provenance,
    SourceGranule,
)
from reprojection.read.lineage import (
    CellRecord,
    InputRecord,
    LayerRecord,
    Lineage,
    RunRecord,
    StepRecord,
)
from reprojection.write.joined_lineage import LineageJoiner, Taken

EMPTY = Provenance(product="", collection="", layer="", granules=())
LACKS = Completeness(share=0.5, missing=(Missing(what="a tile", why="it is away"),))

HALF = Counted(4, 0.5, 4.0)


def granule(day: int, tile: str, layer: str = "L") -> SourceGranule:
    name = f"{layer}.A2012{day:03d}.{tile}.hdf"
    return SourceGranule(
        name=name, produced="2013", sha256=f"{hash((day, tile, layer)):064x}"[-64:]
    )


def grid(column: int) -> GridDescription:
    return GridDescription(
        crs="EPSG:4326", transform=(1.0, 0.0, 10.0 * column, 0.0, -1.0, 0.0), width=10, height=10
    )


def said(provenance: Provenance, column: int) -> Description:
    return Description(
        kind="continuous",
        units="K",
        scale=1.0,
        offset=0.0,
        bands=(Band(name="b"),),
        codes={},
        colours={},
        provenance=provenance,
        grid=grid(column),
    )


def cell(day: int, column: int, tiles: str, layer: str = "L") -> Description:
    """A cell of a layer, as reprojection describes it."""
    made = tuple(granule(day, tile, layer) for tile in tiles)
    own = Provenance(
        product="P",
        collection="6",
        layer=layer,
        granules=made,
        start=f"2012-{day:03d}",
        end=f"2012-{day:03d}x",
        parameters=(("resampling", "nearest"), ("qa", "best")),
    )
    where = grid(column)
    lineage = Lineage(
        cells=(CellRecord(transform=where.transform, width=10, height=10),),
        layers=(said(own, column).layer_record(),),
        inputs=(
            InputRecord(
                layer=0,
                date=f"{day}",
                start=own.start,
                end=own.end,
                pieces=((0, tuple(range(1, len(made) + 1))),),
                lacking=((0, LACKS),) if tiles == "a" else (),
            ),
        ),
    )
    return said(Provenance(**{**vars(own), "lineage": lineage}), column)


def run(window: str, column: int, taken: list[tuple[Description, str, str]]) -> Description:
    """Run a step over rasters, each with the step that made it and its window."""
    joiner, bands = LineageJoiner(), []
    granules: set[SourceGranule] = set()
    for number, (one, of, made_in) in enumerate(taken):
        counted = HALF if number == 0 else Counted()
        found = joiner.take(
            Taken(
                said=one,
                layer="out" if made_in else one.provenance.layer,
                product=of,
                collection="",
                date=one.provenance.start,
                time="",
                use="same-day",
                counted=counted,
                cell=f"c{column}",
                window=made_in,
            )
        )
        assert found is not None
        bands.append((*found, counted))
        granules.update(one.provenance.granules)
    where = grid(column)
    record = CellRecord(name=f"c{column}", transform=where.transform, width=10, height=10)
    joiner.run(window, record, bands, Completeness(), "")
    ordered = tuple(sorted(granules, key=lambda one: one.name))
    group = joiner.finish(Provenance(product="", collection="", layer="", granules=ordered))
    assert group.lineage is not None
    steps = (*group.lineage.steps, StepRecord(package="mean", version="1", sha256="5"))
    after = LineageJoiner()
    after.add(group, group.lineage.model_copy(update={"steps": steps}))
    own = Provenance(product="P", collection="6", layer="out", granules=ordered, start=window)
    return said(after.finish(own), column)


def mosaic(parts: list[Description]) -> Provenance:
    joiner = LineageJoiner()
    granules: set[SourceGranule] = set()
    for part in parts:
        assert part.provenance.lineage is not None
        joiner.add(part.provenance, part.provenance.lineage)
        granules.update(part.provenance.granules)
    ordered = tuple(sorted(granules, key=lambda one: one.name))
    return joiner.finish(
        Provenance(product="P", collection="6", layer="out", granules=ordered), joined=True
    )


def read(said: Provenance) -> Iterator[tuple[str, str, str, str, tuple[str, ...], float]]:
    """Read all runs out of a lineage: step, window, cell, and what each band is of and worth."""
    lineage = said.lineage
    assert lineage is not None
    for window in lineage.windows:
        for one in window.runs:
            for number, of in one.inputs():
                given = lineage.inputs[number]
                names = tuple(said.files[file - 1].name for file in given.files(of))
                label = lineage.layers[given.layer].layer
                before = "" if given.window is None else lineage.windows[given.window].window
                yield (
                    lineage.steps[window.step].name,
                    window.window,
                    lineage.cells[one.cell].name,
                    f"{label} {given.date} {before}",
                    names,
                    window.counted(number).weight,
                )


def chain(column: int, tiles: str) -> Description:
    """A mean of months of days of two layers in a cell."""
    months = [
        run(
            f"m{month}",
            column,
            [
                (cell(day, column, tiles, label), "P", "")
                for label in "LM"
                for day in (month, month + 1)
            ],
        )
        for month in (1, 5)
    ]
    return run(
        "y",
        column,
        [(one, "monthly", f"m{n}") for n, one in zip((1, 5), months, strict=True)],
    )


def test_a_mosaic_of_a_chain_says_all_runs_of_all_cells_down_to_the_granules() -> None:
    parts = [chain(0, "a"), chain(1, "ab"), chain(2, "b")]
    whole = mosaic(parts)
    expected = sorted(row for part in parts for row in read(part.provenance))
    assert sorted(read(whole)) == expected
    assert len(expected) == 3 * (2 * 4 + 2)
    lineage = whole.lineage
    assert lineage is not None
    assert lineage.windows[-1].window == "y"
    assert [len(lineage.cells), len(lineage.layers), len(lineage.steps)] == [3, 3, 2]
    assert len(whole.files) == len(set(whole.files)) == 2 * 4 * 2
    assert all(one.sha256 for one in whole.files)
    # Cells of tile "a" alone lack half.
    first = lineage.inputs[0]
    assert [first.completeness(number).share for number, _ in first.pieces] == [0.5, 1.0, 1.0]


def test_windows_come_after_those_whose_outputs_they_take() -> None:
    uneven = run("y", 3, [(run("m9", 3, [(cell(9, 3, "a"), "P", "")]), "monthly", "m9")])
    lineage = mosaic([chain(0, "a"), uneven]).lineage
    assert lineage is not None
    assert lineage.windows[-1].window == "y"
    for number, window in enumerate(lineage.windows):
        for one in window.runs:
            for given, _ in one.inputs():
                made = lineage.inputs[given].window
                assert made is None or made < number


def test_two_steps_of_one_package_stay_two() -> None:
    both = [
        (run("w", 0, [(cell(1, 0, "a", "L"), "P", "")]), "a", "w"),
        (run("w", 0, [(cell(1, 0, "a", "M"), "P", "")]), "b", "w"),
    ]
    found = {row[0]: row[3] for row in read(run("w", 0, both).provenance) if row[0]}
    assert found == {"a": "L 2012-001 ", "b": "M 2012-001 "}


def test_a_raster_without_lineage_gives_none() -> None:
    bare = said(EMPTY, 0)
    taken = Taken(
        said=bare,
        layer="L",
        product="P",
        collection="",
        date="1",
        time="",
        use="",
        counted=Counted(),
        cell="c",
        window="",
    )
    assert LineageJoiner().take(taken) is None


def test_a_mean_of_three_years_over_many_tiles_is_of_a_reasonable_size() -> None:
    """Granules are said once: the rest is a fifth. 138 dates of 20 tiles in 16 cells."""
    tiles = "abcdefghijklmnopqrst"
    parts = []
    for column in range(16):
        mine = tiles[column : column + 4]
        days = [(cell(day, column, mine), "P", "") for day in range(1, 139)]
        parts.append(run("2010/2012", column, days))
    whole = mosaic(parts)
    assert whole.lineage is not None
    granules = len(whole.files)
    assert granules == 138 * 19
    assert len(whole.lineage.model_dump_json()) < 60 * granules
    (window,) = whole.lineage.windows
    assert {one.bands for one in window.runs} == {((n, ((0, 137),)),) for n in range(16)}


def test_layers_with_other_options_are_two() -> None:
    one, other = cell(1, 0, "a"), cell(1, 0, "a")
    assert other.provenance.lineage is not None
    (layer,) = other.provenance.lineage.layers
    changed: LayerRecord = layer.model_copy(update={"parameters": (("resampling", "cubic"),)})
    lineage = other.provenance.lineage.model_copy(update={"layers": (changed,)})
    joiner = LineageJoiner()
    assert one.provenance.lineage is not None
    joiner.add(one.provenance, one.provenance.lineage)
    joiner.add(other.provenance, lineage)
    found = joiner.finish(one.provenance).lineage
    assert found is not None
    assert len(found.layers) == len(found.inputs) == 2


def test_spans_keep_the_order_of_inputs() -> None:
    assert RunRecord(cell=0, bands=((0, ((2, 3), (0, 1))),)).inputs() == (
        (2, 0),
        (3, 0),
        (0, 0),
        (1, 0),
    )


def test_a_run_keeps_weights_names_and_the_order_of_its_bands() -> None:
    """Through joining too: the own cell, a neighbour, and then the own cell again."""
    joiner = LineageJoiner()
    taken = [
        Taken(
            said=cell(day, column, "a"),
            product="P",
            collection="006",
            layer="L",
            date=str(day),
            time="",
            use="static",
            counted=counted,
            cell=f"c{column}",
            window="",
        )
        for day, column, counted in ((1, 0, HALF), (1, 1, HALF), (2, 0, Counted()))
    ]
    found = [joiner.take(one) for one in taken]
    bands = [(*one, given.counted) for one, given in zip(found, taken, strict=True) if one]
    own = CellRecord(name="c0", transform=grid(0).transform, width=10, height=10)
    joiner.run("w", own, bands, LACKS, "")
    granules = tuple(one for given in taken[1:] for one in given.said.provenance.granules)
    group = joiner.finish(Provenance(product="", collection="", layer="", granules=granules))
    for _ in range(2):
        lineage = group.lineage
        assert lineage is not None
        (window,) = lineage.windows
        assert window.counts == ((0, HALF),)
        assert window.runs[0].inputs() == ((0, 0), (0, 1), (1, 0))
        assert window.runs[0].completeness == LACKS
        assert [one.use for one in lineage.inputs] == ["static", "static"]
        assert {one.requested for one in lineage.layers} == {("P", "006", "L")}
        again = LineageJoiner()
        step = StepRecord(package="mean", version="1", sha256="5")
        again.add(group, lineage.model_copy(update={"steps": (step,)}))
        group = again.finish(group)
