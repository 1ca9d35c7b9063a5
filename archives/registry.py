"""The archives by name, as settings have them: `folder, cmr; MOD04_L2=laads,cmr`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from archives.errors import SourcesSettingError
from archives.fetch.answers import bare_url
from archives.fetch.credentials import Credentials
from archives.fetch.files import RemoteFiles
from archives.fetch.limits import HostLimits
from archives.fetch.timing import Timing
from archives.kinds.folder import FolderArchive, OutlineReader
from archives.sources import ArchiveSource, Sources

NAMES = ("folder", "cmr", "laads", "planetary-computer")

_HTTP = ("http", "https")


@dataclass(frozen=True, kw_only=True)
class ChainSettings:
    """The settings of a chain.

    `sources` has the form of SWATHMILL_SOURCES; empty means the folder alone. `archive` is the
    folder's path or fsspec URL, `options` those of its file system, `index` its index file.
    """

    sources: str
    archive: str
    index: Path
    credentials: Credentials
    limits: HostLimits
    read_outlines: OutlineReader | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)


def make_sources(wanted: ChainSettings) -> Sources:
    """Make the chain of sources that the settings name.

    Raises:
        SourcesSettingError: the setting names an unknown source, or none.
        IndexUnusableError: the archive folder does not exist.
    """
    default, products = parse_chains(wanted.sources or ("folder" if wanted.archive else ""))
    made: dict[str, ArchiveSource] = {}

    def source(text: str) -> ArchiveSource:
        if text not in made:
            made[text] = _make(text, wanted)
        return made[text]

    return Sources(
        [source(text) for text in default],
        {name: [source(text) for text in own] for name, own in products.items()},
    )


def parse_chains(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """Parse the chain of all products and the chains of single products.

    Raises:
        SourcesSettingError: there is no chain, or a product's chain is empty.
    """
    default: list[str] = []
    products: dict[str, list[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        head, equals, tail = part.partition("=")
        own = bool(equals) and head.strip().replace("_", "").isalnum()
        names = [name.strip() for name in (tail if own else part).split(",") if name.strip()]
        if own and not names:
            raise SourcesSettingError(f"SWATHMILL_SOURCES names no source for {head.strip()}")
        if own:
            products[head.strip()] = names
        else:
            default.extend(names)
    if not default and not products:
        raise SourcesSettingError(
            "no source of granules is set: set SWATHMILL_ARCHIVE to a folder of granules, or "
            f"SWATHMILL_SOURCES to some of {', '.join(NAMES)} (docs/archives.md)"
        )
    return default, products


def source_name(text: str) -> str:
    """Return a source's name in records and messages: its text in settings without passwords."""
    if "://" not in text:
        return text.partition("#")[0]
    kind, plus, address = text.partition("+")
    if plus and "://" not in kind:
        return f"{kind}+{bare_url(address)}"
    return bare_url(text)


def _make(text: str, wanted: ChainSettings) -> ArchiveSource:
    _check_address(text)
    name = source_name(text)
    if text == "folder":
        return _folder(wanted.archive, wanted, name)
    # Imported where it is used, so that a stack over a folder starts sooner.
    from archives.web_registry import make_web_source

    made = make_web_source(text, name, wanted.credentials, wanted.limits, wanted.timing)
    if made is None:
        raise SourcesSettingError(
            f"SWATHMILL_SOURCES names {name!r}, which is not a source: use {', '.join(NAMES)}, "
            "cmr#region=..., cmr+https://..., laads+https://..., pool+https://..., "
            "stac+https://... or ftp://..."
        )
    return made


def _check_address(text: str) -> None:
    """Refuse an invalid address, and a login that would get into every record."""
    kind, plus, behind = text.partition("+")
    try:
        parts = urlsplit(behind if plus and "://" not in kind else text)
        _port = parts.port  # parses the port
    except ValueError as error:
        raise SourcesSettingError(
            f"SWATHMILL_SOURCES names {source_name(text)}, which is not an address: {error}"
        ) from None
    if parts.scheme in _HTTP and "@" in parts.netloc:
        raise SourcesSettingError(
            f"SWATHMILL_SOURCES names {source_name(text)} with a user or password in front of the "
            "host: leave them out; a host of SWATHMILL_EARTHDATA_HOSTS is given "
            "SWATHMILL_EARTHDATA_TOKEN"
        )


def _folder(place: str, wanted: ChainSettings, name: str) -> ArchiveSource:
    if not place:
        raise SourcesSettingError(
            "SWATHMILL_SOURCES names the folder, but none is set: set SWATHMILL_ARCHIVE"
        )
    files = RemoteFiles(place, wanted.options) if "://" in place else Path(place)
    return FolderArchive(files, wanted.index, wanted.read_outlines, name=name)
