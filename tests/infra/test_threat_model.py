"""The threat model names every place that parses files, and every requirement of ASVS level 2."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/threat-model.md").read_text("utf-8")
_TOPS = (
    *("portal", "service_manager", "worker", "tasks", "reprojection", "archives"),
    *("swathmill", "modis", "processes"),
)
_LEFT_OUT = ("reprojection/sample/", "worker/packages/", "swathmill/skeletons/")
_PARSERS = {
    *("h5py.File", "SD", "rasterio.open", "netCDF4.Dataset", "Dataset"),
    *("open_hdf5", "open_granule", "read_region", "read_apart", "features_apart"),
    *("tarfile.open", "zipfile.ZipFile", "ZipFile", "sqlite3.connect"),
    *("ET.fromstring", "ET.parse", "ElementTree.fromstring", "ElementTree.parse"),
    *("shapefile.Reader", "shapely.from_wkt", "shapely.from_wkb", "shapely.from_geojson"),
    *("yaml.load", "yaml.safe_load", "load_yaml", "pickle.load", "pickle.loads"),
    *("csv.reader", "csv.DictReader", "pq.ParquetFile", "pq.read_table", "np.load"),
}
"""Functions that give a file's bytes to a parser."""
_SECTIONS = (  # of ASVS 4.0.3: the last requirement of each, and those not of level 2 or deleted
    *(("1.1", 7, ()), ("1.2", 4, ()), ("1.4", 5, (2, 3)), ("1.5", 4, ()), ("1.6", 4, ())),
    *(("1.7", 2, ()), ("1.8", 2, ()), ("1.9", 2, ()), ("1.10", 1, ()), ("1.11", 2, ())),
    *(("1.12", 2, (1,)), ("1.14", 6, ())),
    *(("2.1", 12, ()), ("2.2", 3, ()), ("2.3", 3, ()), ("2.4", 5, ()), ("2.5", 7, ())),
    *(("2.6", 3, ()), ("2.7", 6, ()), ("2.8", 7, ()), ("2.9", 3, ()), ("2.10", 4, ())),
    *(("3.1", 1, ()), ("3.2", 4, ()), ("3.3", 4, ()), ("3.4", 5, ()), ("3.5", 3, ())),
    *(("3.7", 1, ()), ("4.1", 5, (4,)), ("4.2", 2, ()), ("4.3", 3, ())),
    *(("5.1", 5, ()), ("5.2", 8, ()), ("5.3", 10, ()), ("5.4", 3, ()), ("5.5", 4, ())),
    *(("6.1", 3, ()), ("6.2", 6, ()), ("6.3", 2, ()), ("6.4", 2, ())),
    *(("7.1", 4, ()), ("7.2", 2, ()), ("7.3", 4, (2,)), ("7.4", 3, ())),
    *(("8.1", 4, ()), ("8.2", 3, ()), ("8.3", 8, ()), ("9.1", 3, ()), ("9.2", 4, ())),
    *(("10.2", 2, ()), ("10.3", 3, ()), ("11.1", 8, ())),
    *(("12.1", 3, ()), ("12.2", 1, ()), ("12.3", 6, ()), ("12.4", 2, ()), ("12.5", 2, ())),
    *(("12.6", 1, ()), ("13.1", 5, (2,)), ("13.2", 6, (4,)), ("13.3", 2, ()), ("13.4", 2, ())),
    *(("14.1", 4, ()), ("14.2", 6, ()), ("14.3", 3, (1,)), ("14.4", 7, ()), ("14.5", 4, ())),
)


def section(title: str) -> str:
    """The text beneath a heading of the page."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def parsing() -> Iterator[str]:
    """Yield the modules that call a parser of files."""
    for top in _TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(_LEFT_OUT):
                continue
            text = path.read_text("utf-8")
            if not any(f"{parser}(" in text for parser in _PARSERS):
                continue  # so that few are parsed
            nodes = ast.walk(ast.parse(text))
            calls = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
            if calls & _PARSERS:
                yield name


def rows() -> list[list[str]]:
    """The cells of the table of requirements."""
    lines = section("OWASP ASVS 4.0.3, level 2").splitlines()
    return [line.strip("| ").split(" | ", 2) for line in lines if re.match(r"\| \d", line)]


def test_each_place_that_parses_files_is_listed() -> None:
    text = section("Who opens a stranger's file")
    first_cells = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line[:3] == "| `")
    own = text.partition("These open what Swathmill wrote")[2]
    listed = re.findall(r"`([a-z_0-9/]+\.py)`", first_cells + own)
    assert sorted(listed) == sorted(set(listed)), "one list or the other"
    assert set(listed) == set(parsing())


def test_each_command_that_reads_in_a_fork_confines_it() -> None:
    """A maker of a worker is confined before it forks."""
    calls = [
        (path.relative_to(ROOT).as_posix(), match[1])
        for top in ("swathmill", "portal", "service_manager")
        for path in sorted((ROOT / top).rglob("*.py"))
        for match in re.finditer(r"run_in_fork\((\w*)", path.read_text("utf-8"))
    ]
    assert len(calls) == 3
    assert {first for _, first in calls} <= {"Rights", "rights"}, calls


def test_each_requirement_of_level_2_is_judged_once() -> None:
    judged = []
    for numbers, *_ in rows():
        first, _, last = numbers.partition("-")
        chapter, _, number = first.rpartition(".")
        end = int(last.rpartition(".")[2]) if last else int(number)
        judged += [f"{chapter}.{n}" for n in range(int(number), end + 1)]
    assert judged == [
        f"{name}.{n}" for name, last, out in _SECTIONS for n in range(1, last + 1) if n not in out
    ]


def test_each_requirement_is_met_or_not_with_a_reason() -> None:
    for number, judgement, reason in rows():
        assert judgement in ("met", "n/a", "not met"), number
        assert len(reason) > 5, number


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w.-]+/[\w./-]+)`", PAGE))))
def test_what_the_page_names_is_there(path: str) -> None:
    assert (ROOT / path).exists()
