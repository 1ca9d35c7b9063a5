"""Whole requests without processes: a manager and the worker's own code over rows in memory."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from archives.kinds.folder import OutlineReader
from reprojection.isolation import ReadingProcess
from service_manager.leader.manager import Manager
from service_manager.options import ManagerOptions
from tasks.bag import protocol
from tasks.bag.model import Attempt, Phase
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.packages.packages import Packages
from tasks.request.document import Request, parse_request
from tasks.requests import request_operations, retrying
from tasks.requests.plan import Plan
from tasks.requests.request_table import RequestRow
from tasks.service.memory_runtime import memory_runtime
from tasks.service.sources import open_sources
from tasks.settings import Settings
from tasks.storage.blobs import split_blob
from tasks.storage.clock import ManualClock
from tests.service_manager.shelf import plan
from tests.worker.mill import run_claimed
from worker.sandbox.messages import Failed, Succeeded

OWNER = "ada@example.org"


@dataclass
class Work:
    """A manager that plans over an archive, and a worker that runs the real phases, in a process.

    `sources` is that of the settings: the folder `archive` alone by default.
    """

    folder: Path
    archive: Path
    sources: str = ""
    runtime: Runtime = field(default_factory=lambda: memory_runtime(ManualClock()))
    sent: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """The keys of collections, by their granules."""
    before: Callable[[str], None] = lambda _: None
    """Called with the key of a task before its attempt."""

    def __post_init__(self) -> None:
        self.settings = Settings(
            data_dir=self.folder,
            archive=str(self.archive),
            sources=self.sources,
            attempt_memory_gb=64,
        )
        self.options = ManagerOptions()
        self.manager = Manager(self.runtime, self.options, self.plan, self.sent.extend, 1)

    def plan(self, request: Request) -> Plan:
        with ReadingProcess() as reader:
            return self._planned(request, reader.read_outlines)

    def _planned(self, request: Request, read: OutlineReader) -> Plan:
        held = open_sources(self.settings, self.folder / "index.sqlite", read)
        found = plan(request, held, Packages.of(self.settings), self.settings)
        for archive in found.archives:
            if not self.runtime.blobs.exists("packages", archive.blob):
                self.runtime.blobs.put_bytes("packages", archive.blob, archive.data)
        return replace(found, archives=())

    def run(self, document: dict[str, Any]) -> str:
        """Run a request to its end; its id."""
        return self.follow(self.submit(document))

    def submit(self, document: dict[str, Any]) -> str:
        return request_operations.submit(self.runtime, OWNER, parse_request(document))

    def follow(self, request: str) -> str:
        """Work until a request has ended; its id."""
        for _ in range(200):
            self.manager.tick()
            sent, self.sent[:] = list(self.sent), []
            for key in sent:
                self._attempt(key)
            self.runtime.clock.sleep(60.0)
            if self.row(request).state.ended:
                return request
        raise AssertionError(f"never ended: {self.row(request)}")

    def rasters(self, request: str) -> dict[str, bytes]:
        """The rasters of a request that has ended, by name."""
        files = self.files(request)
        return {name: data for name, data in files.items() if name.endswith(".tif")}

    def files(self, request: str) -> dict[str, bytes]:
        """The files of a request that has ended, by name."""
        return {
            file.name: self.runtime.blobs.get_bytes(*split_blob(file.blob))
            for interest in request_operations.results(self.runtime, request)
            for file in interest.files
        }

    def retry(self, request: str) -> str:
        """Try what a request lacks again, as `swathmill retry` does; the id of its continuation."""
        return self.follow(retrying.retry(self.runtime, request, retrying.Scope()).id)

    def row(self, request: str) -> RequestRow:
        return request_operations.load(self.runtime, request)

    def collections(self) -> list[Attempt]:
        """The attempts at collecting granules, in order."""
        return [one for one in self.attempts if one.phase is Phase.COLLECTION]

    def _attempt(self, key: str) -> None:
        claimed = protocol.claim(self.runtime, key, "worker", self.options.retry)
        if claimed is None:
            return
        if isinstance(claimed.spec, CollectSpec):
            self.keys[claimed.spec.granule] = key
        self.before(key)
        said = run_claimed(self.runtime, claimed, self.settings, self.folder / "scratch")
        now = self.runtime.clock.now()
        attempt = claimed.attempt(
            started=now,
            ended=now + 1,
            duration=1.0,
            category=said.category if isinstance(said, Failed) else None,
            message=said.message if isinstance(said, Failed) else "",
        )
        self.attempts.append(attempt)
        end = protocol.End(
            attempt=attempt,
            files=said.files if isinstance(said, Succeeded) else (),
            healing=said.healing if isinstance(said, Failed) else 0,
            first=claimed.task,
        )
        protocol.lose_damaged_inputs(self.runtime, claimed, end)
        protocol.end_batch(self.runtime, [end], self.options.retry)
