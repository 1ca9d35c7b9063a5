"""Failure categories: why an attempt or a task did not succeed, and what follows from it."""

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """Every way an execution can end without success. ModisAzure's list, then ours."""

    DOWNLOAD_FAILED = "download failed"
    CONNECTION_FAILURE = "connection failure"
    OPERATION_TIMEOUT = "operation timeout"
    SERVER_BUSY = "server busy"
    CORRUPT_BLOB_READ = "corrupt blob read"
    BLOB_READ_FAILED = "blob read failed"
    SOURCE_BLOB_MISSING = "source blob missing"
    UNREADABLE_INPUT_FILE = "unreadable input file"
    BAD_IMAGE_FORMAT = "bad image format"
    TRANSPORT_ERROR = "transport error"
    STORAGE_CLIENT_ERROR = "storage client error"
    OUT_OF_DISK = "out of disk"
    DISK_SHARED = "no room on disk"
    EXECUTION_TIMEOUT = "execution timeout"
    UNKNOWN = "unknown"
    WORKER_LOST = "worker lost"
    HOST_FAILED = "host failed"
    OUT_OF_MEMORY = "out of memory"
    SOURCE_NOT_PUBLISHED = "source not published"
    CREDENTIALS_REFUSED = "credentials refused"
    UPSTREAM_FAILED = "upstream failed"
    CHOICE_REFUSED = "choice refused"
    TOO_FEW_VALUES = "too few values"
    USER_CODE_FAILED = "user code failed"
    USER_CODE_TIMED_OUT = "user code timed out"
    CANCELLED = "cancelled"


class Retry(StrEnum):
    """What is done after an attempt failed."""

    BACK_OFF = "back off"  # again after an exponential delay, within the retry budget
    ELSEWHERE = "elsewhere"  # as BACK_OFF, without spending the budget; it ends after ten losses
    ONCE = "once"  # one more attempt, then give up
    NEVER = "never"  # the same attempt would fail the same way
    AT_ONCE = "at once"  # again without delay and without spending the retry budget
    HEAL = "heal"  # the input is made again first; this task waits for it
    REPAIR = "repair"  # as HEAL for an input that is damaged; else the attempt would fail again


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a category means: shown to scientists and operators, obeyed by the state machine."""

    cause: str
    retry: Retry
    remedy: str


RULES: dict[Category, Rule] = {
    Category.DOWNLOAD_FAILED: Rule(
        cause="The archive sent a file that is incomplete or not what it announced.",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically. If it persists, tell the archive that its copy is damaged.",
    ),
    Category.CONNECTION_FAILURE: Rule(
        cause="No connection to the archive or to storage could be made, or it was cut.",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically. If it persists, check the network and the server's address.",
    ),
    Category.OPERATION_TIMEOUT: Rule(
        cause="A server accepted the call and did not answer in time.",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically. If it persists, the server is overloaded.",
    ),
    Category.SERVER_BUSY: Rule(
        cause="The archive or storage asked us to slow down (429 or 503).",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically after the delay the server asked for, six hours at most.",
    ),
    Category.CORRUPT_BLOB_READ: Rule(
        cause="A blob's content does not match its recorded checksum.",
        retry=Retry.HEAL,
        remedy="An input is made again automatically; for a package, submit again. Check the disk.",
    ),
    Category.BLOB_READ_FAILED: Rule(
        cause="Storage failed while a blob was being read.",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically. If it persists, check the storage account, or the disk.",
    ),
    Category.SOURCE_BLOB_MISSING: Rule(
        cause="An input recorded as made is no longer in storage.",
        retry=Retry.HEAL,
        remedy="It is made again automatically, then this task runs. For packages, submit again.",
    ),
    Category.UNREADABLE_INPUT_FILE: Rule(
        cause="The granule is damaged, crashes its reader, or lacks the geolocation asked for.",
        retry=Retry.REPAIR,
        remedy="See `swathmill archive check` and `inspect`; replace the damaged file, and retry.",
    ),
    Category.BAD_IMAGE_FORMAT: Rule(
        cause="The file is not in the format its name promises (a web page named .hdf, say).",
        retry=Retry.NEVER,
        remedy="Fetch the file by hand and look at its first bytes; check the archive's address.",
    ),
    Category.TRANSPORT_ERROR: Rule(
        cause="An answer broke the protocol (truncated or malformed HTTP or FTP).",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically. If it persists, look for a proxy before the server.",
    ),
    Category.STORAGE_CLIENT_ERROR: Rule(
        cause="Storage refused a call as wrong (4xx): a limit, a name, a permission.",
        retry=Retry.ONCE,
        remedy="Read the log for the error code; check the account's permissions and limits.",
    ),
    Category.OUT_OF_DISK: Rule(
        cause="The worker's or the stack's disk or its quota is full; no other attempt fills it.",
        retry=Retry.BACK_OFF,
        remedy="Free space, or raise SWATHMILL_DISK_QUOTA_GB or SWATHMILL_CACHE_GB.",
    ),
    Category.DISK_SHARED: Rule(
        cause="The worker's disk was full, and other attempts had filled part of it; or it filled "
        "up while a file on it was mapped in memory.",
        retry=Retry.ELSEWHERE,
        remedy="Retried automatically, ten times at most, at no cost to the task's other tries. "
        "If it persists, give the machine more disk or fewer slots.",
    ),
    Category.EXECUTION_TIMEOUT: Rule(
        cause="The attempt passed its time limit (4x the mean of its class), or was about to.",
        retry=Retry.BACK_OFF,
        remedy="Retried automatically with twice the time. If it persists, see the attempt's log.",
    ),
    Category.UNKNOWN: Rule(
        cause="Nothing we know of; the traceback is in the attempt's log.",
        retry=Retry.BACK_OFF,
        remedy="Report it with the traceback: each unknown failure is a bug in Swathmill.",
    ),
    Category.WORKER_LOST: Rule(
        cause="The worker stopped answering: it died, was stopped, or lost its network.",
        retry=Retry.ELSEWHERE,
        remedy="Retried automatically, ten times at most, at no cost to the task's other tries. "
        "If it persists, look at the machine.",
    ),
    Category.HOST_FAILED: Rule(
        cause="The machine failed before the attempt's own work began, or its disk cannot be "
        "written: no scratch folder, no child, no sandbox, or no storage folder.",
        retry=Retry.AT_ONCE,
        remedy="Retried automatically at no cost; the worker takes no more until it has tested "
        "itself. Look at the machine: the operators' page says what its self-test met.",
    ),
    Category.OUT_OF_MEMORY: Rule(
        cause="The attempt used more memory than its limit and was killed.",
        retry=Retry.ONCE,
        remedy="Ask for a coarser grid or a smaller region, or raise `memory_gb` of the package, "
        "for other work SWATHMILL_ATTEMPT_MEMORY_GB.",
    ),
    Category.SOURCE_NOT_PUBLISHED: Rule(
        cause="The archive does not have the granule (any more).",
        retry=Retry.NEVER,
        remedy="Nothing to do: the request lists it as a gap.",
    ),
    Category.CREDENTIALS_REFUSED: Rule(
        cause="The archive refused the credentials, or sent a sign-in page instead of the file.",
        retry=Retry.NEVER,
        remedy="Renew the archive's token and accept its licence, then submit the request again.",
    ),
    Category.UPSTREAM_FAILED: Rule(
        cause="An input could not be made, so this could not be made either.",
        retry=Retry.NEVER,
        remedy="Look at the inputs' failures; submit again once they are mended.",
    ),
    Category.CHOICE_REFUSED: Rule(
        cause="The request's options do not suit what its granules or rasters turned out to hold; "
        "none of them has the layer.",
        retry=Retry.NEVER,
        remedy="Change what the message names in the request and submit it again.",
    ),
    Category.TOO_FEW_VALUES: Rule(
        cause="Fewer pixels of a group hold a value than its package or step requires.",
        retry=Retry.NEVER,
        remedy="Nothing, or set a smaller share of pixels in `requires` of the reduction's step.",
    ),
    Category.USER_CODE_FAILED: Rule(
        cause="The reduction's executable ended with an error or without its declared outputs.",
        retry=Retry.NEVER,
        remedy="Read its output in the attempt's log, mend the package and submit again.",
    ),
    Category.USER_CODE_TIMED_OUT: Rule(
        cause="The reduction's executable ran longer than its package's own time limit.",
        retry=Retry.NEVER,
        remedy="Raise the package's time limit or make it faster.",
    ),
    Category.CANCELLED: Rule(
        cause="Nobody wants the task any more, or its worker was shut down and handed it back.",
        retry=Retry.AT_ONCE,
        remedy="Nothing to do.",
    ),
}
