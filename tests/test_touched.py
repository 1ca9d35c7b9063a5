"""The tests that a change may concern are found by what they import."""

from pathlib import Path

import pytest

from tests.touched import touched

FILES = {
    "mill/__init__.py": "",
    "mill/stone.py": "",
    "mill/wheel.py": "def turn():\n    from mill import stone\n",
    "mill/water.py": "",
    "mill/page.html": "",
    "tests/helper.py": "import mill.wheel\n",
    "tests/a/conftest.py": "from mill.water import flow\n",
    "tests/a/test_water.py": "",
    "tests/b/test_wheel.py": "from tests import helper\n",
    "tests/b/test_nothing.py": "import math\n",
    "tests/infra/test_links.py": "",
}
ALWAYS = ["tests/infra/test_links.py"]


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("mill/stone.py", ["tests/b/test_wheel.py"]),
        ("mill/water.py", ["tests/a/test_water.py"]),
        ("mill/page.html", ["tests/a/test_water.py", "tests/b/test_wheel.py"]),
        ("tests/b/test_nothing.py", ["tests/b/test_nothing.py"]),
        ("docs/links.md", []),
    ],
)
def test_a_change_concerns_what_imports_it(changed: str, found: list[str], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    assert touched(tmp_path, [changed]) == sorted(found + ALWAYS)
