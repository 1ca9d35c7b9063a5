"""What a group must have for a run of a reduction; without it the group is a gap, and no run."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from tasks.refusal_wording import FieldWords
from tasks.strict_model import StrictModel

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Requires(StrictModel):
    """What one run needs.

    `dates`: any date, one of every product and step that it takes, or this share of the dates that
    are expected. `pixels`: the share of the pixels of all its bands that hold a value.
    """

    dates: Annotated[
        Literal["any", "all"] | Share,
        FieldWords(what="what a run must have of the dates", remedy="Write any, all, or a share."),
    ] = "any"
    pixels: Annotated[
        float,
        Field(ge=0.0, le=1.0),
        FieldWords(what="a share", remedy="Write a number from 0 to 1, like 0.5."),
    ] = 0.0


def _of_dates(value: object) -> object:
    """Read a word or a share as what is said of the dates: `requires: all`."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return {"dates": value}
    return value


RequiresField = Annotated[Requires, BeforeValidator(_of_dates)]
"""What a run must have, as documents write it."""
