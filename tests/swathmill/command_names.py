"""The commands there are."""

from typer.core import TyperGroup
from typer.main import get_command

from swathmill.cli import application


def command_names() -> set[str]:
    """The names of all commands and groups of commands."""
    made = application()
    single = {one.name or getattr(one.callback, "__name__", "") for one in made.registered_commands}
    return single | {one.name or "" for one in made.registered_groups}


def options_of_commands() -> dict[str, set[str]]:
    """The options of each command, by its words: those of groups, too."""
    found: dict[str, set[str]] = {}

    def note(group: TyperGroup, words: str) -> None:
        for name, inner in group.commands.items():
            if isinstance(inner, TyperGroup):
                note(inner, f"{words}{name} ")
            else:
                found[words + name] = {word for one in inner.params for word in one.opts}

    whole = get_command(application())
    assert isinstance(whole, TyperGroup)
    note(whole, "")
    return found
