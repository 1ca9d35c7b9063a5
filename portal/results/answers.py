"""The models of the HTTP API's answers about results and what they lack."""

from typing import Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from portal.results.result_files import ResultFile


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class GapAnswer(_Answer):
    """Something the request asked for that cannot be had.

    `affects` holds the paths of the results that lack it; only the list of all gaps fills it.
    """

    what: str
    why: str
    affects: tuple[str, ...] = ()


class MissingAnswer(_Answer):
    """An expected input that a result was made without."""

    what: str
    why: str


class ResultAnswer(_Answer):
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

    @classmethod
    def of(cls, request: str, result: ResultFile) -> Self:
        """Build the answer for a result of a request."""
        said = result.file.completeness
        return cls(
            name=result.path,
            size=result.file.size,
            sha256=result.file.sha256,
            url=f"/api/requests/{request}/results/{quote(result.path)}",
            blob=result.file.blob,
            completeness=said.share,
            missing=tuple(MissingAnswer(what=one.what, why=one.why) for one in said.missing),
            missing_count=said.count,
            valid_share=result.file.valid_share,
        )


class ManifestAnswer(_Answer):
    """All finished files of a request, and the gaps it has."""

    request: str
    title: str
    state: str
    complete: bool
    files: tuple[ResultAnswer, ...]
    gaps: tuple[GapAnswer, ...]
