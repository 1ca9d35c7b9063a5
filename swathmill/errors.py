"""Errors of the command and the stack. Each names the problem and the remedy."""

from tasks.errors import SwathmillError


class StackError(SwathmillError):
    """The stack, or a part of it, cannot start or run."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy
