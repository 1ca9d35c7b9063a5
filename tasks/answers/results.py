"""Answers about results and what they lack."""

from pydantic import Field

from tasks.answers.answer import Answer


class GapAnswer(Answer):
    """Something the request asked for that cannot be had.

    `affects` holds the paths of the results that lack it; only the list of all gaps fills it.
    """

    what: str
    why: str
    affects: tuple[str, ...] = ()


class MissingAnswer(Answer):
    """An expected input that a result was made without."""

    what: str
    why: str


class ResultAnswer(Answer):
    """One finished file. `name` is its path among the results, `url` its download address.

    `blob` is its place in storage, for commands on the machine that keeps it.
    """

    name: str
    size: int
    sha256: str
    url: str
    blob: str
    completeness: float = Field(1.0, description="Share of the expected inputs that it is made of.")
    missing: tuple[MissingAnswer, ...] = Field((), description="Expected inputs that it lacks.")
    missing_count: int = Field(0, description="How many it lacks; the first 100 are named.")
    valid_share: float | None = Field(
        None, description="Share of a raster's pixels that have a value; null for other files."
    )
