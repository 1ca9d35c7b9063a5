"""The client of a portal for programs that run on asyncio: the same calls, each in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from reprojection.files import AnyPath
from swathmill.answers import RequestStatus
from swathmill.client import Client
from swathmill.job import Job
from tasks.answers.results import ResultAnswer
from tasks.bag.model import RequestState
from tasks.request.document import Request

if TYPE_CHECKING:
    import xarray

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AsyncClient:
    """Call one portal's HTTP API without holding up the event loop.

    Each call raises what that of `Client` raises.

    Attributes:
        client: The client that makes the calls; one from the environment by default.
    """

    client: Client = field(default_factory=Client)

    async def submit(
        self, request: Request | Mapping[str, object] | AnyPath, *, key: str = ""
    ) -> AsyncJob:
        """Hand in a request; it has been accepted when this returns.

        Args:
            request: The request, its document, or the path of its document in YAML or JSON.
            key: Called again with the same non-empty key, it makes no second request.
        """
        return AsyncJob(job=await asyncio.to_thread(self.client.submit, request, key=key))

    async def job(self, request_id: str) -> AsyncJob:
        """Return a request that was submitted before.

        Args:
            request_id: Its id.
        """
        return AsyncJob(job=await asyncio.to_thread(self.client.job, request_id))

    async def call(
        self, method: Callable[Concatenate[Client, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Make any other call of `Client`: `await client.call(Client.packages)`.

        Args:
            method: The method of `Client`.
            args: What it takes.
            kwargs: What it takes by name.
        """
        return await asyncio.to_thread(method, self.client, *args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class AsyncJob:
    """A request that was submitted, as `Job` has it.

    Attributes:
        job: The job whose calls are made.
    """

    job: Job

    @property
    def id(self) -> str:
        """The request's id."""
        return self.job.id

    @property
    def state(self) -> RequestState:
        """The state in which the request was."""
        return self.job.state

    async def watch(self, progress: Callable[[RequestStatus], None] = lambda _: None) -> AsyncJob:
        """Wait until the request has ended; return the job as it is then.

        Cancelled, it returns at once; its thread ends with the look that it is at, within 20 s.

        Args:
            progress: Called on the event loop with each change; by default nothing is.

        Raises:
            JobFailedError: as `Job.watch`.
        """
        looks = self.job.client.looks(self.id)
        last = self.job.status
        while (status := await asyncio.to_thread(next, looks, None)) is not None:
            if status is not last:
                progress(status)
                self.job.check_confirmed(status)
            last = status
        return AsyncJob(job=self.job.ended_as(last))

    async def results(self) -> list[ResultAnswer]:
        """List the files that are finished."""
        return await asyncio.to_thread(self.job.results)

    async def results_as_made(self) -> AsyncIterator[ResultAnswer]:
        """Yield each file once it is finished, as `Job.results_as_made`.

        Cancelled, its thread ends with the look that it is at, within 20 s.
        """
        made = self.job.results_as_made()
        while (one := await asyncio.to_thread(next, made, None)) is not None:
            yield one

    async def download(
        self,
        folder: AnyPath,
        *,
        layers: str | Sequence[str] = (),
        since: str = "",
        until: str = "",
    ) -> list[Path]:
        """Download finished files into a folder, as `Job.download`.

        Args:
            folder: Where the files' own folders are made.
            layers: Only these layers; by default all files.
            since: Only files of this date or a later one; "" means any.
            until: Only files of this date or an earlier one; "" means any.
        """
        return await asyncio.to_thread(
            self.job.download, folder, layers=layers, since=since, until=until
        )

    async def to_xarray(
        self,
        layers: str | Sequence[str] = (),
        *,
        since: str = "",
        until: str = "",
        folder: AnyPath | None = None,
    ) -> xarray.Dataset:
        """Open the rasters as one dataset over time, as `Job.to_xarray`.

        Args:
            layers: Only these layers; by default all.
            since: Only dates from this one on; "" means any.
            until: Only dates up to this one; "" means any.
            folder: Where the files are kept; None reads all values into memory.
        """
        return await asyncio.to_thread(
            self.job.to_xarray, layers, since=since, until=until, folder=folder
        )
