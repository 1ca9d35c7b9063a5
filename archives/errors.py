"""What can go wrong with an archive. Each error is one cause, so that its category is certain."""

from collections.abc import Sequence


class ArchiveError(Exception):
    """Root of every error this room raises on purpose."""


class NotPublishedError(ArchiveError):
    """The archive does not hold the granule (any more, or yet)."""


class DownloadFailedError(ArchiveError):
    """The archive answered, but what came is incomplete or not what was announced."""


class ConnectionFailedError(ArchiveError):
    """No connection to the archive could be made, or it was cut."""


class ArchiveTimeoutError(ArchiveError):
    """The archive accepted the call and did not answer in time."""


class AnswerBrokenError(ArchiveError):
    """The archive's answer broke the protocol: malformed HTTP or FTP."""


class ServerBusyError(ArchiveError):
    """The archive asked us to slow down; `retry_after` is the delay it named, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CredentialsRefusedError(ArchiveError):
    """The archive refused our credentials, or wants the user to accept its terms first."""


class TokenRefusedError(CredentialsRefusedError):
    """The token is missing, expired or not valid."""


class LicenceNotAcceptedError(CredentialsRefusedError):
    """The archive wants the user to accept its licence or to approve an application first."""


class NotPermittedError(CredentialsRefusedError):
    """The archive knows the user and does not let this user have the file."""


class SignatureExpiredError(CredentialsRefusedError):
    """A signed URL is not good any more; sign it again."""


class IndexUnusableError(ArchiveError):
    """A folder archive's folder or index cannot be read or written."""


class SourcesSettingError(ArchiveError):
    """The settings name no source of granules, or one that is none."""


_SOONEST = (
    ServerBusyError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    AnswerBrokenError,
    DownloadFailedError,
    CredentialsRefusedError,
    NotPublishedError,
)


def soonest(errors: Sequence[ArchiveError]) -> ArchiveError:
    """Of several reasons the one to act on: what passes before what stays, else the first."""

    def patience(error: ArchiveError) -> int:
        places = (place for place, kind in enumerate(_SOONEST) if isinstance(error, kind))
        return next(places, len(_SOONEST))

    return min(errors, key=patience)
