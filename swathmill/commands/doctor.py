"""`swathmill doctor`: check what works on this machine."""

import typer

from swathmill.commands.shared.options import DataOption, JsonOption, data_folder, print_json
from swathmill.console import PlainConsole
from swathmill.diagnosis import Verdict, examine
from tasks.settings import Settings

STYLES = {Verdict.GOOD: "green", Verdict.NOTE: "yellow", Verdict.FAULT: "red"}
EXIT_FAULT = 1


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(doctor)


def doctor(as_json: JsonOption = False, data: DataOption = None) -> None:
    """Check what works on this machine, and say how to repair the rest. Exits 1 at a fault."""
    console = PlainConsole()
    findings = examine(data_folder(data), Settings())
    if as_json:
        print_json(findings)
    for finding in () if as_json else findings:
        style = STYLES[finding.verdict]
        console.print(f"[{style}]{finding.verdict:5}[/{style}]  {finding.subject:10}  ", end="")
        console.print(finding.found, markup=False)
        if finding.remedy:
            console.print(f"{'':19}{finding.remedy}", markup=False)
    if any(finding.verdict is Verdict.FAULT for finding in findings):
        raise typer.Exit(EXIT_FAULT)
