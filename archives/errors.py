"""The errors of archives; each class has one cause, so that its category is certain."""

from collections.abc import Sequence


class ArchiveError(Exception):
    """Root of every error that `archives` raises on purpose."""


class NotPublishedError(ArchiveError):
    """The archive does not hold the granule: not yet, or no longer."""


class DownloadFailedError(ArchiveError):
    """The archive answered, but the data is incomplete or not what was announced."""


class UnlikeRecordError(DownloadFailedError):
    """What came is not what was listed: another size, checksum or granule."""


class NotGranuleError(UnlikeRecordError):
    """Something else came in place of the granule, or a part of it.

    `kind` says it in two words: `no granule`, `truncated` or `damaged`.
    """

    def __init__(self, message: str, kind: str = "no granule") -> None:
        super().__init__(message)
        self.kind = kind


class DamagedCopyError(ArchiveError):
    """The granule came as listed, and its content cannot be read.

    `again` tells that it may have been damaged on its way: another fetch may bring a good copy.
    """

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class ConnectionFailedError(ArchiveError):
    """The connection to the archive could not be made, or it was cut."""


class ProxyUnusableError(ConnectionFailedError):
    """The environment names a proxy that cannot be used."""


class ArchiveTimeoutError(ArchiveError):
    """The archive accepted the call but did not answer in time."""


class AnswerBrokenError(ArchiveError):
    """The archive's answer broke the protocol: malformed HTTP or FTP."""


class ServerBusyError(ArchiveError):
    """The archive asked for a slower pace; `retry_after` is the delay it named, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoPlaceError(ArchiveError):
    """Swathmill's own limit of connections to the host is reached; the archive was not asked."""


class CredentialsRefusedError(ArchiveError):
    """The archive refused the credentials, or requires the user to accept its terms first."""


class TokenRefusedError(CredentialsRefusedError):
    """The token is missing, expired or not valid."""


class LicenceNotAcceptedError(CredentialsRefusedError):
    """The archive requires the user to accept its licence or approve an application first."""


class NotPermittedError(CredentialsRefusedError):
    """The archive knows the user but does not permit this user to read the file."""


class SignatureExpiredError(CredentialsRefusedError):
    """A signed URL has expired; sign it again."""


class IndexUnusableError(ArchiveError):
    """A folder archive's folder or index cannot be read or written."""


class SourcesSettingError(ArchiveError):
    """The settings name no source of granules, or an unknown one, or a token cannot be sent."""


_SOONEST = (
    NoPlaceError,
    ServerBusyError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    AnswerBrokenError,
    DownloadFailedError,
    DamagedCopyError,
    CredentialsRefusedError,
    NotPublishedError,
)


def soonest(errors: Sequence[ArchiveError]) -> ArchiveError:
    """Choose the error to act on: one that may pass before one that stays, else the first."""

    def patience(error: ArchiveError) -> int:
        places = (place for place, kind in enumerate(_SOONEST) if isinstance(error, kind))
        return next(places, len(_SOONEST))

    return min(errors, key=patience)
