"""Where a stack keeps its data: in files of its own (embedded), or in Azurite."""

from enum import StrEnum

from swathmill.errors import StackError
from swathmill.stack.azurite import AzuriteServer
from swathmill.stack.folder import DataFolder


class Storage(StrEnum):
    """The kinds of storage of one machine's stack."""

    EMBEDDED = "embedded"
    AZURITE = "azurite"


_MOVE = (
    "To move its requests, run `swathmill export tables.jsonl.gz` on it{how}, and then "
    "`swathmill restore tables.jsonl.gz --data NEW` with a new folder. Files of results are not in "
    "it: they are made again there when a request wants them."
)


def held(folder: DataFolder) -> Storage | None:
    """Return the storage that a data folder holds; None for a new folder.

    Raises:
        StackError: it holds what an older Swathmill had Azurite write, which this one cannot read.
    """
    if any(folder.azurite.glob("*.journal-*")):
        raise StackError(
            f"The data folder {folder.path} was written by an older version of Swathmill, in a "
            "form of Azurite's files that this version cannot read. Nothing was changed.",
            "Name another folder with --data, and keep this one. "
            + _MOVE.format(how=" with that version"),
        )
    if folder.tables.exists() or folder.tables.with_name(f"{folder.tables.name}-wal").exists():
        return Storage.EMBEDDED
    if any(folder.azurite.glob("__azurite_db_*")):
        return Storage.AZURITE
    return None


def choose(folder: DataFolder, wanted: Storage | None) -> Storage:
    """Return the storage to start: the wanted one, else what the folder holds, else embedded.

    Raises:
        StackError: the folder holds the other kind: its data would be there and not be seen.
    """
    there = held(folder)
    if there is None or wanted is None or wanted is there:
        return wanted or there or Storage.EMBEDDED
    raise StackError(
        f"The data folder {folder.path} holds {_NAMES[there]}, and --storage {wanted} would not "
        "see it. Nothing was changed.",
        f"Start it with --storage {there}, or without --storage; or name another folder with "
        f"--data. {_MOVE.format(how='')}",
    )


_NAMES = {Storage.EMBEDDED: "embedded storage", Storage.AZURITE: "Azurite's data"}


def embedded(folder: DataFolder) -> str:
    """Return SWATHMILL_STORAGE for embedded storage."""
    return f"file:{folder.storage.resolve()}"


def setting(folder: DataFolder, storage: Storage) -> str:
    """Return SWATHMILL_STORAGE for a data folder; if it is Azurite's, of the stack that runs."""
    if storage is Storage.EMBEDDED:
        return embedded(folder)
    return AzuriteServer(
        folder=folder.azurite,
        log=folder.log("azurite"),
        account=folder.secrets().account,
        ports=folder.state().azurite_ports,
    ).connection_string
