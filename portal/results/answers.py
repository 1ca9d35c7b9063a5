"""The HTTP API's answers about results, made of what is stored."""

from urllib.parse import quote

from pydantic import Field

from portal.results.result_files import ResultFile
from tasks.answers.answer import Answer
from tasks.answers.results import GapAnswer, MissingAnswer, ResultAnswer


def result_answer(request: str, result: ResultFile) -> ResultAnswer:
    """Build the answer for a result of a request."""
    said = result.file.completeness
    return ResultAnswer(
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


class ManifestAnswer(Answer):
    """All finished files of a request, and the gaps it has."""

    request: str
    title: str
    state: str
    complete: bool
    files: tuple[ResultAnswer, ...]
    gaps: tuple[GapAnswer, ...]
    notes: tuple[str, ...] = Field(
        description="What the plan notes, such as days that have near real time granules."
    )
