"""Figures of the study: the source's points beside ours, failures seen, nothing cut off."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.platform.clients import Call
from bench.platform.figures import _LETTERS, by_clients, committed
from bench.platform.published import SHAPES
from bench.platform.rates import Point, rate
from bench.platform.report import draw

THEN = "Windows Azure 2010/2011"
HOLLOW = "<!-- hollow: some calls failed -->"
KB, MB, GB = 1000, 10**6, 10**9


def point(experiment: str, operation: str, size: int = 1024, clients: int = 2) -> Point:
    """Two calls of each client, of a second each."""
    calls = tuple(
        Call(client=client, began=float(n), ended=n + 1.0, size=size)
        for client in range(clients)
        for n in range(2)
    )
    return Point(
        experiment=experiment, operation=operation, size=size, clients=clients, calls=calls
    )


def with_a_failure(one: Point) -> Point:
    return replace(one, calls=(replace(one.calls[0], failure="server busy"), *one.calls[1:]))


def drawn(folder: Path, *points: Point) -> str:
    """Draw all figures of an experiment; return their texts, which SVG has as comments."""
    folder.mkdir(exist_ok=True)
    files = draw(folder, points, [rate(one) for one in points])
    return "\n".join(path.read_text("utf-8") for path in files)


PUBLISHED = [
    (point("blobs", "download"), point("blobs", "upload")),
    (point("tables", "update shared"), point("tables", "delete")),
    (point("queue", "add", 512), point("queue", "peek", 512), point("queue", "receive", 512)),
    (point("partition", "filter of 4,400 rows", clients=32),),
    (point("lengths", "add at 2,000", 512), point("lengths", "add at 200", 512)),
    (point("sizes", "upload, azure", 2 * KB), point("sizes", "upload, azure", GB)),
    (point("nodes", "download", MB, 1), point("nodes", "download", MB, 20)),
    (point("tcp", "round trip", 1, 1), point("tcp", "transfer", MB, 1)),
    (point("instances", "run, worker", 0), point("instances", "add, worker", 0)),
]


@pytest.mark.parametrize("points", PUBLISHED, ids=lambda some: some[0].experiment)
def test_what_was_published_stands_beside_ours(points: tuple[Point, ...], tmp_path: Path) -> None:
    """As a point with its name or in the axis' label, besides the sentence below."""
    said = re.findall(r"<!-- (.*?) -->", drawn(tmp_path, *points), re.DOTALL)
    assert [one for one in said if THEN in one and not one.startswith(f"{THEN}: ")]


@pytest.mark.parametrize(
    "points", PUBLISHED[:3] + PUBLISHED[4:5], ids=lambda some: some[0].experiment
)
def test_a_point_of_which_calls_failed_is_hollow(points: tuple[Point, ...], tmp_path: Path) -> None:
    assert HOLLOW not in drawn(tmp_path / "good", *points)
    assert HOLLOW in drawn(tmp_path / "bad", with_a_failure(points[0]), *points[1:])


def test_files_of_which_some_failed_are_counted(tmp_path: Path) -> None:
    points = (point("sizes", "upload, azure", 2 * KB), point("sizes", "upload, azure", MB))
    assert "4 files of each size, none failed" in drawn(tmp_path / "good", *points)
    assert "4 files of each size, 1 failed" in drawn(
        tmp_path / "bad", points[0], with_a_failure(points[1])
    )
    assert "<!-- 2 kB -->" in drawn(tmp_path / "sizes", *points)


def test_a_size_has_one_colour_in_all_operations(tmp_path: Path) -> None:
    """Also where an operation lacks a size, and where calls failed."""
    some = [
        point("tables", "delete", 4096),
        with_a_failure(point("tables", "insert", 1024)),
        point("tables", "insert", 4096),
    ]
    text = by_clients(tmp_path / "tables.svg", [rate(one) for one in some]).read_text()
    legend = text[text.index('<g id="legend_1">') :]
    assert [*colours(legend)] == ["#ff7f0e", "#1f77b4"]  # of 4 KiB, and of what failed with 1 KiB
    assert legend.count("<!-- 4 KiB -->") == legend.count("<!-- 1 KiB -->") == 1


def colours(text: str) -> Iterable[str]:
    """Return the colours of lines, each where it is first."""
    return dict.fromkeys(re.findall(r"stroke: (#(?!000|ccc|fff)\w{6})", text))


def test_a_sentence_below_is_as_wide_as_its_figure(tmp_path: Path) -> None:
    text = drawn(tmp_path, point("tables", "delete"))
    words = f"{THEN}: {SHAPES['tables']}."
    width = float(re.findall(r'width="([\d.]+)pt"', text)[0]) / 72
    lines = [one for one in re.findall(r"<!-- (.*?) -->", text) if len(one) > 10 and one in words]
    assert " ".join(lines) == words
    assert max(map(len, lines)) <= _LETTERS * width < len(words)


def test_an_axis_is_written_in_numbers(tmp_path: Path) -> None:
    """Rates that are close have an axis of a decade, with more than one number."""
    points = [rate(point("blobs", "download", MB, clients)) for clients in (1, 2)]
    text = by_clients(tmp_path / "blobs.svg", points).read_text()
    assert "\\mathdefault" not in text
    assert {"1", "2", "5"} <= set(re.findall(r"<!-- ([\d.]+) -->", text))


def test_databases_that_commit_alike_are_all_seen(tmp_path: Path) -> None:
    """Marks of one place have different sizes."""
    some = [rate(point("sql", kind, 0)) for kind in ("mssql", "postgresql", "sqlite")]
    text = committed(tmp_path / "sql.svg", some).read_text()
    share = text[text.index('<g id="axes_1">') : text.index('<g id="axes_2">')]
    assert len(set(re.findall(r'<path id="\w+" d="M 0 ([\d.]+)', share)) - {"0"}) == 3
