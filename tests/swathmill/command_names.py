"""The commands there are."""

from swathmill.cli import application


def command_names() -> set[str]:
    """The names of all commands and groups of commands."""
    made = application()
    single = {one.name or getattr(one.callback, "__name__", "") for one in made.registered_commands}
    return single | {one.name or "" for one in made.registered_groups}
