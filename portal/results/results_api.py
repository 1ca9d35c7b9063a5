"""The HTTP API of a request's results: the list, one file, the manifest, all as a ZIP."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse

from portal.results.answers import ManifestAnswer, result_answer
from portal.results.downloads import manifest_text, send_archive, send_file
from portal.results.layers import selected
from portal.results.result_files import SHORTLY, ResultFile
from portal.results.state import Results
from portal.serving.access import read_for
from portal.serving.addresses import PAGE, ListLimit, PartLimit, numbers_of, part_of_list
from portal.serving.attachments import attachment
from portal.serving.identity import Reader
from portal.serving.late_routes import Router
from portal.serving.portal import CurrentPortal, Portal
from portal.serving.problems import NotFoundError
from portal.serving.repeated_calls import made_from_row
from tasks.answers.results import GapAnswer, ResultAnswer
from tasks.requests.request_table import RequestRow

router = Router(prefix="/api", tags=["requests"])


@router.get("/requests/{request_id}/results", summary="Finished results")
def results(
    request_id: str,
    request: Request,
    response: Response,
    caller: Reader,
    portal: CurrentPortal,
    limit: ListLimit = PAGE,
    after: Annotated[str, Query(description="A result's path: only those after it.")] = "",
) -> list[ResultAnswer]:
    """List the files that are finished so far, by path; the manifest lists all in one answer."""
    row = read_for(portal.runtime, caller, request_id)
    made_from_row(request, caller, row, SHORTLY)
    files = portal.state(Results).index.files(portal.runtime, row)
    paths = list(files)
    page = part_of_list(
        portal.settings, request, response, paths, bisect_right(paths, after), limit
    )
    return _results(row.id, map(files.__getitem__, paths[page]))


@router.head("/requests/{request_id}/results/{path:path}", include_in_schema=False)
@router.get(
    "/requests/{request_id}/results/{path:path}",
    response_class=StreamingResponse,
    summary="One result",
)
def result(
    request_id: str, path: str, request: Request, caller: Reader, portal: CurrentPortal
) -> Response:
    """Return the file, with its length, its SHA-256 as ETag, and byte ranges.

    Where the portal is set so, the answer is a redirection (307) to the file in storage, by a link
    that ends after some minutes.
    """
    row = read_for(portal.runtime, caller, request_id)
    found = portal.state(Results).index.find(portal.runtime, row, path)
    reader = portal.state(Results).index.reader(portal.runtime, row)
    seconds = portal.settings.result_link_minutes * 60
    return send_file(request, reader, reader.current(found), link_seconds=seconds)


@router.get(
    "/requests/{request_id}/manifest",
    response_model=ManifestAnswer,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    summary="Manifest of results",
)
def manifest(
    request_id: str,
    request: Request,
    response: Response,
    caller: Reader,
    portal: CurrentPortal,
    form: Annotated[
        str,
        Query(
            alias="format",
            pattern="^(json|sha256)$",
            description="JSON, or what `sha256sum -c` reads.",
        ),
    ] = "json",
    limit: PartLimit = None,
    after: Annotated[
        str,
        Query(
            pattern="^(/[0-9]{1,9}|[^/].*)?$",
            description="A result's path: only those after it, and all gaps. Or `/` and a number: "
            "only the gaps after so many.",
        ),
    ] = "",
) -> ManifestAnswer | Response:
    """List all finished files with size and SHA-256; `format=sha256` suits `sha256sum --check`.

    With `limit` a page has so many files and gaps together; the gaps follow the files.
    """
    row = read_for(portal.runtime, caller, request_id)
    files = portal.state(Results).index.files(portal.runtime, row)
    every = gaps_of(portal, row) if form == "json" else []
    paths = list(files)
    keys = [*paths, *(f"/{number}" for number in numbers_of(every))]
    begin = len(paths) + int(after[1:]) if after.startswith("/") else bisect_right(paths, after)
    page = part_of_list(portal.settings, request, response, keys, begin, limit)
    shown = [files[path] for path in paths[page]]
    if form == "sha256":
        return PlainTextResponse(
            b"".join(manifest_text(shown)),
            headers={
                **response.headers,
                "Content-Disposition": attachment(f"{row.id}.sha256"),
            },
        )
    first, last = (max(0, place - len(paths)) for place in (page.start, page.stop))
    return ManifestAnswer(
        request=row.id,
        title=row.title,
        state=row.state.value,
        complete=row.state.ended,
        files=tuple(_results(row.id, shown)),
        gaps=tuple(every[first:last]),
        notes=row.notes,
    )


@router.get(
    "/requests/{request_id}/archive.zip",
    response_class=StreamingResponse,
    summary="All finished results as one ZIP",
)
def archive(
    request_id: str,
    caller: Reader,
    portal: CurrentPortal,
    below: Annotated[str, Query(description="Only results whose path begins with this.")] = "",
    layer: Annotated[
        list[str] | None, Query(description="Only these layers, by folder and name without date.")
    ] = None,
    start: Annotated[str, Query(description="Only results of this date or later.")] = "",
    end: Annotated[str, Query(description="Only results of this date or earlier.")] = "",
) -> Response:
    """Return a ZIP without compression; it is built while it is sent.

    Beside the results it holds the request, a summary, what to cite, how to open the files,
    scripts for curl, Python and R, and a QGIS project.
    """
    row = read_for(portal.runtime, caller, request_id)
    every = portal.state(Results).index.files(portal.runtime, row)
    found = selected(
        {path: item for path, item in every.items() if path.startswith(below)},
        layer or (),
        start,
        end,
    )
    if not found:
        chosen = below or layer or start or end
        raise NotFoundError(
            f"Request {row.id} has no finished result{' of this selection' if chosen else ''} yet.",
            "Try again when its page shows results"
            + (", or choose other layers and dates." if chosen else "."),
        )
    reader = portal.state(Results).index.reader(portal.runtime, row)
    texts = portal.state(Results).texts(row, found)
    return send_archive(reader, found.values(), f"swathmill-{row.id}.zip", texts)


def gaps_of(portal: Portal, row: RequestRow) -> list[GapAnswer]:
    """Describe all gaps of a request, each with the results that lack it."""
    gaps, affects = portal.state(Results).index.gaps(portal.runtime, row)
    return [
        GapAnswer(what=gap.what, why=gap.reason, affects=affects.get(gap.what, ())) for gap in gaps
    ]


def _results(request: str, files: Iterable[ResultFile]) -> list[ResultAnswer]:
    return [result_answer(request, item) for item in files]
