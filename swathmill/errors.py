"""Errors of the command and the stack; each names the problem and the remedy."""

from functools import partial

from tasks.errors import RequestRefusedError, SwathmillError


class StackError(SwathmillError):
    """The stack, or a part of it, cannot start or run."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


class ArgumentError(StackError):
    """An argument, an option or a setting cannot be used."""


class ApiError(StackError):
    """The portal cannot be reached, or failed."""


class JobFailedError(StackError):
    """A request that was waited for has ended without its results, or does not go on."""


class BrokenOffError(ApiError):
    """A download was interrupted before its end."""


class RefusedError(SwathmillError):
    """The portal refused a call because of what the call contains.

    `also` holds the other errors of the same document.
    """

    def __init__(
        self,
        *,
        field: str,
        problem: str,
        remedy: str,
        status: int,
        also: tuple[RequestRefusedError, ...] = (),
    ) -> None:
        super().__init__(f"{field}: {problem} {remedy}" if field else f"{problem} {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy
        self.status = status
        self.also = also

    def __reduce__(self) -> tuple[partial["RefusedError"], tuple[()]]:
        """Pickle by arguments, because errors pass from a reading process to the command's."""
        made = partial(
            type(self),
            field=self.field,
            problem=self.problem,
            remedy=self.remedy,
            status=self.status,
        )
        return made, ()
