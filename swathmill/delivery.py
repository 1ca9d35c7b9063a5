"""Write what a run leaves in its output folder: results, the mail, a summary, a picture."""

import datetime as dt
import email
import email.policy
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.listing import worth_listing
from tasks.answers.requests import FailureAnswer, PhaseAnswer
from tasks.answers.results import GapAnswer, MissingAnswer, ResultAnswer
from tasks.bag.model import RequestState
from tasks.packages.items import without_items

EXIT_CODES = {RequestState.COMPLETE: 0, RequestState.REFUSED: 2, RequestState.GAPS: 3}
EXIT_FAILED = 1  # exit code of a command whose request ended in any other state
MAIL_WAIT_SECONDS = 30.0
POLL_SECONDS = 0.05
_AT_ONCE = 4  # downloads


class SummaryFile(BaseModel):
    """One file that was written, with the inputs it lacks."""

    model_config = ConfigDict(frozen=True)

    name: str
    size: int
    sha256: str
    completeness: float = 1.0
    missing: tuple[MissingAnswer, ...] = ()
    missing_count: int = 0
    valid_share: float | None = None


class Summary(BaseModel):
    """The outcome of a request; `summary.json` in the output folder."""

    model_config = ConfigDict(frozen=True)

    schema_number: int = 1
    request: str
    title: str
    state: RequestState
    message: str
    submitted: dt.datetime | None
    ended: dt.datetime | None
    phases: dict[str, PhaseAnswer]
    gaps: tuple[GapAnswer, ...]
    failures: tuple[FailureAnswer, ...]
    files: tuple[SummaryFile, ...]
    mails: tuple[str, ...]
    picture: str


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The files that were written, and their paths."""

    summary: Summary
    summary_path: Path
    results: tuple[Path, ...]
    mails: tuple[Path, ...]
    picture: Path | None


class ResultFetcher:
    """Downloads a request's results into a folder, several at once, from the first one on.

    `arrived` is called with each file that is there while the request runs, in any thread; not with
    STAC items.
    """

    def __init__(
        self,
        client: Client,
        request_id: str,
        folder: Path,
        arrived: Callable[[Path], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._request = request_id
        self._folder = folder
        self._arrived = arrived
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._listing: Future[list[ResultAnswer]] | None = None
        self._listed = 0  # how many results there were when they were listed last
        self._all = False  # the request had ended then
        self._files: dict[ResultAnswer, Future[Path]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Begin no further download, and wait for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, status: RequestStatus) -> None:
        """Begin to download what was made since the last look; of many results, some together."""
        listing = self._listing is not None and not self._listing.done()
        if worth_listing(status.delivered, self._listed) and not listing:
            self._listed, self._all = status.delivered, status.state.ended
            self._listing = self._pool.submit(self._list)

    def finish(self, *, tick: Callable[[], None]) -> list[tuple[ResultAnswer, Path]]:
        """Download the rest, and again what failed before; return every result and its file."""
        listing = self._listing
        if listing is not None:
            self._await([listing], tick)
        self._await([*self._files.values()], tick)
        if listing is not None and self._all and not listing.exception():
            results = listing.result()
        else:
            results = self._client.results(self._request)
        files = [self._download(result) for result in results]
        self._await(files, tick)
        return [(result, file.result()) for result, file in zip(results, files, strict=True)]

    def _list(self) -> list[ResultAnswer]:
        results = self._client.results(self._request)
        counted = set(without_items(result.name for result in results))
        for result in results:
            self._download(result, tell=result.name in counted)
        return results

    def _download(self, result: ResultAnswer, *, tell: bool = False) -> Future[Path]:
        begun = self._files.get(result)
        if begun is None or (begun.done() and begun.exception()):
            begun = self._pool.submit(self._fetch, result, tell)
            self._files[result] = begun
        return begun

    def _fetch(self, result: ResultAnswer, tell: bool) -> Path:
        path = self._client.download(result, self._folder)
        if tell:
            self._arrived(path)
        return path

    @staticmethod
    def _await(futures: Sequence[Future[Any]], tick: Callable[[], None]) -> None:
        while wait(futures, timeout=POLL_SECONDS).not_done:
            tick()


def collect_mails(
    caught: Path, seen: frozenset[str], folder: Path, *, expected: bool, tick: Callable[[], None]
) -> tuple[Path, ...]:
    """Copy the mails that arrived after `seen` was taken; wait a while for an expected one."""
    deadline = time.monotonic() + (MAIL_WAIT_SECONDS if expected else 0.0)
    while True:
        new = sorted(path for path in caught.glob("*.eml") if path.name not in seen)
        if new or time.monotonic() >= deadline:
            break
        tick()
        time.sleep(POLL_SECONDS)
    folder.mkdir(parents=True, exist_ok=True)
    copies = []
    for path in new:
        copy = folder / f"mail-{path.name}"
        copy.write_bytes(path.read_bytes())
        copies.append(copy)
    return tuple(copies)


def read_mail(path: Path) -> str:
    """Format a mail for a reader: sender, receiver, subject, text."""
    message = email.message_from_bytes(path.read_bytes(), policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    body = message.get_body(preferencelist=("plain", "html"))
    text = body.get_content().strip().replace("\r\n", "\n") if body is not None else ""
    return f"From: {message['From']}\nTo: {message['To']}\nSubject: {message['Subject']}\n\n{text}"


def write_summary(
    folder: Path,
    status: RequestStatus,
    files: list[tuple[ResultAnswer, Path]],
    mails: tuple[Path, ...],
    picture: Path | None,
) -> Delivery:
    """Write summary.json; return what the folder now holds."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = Summary(
        request=status.id,
        title=status.title,
        state=status.state,
        message=status.message,
        submitted=status.submitted,
        ended=status.ended,
        phases=status.phases,
        gaps=status.gaps,
        failures=status.failures,
        files=tuple(
            SummaryFile.model_validate(result.model_dump(include={*SummaryFile.model_fields}))
            for result, _ in files
        ),
        mails=tuple(mail.name for mail in mails),
        picture="" if picture is None else picture.name,
    )
    path = folder / "summary.json"
    path.write_text(summary.model_dump_json(indent=2) + "\n")
    return Delivery(
        summary=summary,
        summary_path=path,
        results=tuple(path for _, path in files),
        mails=mails,
        picture=picture,
    )
