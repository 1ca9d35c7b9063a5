"""From what went wrong to its category: exceptions, exit codes, HTTP statuses, errnos, Azure codes.

One place decides, so that the execution history means the same everywhere. What it does not know is
`unknown`, which keeps its traceback and is a bug to be mended here.
"""

import errno
import http.client
import os
import re
import signal
import socket
import ssl
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from archives import errors as archives
from reprojection import errors as reprojection
from tasks.bag.categories import RULES, Category
from tasks.errors import (
    BlobExistsError,
    BlobMissingError,
    BlobNameError,
    CorruptBlobError,
    StorageFullError,
    StoreError,
    SwathmillError,
)
from tasks.packages.packages import PackageError

_CHAIN = 10  # causes looked at behind an exception


class AttemptError(SwathmillError):
    """A failure whose category is known where it is raised.

    `healing` has a bit for each input whose blobs are missing or damaged.
    """

    def __init__(self, category: Category, message: str, *, healing: int = 0) -> None:
        super().__init__(message)
        self.category = category
        self.healing = healing


def host_failed(what: str, error: BaseException) -> AttemptError:
    """Make the failure of a machine that could not begin an attempt, from the error it met."""
    return AttemptError(Category.HOST_FAILED, f"{what}: {error or type(error).__name__}")


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Why an attempt failed: one line for people, the remedy, and the traceback for the log.

    Where a reduction's own program failed there is no traceback: the log is what it printed.
    `asked` is the delay in seconds that a server asked for.
    """

    category: Category
    message: str
    traceback: str = ""
    asked: float = 0.0
    healing: int = 0

    @property
    def remedy(self) -> str:
        """The advice what to do about it."""
        return RULES[self.category].remedy


_TYPES: tuple[tuple[tuple[type[BaseException], ...], Category], ...] = (
    ((archives.NotPublishedError,), Category.SOURCE_NOT_PUBLISHED),
    ((archives.DownloadFailedError,), Category.DOWNLOAD_FAILED),
    ((archives.ConnectionFailedError,), Category.CONNECTION_FAILURE),
    ((archives.ArchiveTimeoutError,), Category.OPERATION_TIMEOUT),
    ((archives.AnswerBrokenError,), Category.TRANSPORT_ERROR),
    ((archives.ServerBusyError,), Category.SERVER_BUSY),
    ((archives.NoPlaceError,), Category.OPERATION_TIMEOUT),  # of a search; a task is given back
    ((archives.CredentialsRefusedError,), Category.CREDENTIALS_REFUSED),
    ((archives.IndexUnusableError,), Category.DOWNLOAD_FAILED),
    ((reprojection.BadFormatError,), Category.BAD_IMAGE_FORMAT),
    (
        (
            archives.DamagedCopyError,
            reprojection.UnreadableGranuleError,
            reprojection.NoGeolocationError,
            reprojection.NotHeldError,  # an archive's file that says it is only a part
        ),
        Category.UNREADABLE_INPUT_FILE,
    ),
    (
        (
            reprojection.ChoiceRefusedError,
            reprojection.GridError,
            reprojection.UnknownLayerError,  # none of the granules holds it: no granule is damaged
        ),
        Category.CHOICE_REFUSED,
    ),
    ((PackageError,), Category.USER_CODE_FAILED),
    ((BlobMissingError,), Category.SOURCE_BLOB_MISSING),
    ((CorruptBlobError,), Category.CORRUPT_BLOB_READ),
    ((BlobExistsError,), Category.STORAGE_CLIENT_ERROR),
    ((BlobNameError,), Category.CHOICE_REFUSED),
    # RemoteDisconnected is both a ConnectionError and an HTTPException: no answer came at all.
    ((ConnectionError, socket.gaierror), Category.CONNECTION_FAILURE),
    ((http.client.HTTPException,), Category.TRANSPORT_ERROR),
    ((ssl.SSLCertVerificationError,), Category.CONNECTION_FAILURE),
    ((ssl.SSLError,), Category.TRANSPORT_ERROR),
    ((TimeoutError,), Category.OPERATION_TIMEOUT),
    ((MemoryError,), Category.OUT_OF_MEMORY),
)

_ERRNOS = {
    errno.EFBIG: Category.OUT_OF_DISK,  # the limit on a file's size
    errno.EIO: Category.BLOB_READ_FAILED,  # the disk of the data folder
    errno.ENOMEM: Category.OUT_OF_MEMORY,
    errno.ETIMEDOUT: Category.OPERATION_TIMEOUT,
    errno.ECONNREFUSED: Category.CONNECTION_FAILURE,
    errno.ECONNRESET: Category.CONNECTION_FAILURE,
    errno.ECONNABORTED: Category.CONNECTION_FAILURE,
    errno.ENETUNREACH: Category.CONNECTION_FAILURE,
    errno.EHOSTUNREACH: Category.CONNECTION_FAILURE,
    errno.ENETDOWN: Category.CONNECTION_FAILURE,
    errno.EHOSTDOWN: Category.CONNECTION_FAILURE,
}

_SIGNALS = {
    signal.SIGXFSZ: Category.OUT_OF_DISK,
    # Nobody here sends it but the supervisor, who then says so: it is the kernel, out of memory.
    signal.SIGKILL: Category.OUT_OF_MEMORY,
}

FULL_WHILE_MAPPED = "the disk filled up while a file on it was mapped in memory (SIGBUS)"
"""Says of an attempt why it ended by a signal that costs its task nothing."""

_OF_USER_CODE = (
    Category.USER_CODE_FAILED,
    Category.USER_CODE_TIMED_OUT,
    Category.OUT_OF_MEMORY,
)

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# GDAL and HDF5 keep no errno, but write the system's words or number into their own texts.
_WITHOUT_ERRNO = ("rasterio", "h5py", "netCDF4", "zarr")
_FULL = re.compile(
    "|".join([*map(os.strerror, _DISK_FULL), rf"errno = ({'|'.join(map(str, _DISK_FULL))})\b"]),
    re.IGNORECASE,
)


def classify(error: BaseException, *, now: float | None = None) -> Diagnosis:
    """Diagnose an exception, by itself or by what caused it.

    `now` (POSIX seconds) serves to read a Retry-After that is a date.
    """
    text = "".join(traceback.format_exception(error))
    if decisive := _decisive(error):
        cause, category = decisive
        return Diagnosis(
            category=category,
            message=_line(error, cause),
            traceback="" if _is_of_user_code(cause) else text,
            asked=_asked(cause, time.time() if now is None else now),
            healing=cause.healing if isinstance(cause, AttemptError) else 0,
        )
    refused = any(isinstance(cause, StoreError) for cause in _causes(error))
    return Diagnosis(
        category=Category.STORAGE_CLIENT_ERROR if refused else Category.UNKNOWN,
        message=f"{type(error).__name__}: {error}",
        traceback=text,
    )


def classify_exit(code: int) -> Diagnosis:
    """Diagnose a child that ended without a report; negative codes are signals."""
    if code >= 0:
        message = f"the attempt's process ended with exit code {code} and no report"
        return Diagnosis(category=Category.UNKNOWN, message=message)
    known = {number.value: number for number in signal.Signals}.get(-code)
    name = known.name if known else f"signal {-code}"
    return Diagnosis(
        category=_SIGNALS.get(known, Category.UNKNOWN) if known else Category.UNKNOWN,
        message=f"the attempt's process was ended by {name}"
        + (", as the system does when memory runs out" if known is signal.SIGKILL else ""),
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_CHAIN):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _decisive(error: BaseException) -> tuple[BaseException, Category] | None:
    """Return the cause that decides, with its category: a full disk, else the first that is known.

    No cause behind an AttemptError counts.
    """
    first: tuple[BaseException, Category] | None = None
    for cause in _causes(error):
        if _is_full(cause):
            return cause, Category.OUT_OF_DISK
        if first is None and (category := _category(cause)) is not None:
            first = cause, category
        if isinstance(cause, AttemptError):
            break
    return first


def _is_of_user_code(error: BaseException) -> bool:
    """Tell whether a reduction's own program failed, as those say who watched it."""
    return isinstance(error, AttemptError) and error.category in _OF_USER_CODE


def _category(error: BaseException) -> Category | None:
    if isinstance(error, AttemptError):
        return error.category
    # Only where it is used: importing them is a third of the time every process takes to start.
    if type(error).__module__.startswith("azure."):
        from tasks.service import azure_failures

        return azure_failures.category_of(error)
    if type(error).__module__.startswith("httpx"):
        from tasks.service import http_failures

        return http_failures.category_of(error)
    for types, category in _TYPES:
        if isinstance(error, types):
            return category
    if isinstance(error, OSError) and error.errno is not None:
        return _ERRNOS.get(error.errno)
    return None


def _is_full(error: BaseException) -> bool:
    """Tell whether an error is that of a full disk, by type or errno; words are a stranger's.

    Only where a library of rasters says no errno, its own words count.
    """
    if isinstance(error, StorageFullError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _DISK_FULL
    library = type(error).__module__.partition(".")[0] in _WITHOUT_ERRNO
    hdf5 = type(error) in (OSError, RuntimeError)  # what h5py raises
    return (library or hdf5) and _FULL.search(str(error)) is not None


def _asked(error: BaseException, now: float) -> float:
    if isinstance(error, archives.ServerBusyError):
        return error.retry_after or 0.0
    response = getattr(error, "response", None)
    headers = getattr(response, "headers", None)
    if headers is None:
        return 0.0
    if milliseconds := headers.get("x-ms-retry-after-ms"):
        return _seconds(milliseconds, now) / 1000
    return _seconds(headers.get("Retry-After") or "0", now)


def _seconds(text: str, now: float) -> float:
    """Read a Retry-After in seconds from now: a number, or a date (RFC 9110, section 10.2.3)."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except ValueError:
        return 0.0


def _line(error: BaseException, cause: BaseException) -> str:
    """One line that names the failure; where a cause decided, the cause too."""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if cause is error:
        return first
    return f"{first} ({(str(cause).strip().splitlines() or [type(cause).__name__])[0]})"
