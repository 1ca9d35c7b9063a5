"""What commands print of strangers' texts gives no orders to a terminal."""

import ast
import json
from pathlib import Path

import pytest
from rich.table import Table

from swathmill.commands.shared.options import print_json
from swathmill.console import PlainConsole

HOSTILE = "a\x1b]0;xb\x9b2Jc\u202ed"
SHOWN = r"a\x1b]0;xb\x9b2Jc\u202ed"


def test_texts_and_tables_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console = PlainConsole()
    console.print(HOSTILE, markup=False)
    console.print(table)
    said = capsys.readouterr().out
    assert said.splitlines()[0] == SHOWN
    assert not set("\x1b\x9b\u202e") & set(said)


def test_json_holds_the_text_in_escapes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"title": HOSTILE})
    said = capsys.readouterr().out
    assert json.loads(said) == {"title": HOSTILE}
    assert not set("\x1b\x9b\u202e") & set(said)


def test_commands_print_by_no_other_console() -> None:
    found = []
    for path in (Path(__file__).parents[2] / "swathmill").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name) and called.id == "Console":
                found.append(path.name)
    assert found == []
