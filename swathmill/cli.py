"""The `swathmill` command: its groups, and how it ends.

Exit codes: 0 done; 1 something failed; 2 what was asked is refused, or the command line is wrong;
3 the request completed with gaps; 130 interrupted.
"""

import sys

import typer
from rich.console import Console

from archives.errors import ArchiveError
from reprojection.errors import ReprojectionError
from swathmill.commands import (
    backup,
    doctor,
    explanation,
    find,
    granules,
    inspection,
    requests,
    run,
    sign_in,
    storage,
    up,
)
from swathmill.errors import RefusedError, StackError
from tasks.errors import RequestRefusedError, SwathmillError

EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="swathmill",
    help="Turn MODIS granules into analysis-ready data on one grid.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
run.register(app)
up.register(app)
requests.register(app)
granules.register(app)
find.register(app)
inspection.register(app)
explanation.register(app)
sign_in.register(app)
backup.register(app)
storage.register(app)
doctor.register(app)


def main() -> None:
    """Run the command; an error on purpose becomes a message with its remedy, and an exit code."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app()
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
