"""The `swathmill` command: its groups, and its exit codes.

Exit codes: 0 done; 1 something failed; 2 the portal refused the request, or the command line, a
path or a setting is wrong; 3 the request completed with gaps; 130 interrupted.
"""

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from archives.errors import ArchiveError, SourcesSettingError
from processes.quick_end import leave
from reprojection.errors import (
    BadFormatError,
    ChoiceRefusedError,
    GridError,
    KernelsAbsentError,
    ReprojectionError,
    UnknownLayerError,
)
from swathmill.console import PlainConsole
from swathmill.errors import ArgumentError, RefusedError, StackError
from swathmill.stack import interruption
from tasks.errors import RequestRefusedError, SwathmillError

EXIT_FAILED = 1
EXIT_REFUSED = 2
EXIT_INTERRUPTED = 130

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

_WRONG_ARGUMENTS = (
    SourcesSettingError,
    BadFormatError,
    UnknownLayerError,
    GridError,
    ChoiceRefusedError,
)
"""Errors of `archives` and `reprojection` that a user's arguments and settings cause."""

COMMANDS = {
    "run": ("run",),
    "up": ("up",),
    "try_out": ("try",),
    "requests": ("submit", "status", "results"),
    "orders": ("pause", "resume", "cancel", "confirm", "retry", "change"),
    "package": ("package", "inputs"),
    "package_uploads": ("package",),
    "raster": ("raster",),
    "granules": ("sample", "reproject"),
    "view": ("view",),
    "find": ("find",),
    "archive": ("archive",),
    "inspection": ("inspect",),
    "explanation": ("explain",),
    "remake": ("remake",),
    "sign_in": ("sign-in",),
    "stored.backup": ("export", "restore"),
    "stored.storage": ("storage",),
    "doctor": ("doctor",),
    "deploy": ("deploy",),
    "stored.upgrade": ("upgrade",),
    "stored.prices": ("prices",),
    "fleet": ("fleet",),
}
"""The modules of `swathmill.commands`, in the order of the help, and the commands of each."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Build the command for these words: all groups, or only the group of the first word.

    Importing all groups takes longer than many a command runs; `--version` needs none.
    """
    made = typer.Typer(
        name="swathmill",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_swathmill)
    asked = [module for module, commands in COMMANDS.items() if {*words[:1]} & {*commands}]
    for module in asked or ([] if words[:1] == ["--version"] else COMMANDS):
        try:
            importlib.import_module(f"swathmill.commands.{module}").register(made)
        except ModuleNotFoundError as error:
            if asked:
                raise
            for name in COMMANDS[module]:
                made.command(name, help=escape(f"Needs {_lacking(error)}"))(lambda: None)
    return made


def _lacking(error: ModuleNotFoundError) -> str:
    """Say what to install for a module that the library alone does not bring."""
    package = (error.name or "").partition(".")[0]
    return f"the service ({package} is not installed): pip install 'swathmill[service]'"


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"swathmill {version('swathmill')}")
        raise typer.Exit


def _swathmill(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Turn MODIS granules into analysis-ready data on one grid."""
    asks_help = {"-h", "--help"}.intersection(sys.argv[1:])
    if not asks_help and any(name.startswith("SWATHMILL_") for name in os.environ):
        _check_settings()


def _check_settings() -> None:
    """Refuse a setting that cannot be used, whether or not the command needs it."""
    # Importing it takes longer than some commands run.
    from tasks.settings import WrongSettingError, read_settings

    try:
        read_settings()
    except WrongSettingError as error:
        raise ArgumentError(error.problem, error.remedy) from None


def main() -> None:
    """Run the command; an expected error becomes a message with a remedy, and an exit code.

    SIGTERM ends every command as Ctrl-C does: what it started ends first.
    """
    console = PlainConsole(stderr=True)
    interruption.listen()
    try:
        command = application(_command_words(sys.argv[1:]))
        _log_to_stderr()
        command()
    except (RefusedError, RequestRefusedError) as error:
        for each in (error, *error.also):
            _tell(console, "Refused", each.field, each.problem, each.remedy)
        sys.exit(EXIT_REFUSED)
    except ArgumentError as error:
        _tell(console, "Refused", "", error.problem, error.remedy)
        sys.exit(EXIT_REFUSED)
    except _WRONG_ARGUMENTS as error:
        _tell(console, "Refused", "", str(error), "")
        sys.exit(EXIT_REFUSED)
    except ModuleNotFoundError as error:
        _tell(console, "Refused", "", f"This needs {_lacking(error)}", "")
        sys.exit(EXIT_REFUSED)
    except StackError as error:
        _tell(console, "Error", "", error.problem, error.remedy)
        sys.exit(EXIT_FAILED)
    except (SwathmillError, ReprojectionError, ArchiveError, KernelsAbsentError) as error:
        _tell(console, "Error", "", str(error), "")
        sys.exit(EXIT_FAILED)
    except OSError as error:
        full = error.errno in _DISK_FULL
        # A path of the command line; other errors of the system have no file name. Of a copy that
        # found no room, the second is the one that was written.
        file = (error.filename2 or error.filename) if full else error.filename
        remedy = "Make room, or name another place." if full else ""
        about = f"{file}: " if file else ""
        _tell(console, "Error", "", f"{about}{error.strerror or error}.", remedy)
        sys.exit(EXIT_REFUSED if file and not full else EXIT_FAILED)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        sys.exit(EXIT_INTERRUPTED)


def _log_to_stderr() -> None:
    """Keep standard output for what was asked for; most commands do not load what logs."""
    if (structlog := sys.modules.get("structlog")) and not structlog.is_configured():
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))


def _command_words(words: list[str]) -> list[str]:
    """Return the words that select the command; none if a shell completes a line."""
    return [] if "_SWATHMILL_COMPLETE" in os.environ else words


def _tell(console: PlainConsole, label: str, field: str, problem: str, remedy: str) -> None:
    where = f" {field}:" if field else ""
    console.print(f"{label}:{where} {problem}", style="red", markup=False)
    if remedy:
        console.print(f"  {remedy}", markup=False)


def program() -> NoReturn:
    """Run the command as a program of its own."""
    leave(main)


if __name__ == "__main__":
    program()
