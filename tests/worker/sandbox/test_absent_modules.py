"""What is said of a library that a program imports and that is not there."""

from pathlib import Path

import pytest

from worker.sandbox.absent_modules import PROMISED, remedy

TRACEBACK = 'Traceback (most recent call last):\n  File "run.py", line 1, in <module>\n'
NUMPY = """ImportError:

IMPORTANT: PLEASE READ THIS FOR ADVICE ON HOW TO SOLVE THIS ISSUE!

Original error was: libopenblas.so.0: cannot open shared object file
"""


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("ModuleNotFoundError: No module named 'statsmodels.api'", "Nothing here has statsmodels:"),
        (
            "ModuleNotFoundError: No module named 'scipy'\n",
            "The image of this worker has no scipy:",
        ),
        ("ImportError: cannot import name 'x' from 'numpy' (numpy/__init__.py)", "not of the ver"),
        ("ImportError: libgdal.so.99: cannot open shared object file", "A library here is absent"),
        (NUMPY, "A library here is absent"),
    ],
)
def test_python_says_what_it_cannot_import(printed: str, said: str) -> None:
    found = remedy(TRACEBACK + printed)
    assert said in found
    assert "requirements.txt, and upload it again (docs/packages.md" in found


@pytest.mark.parametrize("quote", ["‘terra’", "'terra'", "terra"])
def test_r_says_which_package_it_does_not_have(quote: str) -> None:
    printed = f"Error in library(terra) : there is no package called {quote}\nExecution halted\n"
    assert remedy(printed).startswith("The R here has no package terra:")


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "ValueError: no data\n",
        # It went on without it.
        "ModuleNotFoundError: No module named 'bottleneck'\nValueError: no data\n",
        "No module named x\n",
    ],
)
def test_nothing_is_said_of_other_failures(printed: str) -> None:
    assert remedy(TRACEBACK + printed) == ""


def test_the_modules_are_those_that_are_promised() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reductions.md").read_text("utf-8")
    promised = text.partition("Swathmill's own Python, which has ")[2].partition(" (")[0]
    assert {*promised.replace(" and ", ", ").split(", ")} == PROMISED
