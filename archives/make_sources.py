"""Make sources from their names in settings: `folder, cmr; MOD04_L2=laads,cmr`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from archives.errors import SourcesSettingError
from archives.fetch.answers import bare_url
from archives.fetch.credentials import Credentials
from archives.fetch.download import Downloader, Timing
from archives.fetch.files import RemoteFiles
from archives.fetch.limits import HostLimits
from archives.kinds.cmr import CMR_URL, CmrArchive
from archives.kinds.folder import FolderArchive, OutlineReader
from archives.kinds.ftp import FtpArchive
from archives.kinds.laads import LAADS_URL, LaadsArchive
from archives.kinds.pool import PoolArchive
from archives.kinds.stac import (
    PLANETARY_COMPUTER_COLLECTION,
    PLANETARY_COMPUTER_SIGN,
    PLANETARY_COMPUTER_URL,
    Signing,
    StacArchive,
)
from archives.kinds.web import Web
from archives.sources import ArchiveSource, Sources

NAMES = ("folder", "cmr", "laads", "planetary-computer")

_STAC_COLLECTION = "{product}_{version}"
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
    read_outline: OutlineReader | None = None
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
        return text
    kind, plus, address = text.partition("+")
    if plus and "://" not in kind:
        return f"{kind}+{bare_url(address)}"
    return bare_url(text)


def _make(text: str, wanted: ChainSettings) -> ArchiveSource:
    _check_address(text)
    web = Web(wanted.credentials, wanted.limits, timing=wanted.timing)
    downloader = Downloader(wanted.credentials, wanted.limits, timing=wanted.timing)
    name = source_name(text)
    named: dict[str, Callable[[], ArchiveSource]] = {
        "folder": lambda: _folder(wanted.archive, wanted, name),
        "cmr": lambda: CmrArchive(web, downloader, url=CMR_URL, name=name),
        "laads": lambda: LaadsArchive(web, downloader, url=LAADS_URL, name=name),
        "planetary-computer": lambda: StacArchive(
            web,
            downloader,
            url=PLANETARY_COMPUTER_URL,
            name=name,
            collection=PLANETARY_COMPUTER_COLLECTION,
            signing=Signing(url=PLANETARY_COMPUTER_SIGN),
        ),
    }
    if text in named:
        return named[text]()
    kind, _, address = text.partition("+")
    scheme = urlsplit(text).scheme
    if kind == "cmr" and urlsplit(address).scheme in _HTTP:
        return CmrArchive(web, downloader, url=address, name=name)
    if kind == "laads" and urlsplit(address).scheme in _HTTP:
        return LaadsArchive(web, downloader, url=address, name=name)
    if kind == "pool" and urlsplit(address).scheme in _HTTP:
        return PoolArchive(web, downloader, url=address, name=name)
    if kind == "stac" and urlsplit(address).scheme in _HTTP:
        return _stac(web, downloader, address, name)
    if scheme in ("ftp", "ftps"):
        return FtpArchive(text, wanted.limits, name=name, timing=wanted.timing)
    raise SourcesSettingError(
        f"SWATHMILL_SOURCES names {name!r}, which is not a source: use {', '.join(NAMES)}, "
        "cmr+https://..., laads+https://..., pool+https://..., stac+https://... or ftp://..."
    )


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
    return FolderArchive(files, wanted.index, wanted.read_outline, name=name)


def _stac(web: Web, downloader: Downloader, address: str, name: str) -> ArchiveSource:
    """Make the source of an API; `collection=`, `sign=` and `hosts=` follow a `#`."""
    url, _, fragment = address.partition("#")
    said = {key: values[-1] for key, values in parse_qs(fragment).items()}
    signing = None
    if "sign" in said:
        hosts = tuple(said["hosts"].split("|")) if "hosts" in said else None
        signing = Signing(url=said["sign"], hosts=hosts) if hosts else Signing(url=said["sign"])
    collection = said.get("collection", _STAC_COLLECTION)
    try:
        collection.format(product="", suffix="", version="")
    except (LookupError, ValueError, AttributeError):
        raise SourcesSettingError(
            f"SWATHMILL_SOURCES names {name} with collection={collection}: the braces may "
            "hold only {product}, {suffix} and {version}"
        ) from None
    return StacArchive(
        web,
        downloader,
        url=url,
        name=name,
        collection=collection,
        signing=signing,
    )
