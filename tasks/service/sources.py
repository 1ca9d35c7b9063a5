"""The archives that the settings name, opened."""

from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from archives.fetch.credentials import Credentials
from archives.fetch.limits import HostLimits, LocalLimits
from archives.kinds.folder import OutlineReader
from archives.registry import ChainSettings, make_sources
from archives.sources import Sources
from tasks.settings import Settings

SAMPLE = "sample-archive"  # folder within the data folder, read where no source is set
PATIENCE = 120.0
"""Seconds that a search waits for a connection."""
_NO_TOKEN = "none"  # a key vault keeps no empty secrets


def is_sample(settings: Settings) -> bool:
    """Tell whether granules come from the data folder's sample archive: synthetic values."""
    place = settings.archive
    if settings.sources or not place or "://" in place:
        return False
    return Path(place).resolve() == (settings.data_dir / SAMPLE).resolve()


def open_sources(
    settings: Settings,
    index: Path,
    read_outlines: OutlineReader | None = None,
    patience: float = PATIENCE,
) -> Sources:
    """Open the chain of sources; `index` is the file of the folder's index.

    `patience` is the longest wait for a connection to a host, in seconds.

    Raises:
        SourcesSettingError: the settings name no source, or an unknown one, or have a token that
            cannot be sent.
        IndexUnusableError: the archive folder does not exist.
    """
    token = settings.earthdata_token
    if token.get_secret_value() == _NO_TOKEN:
        token = SecretStr("")
    return make_sources(
        ChainSettings(
            sources=settings.sources,
            archive=settings.archive,
            index=index,
            credentials=Credentials(token, settings.earthdata_hosts.split(",")),
            limits=host_limits(settings, patience),
            read_outlines=read_outlines,
            options=_options(settings),
        )
    )


def host_limits(settings: Settings, patience: float) -> HostLimits:
    """Make the limits of archive hosts that the settings ask for; Redis shares them."""
    connections, rate = settings.host_connections, settings.host_rate
    url = settings.redis_url.get_secret_value()
    if not url:
        return LocalLimits(connections=connections, rate=rate, patience=patience)
    from tasks.messages.host_limits import RedisLimits

    return RedisLimits(url, connections=connections, rate=rate, patience=patience)


def _options(settings: Settings) -> dict[str, object]:
    """`abfs://container/folder`, which names no account, lies in the one that Swathmill uses."""
    if not settings.archive.startswith(("abfs://", "abfss://", "az://")):
        return {}
    if "@" in settings.archive.partition("://")[2].partition("/")[0]:
        return {}
    storage = settings.storage.get_secret_value()
    if "=" not in storage:
        return {"account_name": storage}
    if "AccountKey=" in storage or "SharedAccessSignature=" in storage:
        return {"connection_string": storage}
    # Addresses alone: the process signs in with its identity.
    named = dict(part.partition("=")[::2] for part in storage.split(";"))
    address = urlsplit(named.get("BlobEndpoint", ""))
    # An account has its own host; Azurite has a path for it.
    path = address.path.strip("/")
    return {
        "account_name": path or address.netloc.partition(".")[0],
        "account_host": f"{address.netloc}/{path}" if path else address.netloc,
    }
