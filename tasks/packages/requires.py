"""What a group must have for a run of a reduction; without it the group is a gap, and no run."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class Requires(BaseModel):
    """What one run needs.

    `dates`: any date, one of every product and step that it takes, or this share of the dates that
    are expected. `pixels`: the share of the pixels of all its bands that hold a value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dates: Literal["any", "all"] | Share = "any"
    pixels: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0


def _of_dates(value: object) -> object:
    """Read a word or a share as what is said of the dates: `requires: all`."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return {"dates": value}
    return value


RequiresField = Annotated[Requires, BeforeValidator(_of_dates)]
"""What a run must have, as documents write it."""
