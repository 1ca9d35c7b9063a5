"""The `swathmill` command: its groups, and how it ends.

Exit codes: 0 done; 1 something failed; 2 what was asked is refused, or the command line is wrong;
3 the request completed with gaps; 130 interrupted.
"""

import importlib
import sys
from collections.abc import Sequence

import typer
from rich.console import Console

from archives.errors import ArchiveError
from reprojection.errors import ReprojectionError
from swathmill.errors import RefusedError, StackError
from tasks.errors import RequestRefusedError, SwathmillError

EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

COMMANDS = {
    "run": ("run",),
    "up": ("up",),
    "requests": ("submit", "status", "results", "cancel", "confirm", "retry"),
    "granules": ("sample", "reproject"),
    "find": ("find",),
    "inspection": ("inspect",),
    "explanation": ("explain",),
    "sign_in": ("sign-in",),
    "backup": ("export", "restore"),
    "storage": ("storage",),
    "doctor": ("doctor",),
}
"""The modules of `swathmill.commands`, in the order of the help, and the commands of each."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The command for these words: with all its groups, or with that of a first word alone.

    To import all of them takes longer than many a command.
    """
    made = typer.Typer(
        name="swathmill",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    made.callback()(_swathmill)
    asked = [module for module, commands in COMMANDS.items() if {*words[:1]} & {*commands}]
    for module in asked or COMMANDS:
        importlib.import_module(f"swathmill.commands.{module}").register(made)
    return made


def _swathmill() -> None:
    """Turn MODIS granules into analysis-ready data on one grid."""


def main() -> None:
    """Run the command; an error on purpose becomes a message with its remedy, and an exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        application(sys.argv[1:])()
    except (RefusedError, RequestRefusedError) as error:
        _tell(console, "Refused", error.field, error.problem, error.remedy)
        sys.exit(EXIT_REFUSED)
    except StackError as error:
        _tell(console, "Error", "", error.problem, error.remedy)
        sys.exit(EXIT_FAILED)
    except (SwathmillError, ReprojectionError, ArchiveError) as error:
        _tell(console, "Error", "", str(error), "")
        sys.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        sys.exit(EXIT_INTERRUPTED)


def _tell(console: Console, label: str, field: str, problem: str, remedy: str) -> None:
    where = f" {field}:" if field else ""
    console.print(f"{label}:{where} {problem}", style="red", markup=False)
    if remedy:
        console.print(f"  {remedy}", markup=False)


if __name__ == "__main__":
    main()
