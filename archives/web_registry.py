"""The archives that are reached over the network, by name."""

import re
import time
from urllib.parse import parse_qs, urlsplit

from archives.errors import SourcesSettingError
from archives.fetch.credentials import Credentials
from archives.fetch.direct import DirectReader
from archives.fetch.download import Downloader
from archives.fetch.http import Manners
from archives.fetch.limits import HostLimits
from archives.fetch.timing import Timing
from archives.kinds.cmr import CMR_URL, CmrArchive
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
from archives.sources import ArchiveSource

_STAC_COLLECTION = "{product}_{version}"
_HTTP = ("http", "https")
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


def make_web_source(
    text: str, name: str, credentials: Credentials, limits: HostLimits, timing: Timing
) -> ArchiveSource | None:
    """Make the source that a name or a valid address stands for; None if it stands for none.

    `name` is for records.
    """
    web = Web(credentials, limits, timing=timing)
    downloader = Downloader(credentials, limits, timing=timing)
    kind, _, address = text.partition("+")
    is_web = urlsplit(address).scheme in _HTTP
    if name == "cmr" or (kind == "cmr" and is_web):
        url = address.partition("#")[0]
        manners = Manners(
            credentials=credentials, limits=limits, timing=timing, context=None, sleep=time.sleep
        )
        direct = _direct(text.partition("#")[2], name, downloader, manners)
        return CmrArchive(web, downloader, url=url or CMR_URL, name=name, direct=direct)
    if text == "laads" or (kind == "laads" and is_web):
        return LaadsArchive(web, downloader, url=address or LAADS_URL, name=name)
    if text == "planetary-computer":
        return StacArchive(
            web,
            downloader,
            url=PLANETARY_COMPUTER_URL,
            name=name,
            collection=PLANETARY_COMPUTER_COLLECTION,
            signing=Signing(url=PLANETARY_COMPUTER_SIGN),
        )
    if kind == "pool" and is_web:
        return PoolArchive(web, downloader, url=address, name=name)
    if kind == "stac" and is_web:
        return _stac(web, downloader, address, name)
    if urlsplit(text).scheme in ("ftp", "ftps"):
        return FtpArchive(text, limits, name=name, timing=timing)
    return None


def _direct(said: str, name: str, downloader: Downloader, manners: Manners) -> DirectReader | None:
    """Make the reader of buckets in the region that a source's name says; None for none."""
    if not said:
        return None
    key, _, region = said.partition("=")
    if key != "region" or not _REGION.fullmatch(region):
        raise SourcesSettingError(
            f"SWATHMILL_SOURCES names {name} with #{said}: only the region of Amazon in which the "
            "workers run may follow, such as #region=us-west-2"
        )
    return DirectReader(region, downloader, manners)


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
