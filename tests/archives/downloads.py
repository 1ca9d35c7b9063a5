"""One granule to download, and downloaders that look at what they fetched."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from archives.fetch.credentials import Credentials
from archives.fetch.download import Downloader
from archives.fetch.limits import LocalLimits
from archives.fetch.timing import Timing
from archives.formats.checksums import Cksum
from tests.archives.servers import FileServer, granule

DATA = granule(300_000)
NO_CREDENTIALS = Credentials(SecretStr(""))
TOKEN = "the-token-that-nobody-may-see"
PATH = "/MOD09GA.A2020001.h18v04.061.2020003030507.hdf"
QUICK = Timing(connect=20.0, stall=20.0, pause=0.0)
# For tests of silence alone, in which an answer that comes late may count as silence too.
HASTY = Timing(connect=20.0, stall=0.4, pause=0.0)


@dataclass
class TokenFor:
    """A token for one address's host and port."""

    url: str
    asked: list[str] = field(default_factory=list)

    def headers(self, url: str) -> Mapping[str, str]:
        self.asked.append(url)
        return {"Authorization": f"Bearer {TOKEN}"} if url.startswith(self.url + "/") else {}


class Fetch(NamedTuple):
    """A downloader of one server's, and where it puts the file."""

    downloader: Downloader
    to: Path

    def __call__(
        self,
        *urls: str,
        size: int = len(DATA),
        checksum: str | None = None,
        checksum_type: str | None = None,
    ) -> bytes:
        fetched = self.downloader.get(
            urls, self.to, size=size, checksum=checksum, checksum_type=checksum_type
        )
        assert fetched.path == self.to
        data = self.to.read_bytes()
        assert fetched.size == len(data)
        assert [path.name for path in self.to.parent.iterdir()] == [self.to.name]
        return data


def fetcher(server: FileServer, folder: Path, timing: Timing = QUICK) -> Fetch:
    downloader = Downloader(
        TokenFor(server.url), LocalLimits(rate=1000), timing=timing, context=server.context
    )
    return Fetch(downloader, folder / "granules" / PATH[1:])


def digest_of(kind: str) -> str:
    if kind == "cksum":
        running = Cksum()
        running.update(DATA)
        return running.hexdigest()
    return hashlib.new(kind, DATA).hexdigest()
