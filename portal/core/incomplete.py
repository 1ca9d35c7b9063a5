"""What a result was made without, as its row and its page show it."""

from dataclasses import dataclass
from typing import Self

from reprojection.read.completeness import WHOLE, Completeness
from tasks.model.gaps import JoinedGap, in_percent, join_gaps
from tasks.model.plan import Gap


@dataclass(frozen=True, kw_only=True)
class IncompleteView:
    """What a result was made without, joined over its dates; `unnamed` more are named elsewhere."""

    share: str
    count: int
    missing: tuple[JoinedGap, ...]
    unnamed: int

    @classmethod
    def of(cls, said: Completeness) -> Self | None:
        """That of a result; None when it lacks nothing."""
        if said == WHOLE:
            return None
        named = join_gaps([Gap(what=one.what, reason=one.why) for one in said.missing])
        return cls(
            share=in_percent(said.share),
            count=said.count,
            missing=tuple(named),
            unnamed=said.unnamed,
        )
