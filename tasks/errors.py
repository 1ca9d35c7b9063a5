"""One error tree: each error says what was wrong, with what value, and what to do."""


class SwathmillError(Exception):
    """The root of every error Swathmill raises on purpose."""


class RequestRefusedError(SwathmillError):
    """A request document cannot be accepted.

    `field` is the dotted path of the offending field, `remedy` what the scientist can do. `also`
    are the other errors of the same document.
    """

    def __init__(
        self,
        field: str,
        problem: str,
        remedy: str,
        also: tuple["RequestRefusedError", ...] = (),
    ) -> None:
        super().__init__(f"{field}: {problem} {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy
        self.also = also


def refusal_of(field: str, text: str, otherwise: str = "") -> RequestRefusedError:
    """Make the refusal of a field by an error whose text is `problem; remedy`.

    `otherwise` is the remedy of one that says none.
    """
    problem, _, remedy = text.partition("; ")
    remedy = remedy or otherwise
    said = f"{remedy[0].upper()}{remedy[1:]}." if remedy else ""
    return RequestRefusedError(field, f"{problem.rstrip('.')}.", said)


class StoreError(SwathmillError):
    """A call to storage failed, and whether it took effect is unknown: read the row again."""


class StorageFullError(StoreError):
    """The disk of embedded storage is full: nothing was written, and nothing is lost."""


class ConflictError(StoreError):
    """A transaction was refused whole: an ETag did not match, a row existed, or one was absent."""


class FencedError(SwathmillError):
    """Someone else acts now: the task's claim or the manager's epoch has moved on."""


class BlobMissingError(SwathmillError):
    """A blob that should be in storage is not there. `blob` is its `container/name`."""

    def __init__(self, blob: str) -> None:
        super().__init__(f"blob {blob} is not in storage")
        self.blob = blob


class CorruptBlobError(SwathmillError):
    """A blob's content does not match its recorded checksum."""

    def __init__(self, blob: str, expected: str, found: str) -> None:
        super().__init__(f"blob {blob} has the checksum {found}, recorded was {expected}")
        self.blob = blob
        self.found = found


class BlobNameError(SwathmillError):
    """Storage cannot keep a blob under its name."""

    def __init__(self, blob: str, why: str) -> None:
        super().__init__(f"blob {blob} cannot be stored under this name: {why}")


class BlobExistsError(SwathmillError):
    """A blob of this name exists with other content; nothing in storage is overwritten."""

    def __init__(self, blob: str) -> None:
        super().__init__(f"blob {blob} exists with other content and is not overwritten")
        self.blob = blob
