"""Cells of CSV: no text runs in a spreadsheet, and numbers stay numbers."""

import ast
from pathlib import Path

import pytest

from tasks.csv_text import cell, text_of_cell

ROOT = Path(__file__).parents[2]
TOPS = ["portal", "service_manager", "worker", "tasks", "reprojection", "archives", "swathmill"]
WRITERS = {"DictWriter", "CSVWriter", "to_csv"}


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+A1",
        "-A1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        '=HYPERLINK("x")',
        "\uff1d1",
        "-2-3",
        "\ufeff=1",
        "\u00a0-1",
        "\u200b+A1",
    ],
)
def test_a_formula_gets_an_apostrophe(text: str) -> None:
    assert cell(text) == f"'{text}"
    assert text_of_cell(f"'{text}") == text


@pytest.mark.parametrize("value", ["-2.5", "+3", "-1e-5", "-.5", "+01:00", "a=b", "", -2.5, None])
def test_all_else_stays(value: object) -> None:
    assert cell(value) == value


@pytest.mark.parametrize("text", ["Moor", "'", "'Moor'", "'-3.5", "", "=1"])
def test_a_cell_without_its_apostrophe_stands_for_itself(text: str) -> None:
    """`=1` is of a file that was written before there was one."""
    assert text_of_cell(text) == text


_OF_OUR_OWN = {
    "tasks/csv_text.py": "the rule",
    "portal/serving/attachments.py": "by the rule",
    "worker/phases/sites/table_csv.py": "by the rule",
    "worker/packages/series/shared/zonal.py": "by a rule of its own: packages stand alone",
    "reprojection/write/sensor_overlap.py": "names of sensors and numbers alone",
    "tasks/request/measurements.py": "measurements that are kept for workers",
    "tasks/request/region/files.py": "a field of the form",
}


def test_no_other_module_writes_csv() -> None:
    """A new one comes here with the reason why its cells cannot run."""
    found = set()
    for top in (
        "portal",
        "service_manager",
        "worker",
        "tasks",
        "reprojection",
        "archives",
        "swathmill",
    ):
        for path in (ROOT / top).rglob("*.py"):
            tree = ast.parse(path.read_text("utf-8"))
            names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            if names & {"DictWriter", "CSVWriter", "to_csv"} or "csv.writer(" in path.read_text(
                "utf-8"
            ):
                found.add(path.relative_to(ROOT).as_posix())
    assert found <= _OF_OUR_OWN.keys()
