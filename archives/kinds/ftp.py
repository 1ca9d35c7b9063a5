"""FTP servers with the former layout of LAADS: `<root>/<set>/<product>/<year>/<day>/<granule>`."""

import errno
import ftplib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
    NotGranuleError,
    NotPermittedError,
    NotPublishedError,
    ServerBusyError,
    TokenRefusedError,
    UnlikeRecordError,
)
from archives.fetch.answers import bare_url, see_granule
from archives.fetch.limits import HostLimits
from archives.fetch.partial import DownloadOrigin, Partial, check_room
from archives.fetch.timing import Timing
from archives.formats.layout import Listed, archive_set, day_folders, record_of, year_holdings
from archives.model import Fetched, GranuleRecord, Holding, Progress, newest_editions
from modis.box import LonLatBox
from modis.collection import Collection

T = TypeVar("T")

_BLOCK = 1 << 18
_BUSY = ("421", "425", "426", "434", "450", "451", "452")  # RFC 959, 4.2.2: try again later
_NO_USER = ("332", "430", "530", "532")


class FtpArchive:
    """The archive at an `ftp://` or `ftps://` address (the folder above the archive sets).

    User and password are those in the address, else anonymous; they appear in no record and no
    message. A mirror may lack granules, so what it does not list may still be published.
    """

    authoritative = False

    def __init__(
        self,
        url: str,
        limits: HostLimits,
        *,
        name: str = "",
        timing: Timing | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.name = name or bare_url(url)
        self._tls = parts.scheme == "ftps"
        self._host, self._port = parts.hostname or "", parts.port or ftplib.FTP_PORT
        self._user = unquote(parts.username or "anonymous")
        self._password = unquote(parts.password or "anonymous@")
        self._root = unquote(parts.path).rstrip("/")
        self._origin = bare_url(f"{parts.scheme}://{parts.netloc}")
        self._limits = limits
        self._timing = timing or Timing()
        self._context = context or (ssl.create_default_context() if self._tls else None)

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        """Implement `Archive.search`: one listing per year, and one per day with granules."""
        del box  # listings are by day only
        wanted = Collection(collection)
        below = f"{self._root}/{archive_set(product, collection)}/{product}"
        days = day_folders(start_day, end_day, lambda year: self._folders(f"{below}/{year}"))
        for day in days:
            listed = [item for item in self._list(f"{below}/{day:%Y/%j}", named=True) if item.size]
            records = (record_of(item, product, wanted, self.name, {}) for item in listed)
            yield from newest_editions(r for r in records if r is not None and r.start_day == day)

    def holdings(self, product: str) -> list[Holding]:
        """List the collections that have a folder for the product, with its first and last year."""
        return year_holdings(
            product, lambda number: self._folders(f"{self._root}/{number}/{product}")
        )

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        """Download the granule; resume where an earlier call was cut (RFC 3659, REST)."""
        to.parent.mkdir(parents=True, exist_ok=True)
        partial = Partial(to, record.checksum_type)
        try:
            for left in (True, False):
                before = partial.length
                try:
                    self._session(lambda ftp: self._retrieve(ftp, record, partial, progress))
                    break
                except (ConnectionFailedError, ArchiveTimeoutError):
                    if partial.length <= before or not left:
                        raise
            return partial.finish(record.size, record.checksum)
        except NotGranuleError:
            partial.clear()
            raise
        finally:
            partial.close()

    def _retrieve(
        self, ftp: ftplib.FTP, record: GranuleRecord, partial: Partial, progress: Progress | None
    ) -> None:
        path = unquote(urlsplit(record.url).path)
        if not path.startswith(f"{self._root}/") or ".." in path.split("/"):
            raise NotPublishedError(f"{bare_url(record.url)} is not in {self._origin}{self._root}")
        ftp.voidcmd("TYPE I")
        total = ftp.size(path) or 0
        if record.size and total and total != record.size:
            raise UnlikeRecordError(
                f"{bare_url(record.url)} has {total} bytes, the listing says {record.size}: "
                "one is out of date"
            )
        origin = DownloadOrigin(
            url=bare_url(record.url), validator=_modified(ftp, path), total=total
        )
        if partial.origin != origin or partial.length > total or not origin.validator:
            partial.begin(origin)  # also if no date proves that the file is unchanged
        if total and partial.length == total:
            return
        check_room(partial.to.parent, total - partial.length)
        start = partial.length
        with ftp.transfercmd(f"RETR {path}", rest=start or None) as data:
            data.settimeout(self._timing.stall)
            pieces: Iterator[bytes] = iter(lambda: data.recv(_BLOCK), b"")
            if not start:
                pieces = see_granule(pieces, partial.to.name, bare_url(record.url))
            for piece in pieces:
                partial.append(piece)
                if progress is not None:
                    progress(partial.length, total)
        ftp.voidresp()
        if total and partial.length < total:
            raise ConnectionFailedError(
                f"{bare_url(record.url)} was cut off after {partial.length} of {total} bytes"
            )

    def _folders(self, folder: str) -> list[str]:
        return [item.name for item in self._list(folder) if not item.size]

    def _list(self, folder: str, *, named: bool = False) -> list[Listed]:
        """List a folder's entries; empty if there is no such folder.

        If another folder has `named` it, its absence is an error: a lost list is not an empty one.
        """
        try:
            return self._session(lambda ftp: _entries(ftp, folder, self._origin))
        except NotPublishedError as error:
            if named:
                raise AnswerBrokenError(
                    f"{folder} is named by the folder above it, and {error}; search again"
                ) from error
            return []

    def _session(self, work: Callable[[ftplib.FTP], T]) -> T:
        """Run `work` on a connection of its own."""
        with self._limits.place(f"{self._host}:{self._port}"), self._named_errors():
            ftp = ftplib.FTP_TLS(context=self._context) if self._tls else ftplib.FTP()
            try:
                ftp.connect(self._host, self._port, timeout=self._timing.stall)
                ftp.login(self._user, self._password)
                if isinstance(ftp, ftplib.FTP_TLS):
                    ftp.prot_p()
                found = work(ftp)
                ftp.quit()
                return found
            finally:
                ftp.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Translate what the FTP library raises into errors of `archives`."""
        try:
            yield
        except ArchiveError:
            raise
        except ftplib.error_temp as error:
            code = str(error)[:3]
            kind = ServerBusyError if code in _BUSY else DownloadFailedError
            raise kind(f"{self._origin} answered: {error}; try again later") from None
        except ftplib.error_perm as error:
            if str(error)[:3] in _NO_USER:
                raise TokenRefusedError(
                    f"{self._origin} refuses user {self._user!r}: set user and password in its "
                    "address in SWATHMILL_SOURCES"
                ) from None
            if "permission" in str(error).lower() or "denied" in str(error).lower():
                raise NotPermittedError(
                    f"{self._origin} answered: {error}; ask the archive for access"
                ) from None
            raise NotPublishedError(f"{self._origin} answered: {error}") from None
        except TimeoutError:
            raise ArchiveTimeoutError(f"{self._origin} did not answer in time") from None
        except (EOFError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # concerns our own disk
            raise ConnectionFailedError(
                f"no connection to {self._origin}, or it was cut: {error}"
            ) from None
        except (ftplib.Error, ValueError) as error:
            raise AnswerBrokenError(f"{self._origin} answered with broken FTP: {error}") from None


def _modified(ftp: ftplib.FTP, path: str) -> str:
    try:
        return ftp.voidcmd(f"MDTM {path}").removeprefix("213").strip()
    except ftplib.error_perm:
        return ""


def _entries(ftp: ftplib.FTP, folder: str, origin: str) -> list[Listed]:
    """List entries by MLSD, or by NLST and SIZE if the server lacks it (RFC 3659, 7)."""
    try:
        return [
            _listed(name, facts.get("type") == "dir", int(facts.get("size", 0)), folder, origin)
            for name, facts in ftp.mlsd(folder, ["type", "size"])
            if facts.get("type") in ("file", "dir")
        ]
    except ftplib.error_perm as error:
        if str(error)[:3] not in ("500", "502", "504"):
            raise
    found, paths = [], ftp.nlst(folder)
    ftp.voidcmd("TYPE I")  # servers refuse SIZE in text mode, which NLST sets
    for path in paths:
        name = path.rpartition("/")[2]
        try:
            size = ftp.size(f"{folder}/{name}")
        except ftplib.error_perm:
            size = None
        found.append(_listed(name, size is None, size or 0, folder, origin))
    return found


def _listed(name: str, is_folder: bool, size: int, folder: str, origin: str) -> Listed:
    url = f"{origin}{quote(folder)}/{quote(name)}"
    return Listed(name=name, size=0 if is_folder else size, url=url)
