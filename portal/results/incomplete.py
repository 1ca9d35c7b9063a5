"""The inputs that a result lacks, as its row and its page show them."""

from dataclasses import dataclass
from typing import Self

from reprojection.read.completeness import WHOLE, Completeness
from tasks.requests.gaps import JoinedGap, in_percent, join_gaps
from tasks.requests.plan import Gap


@dataclass(frozen=True, kw_only=True)
class IncompleteView:
    """The inputs that a result lacks, joined over its dates; `unnamed` more are not listed."""

    share: str
    count: int
    missing: tuple[JoinedGap, ...]
    unnamed: int

    @classmethod
    def of(cls, said: Completeness) -> Self | None:
        """Build the view for a result; return None if the result lacks nothing."""
        if said == WHOLE:
            return None
        named = join_gaps([Gap(what=one.what, reason=one.why) for one in said.missing])
        return cls(
            share=in_percent(said.share),
            count=said.count,
            missing=tuple(named),
            unnamed=said.unnamed,
        )
