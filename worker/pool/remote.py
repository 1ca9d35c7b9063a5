"""Attempts that a runner of the reduction pool carries out for this worker.

The worker claims the task, lends its inputs and the package, stores what the runner made and writes
the end. The runner gets no more than that: what it says of other blobs is not believed.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedRWPair
from pathlib import Path

from pydantic import ValidationError

from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import ReduceSpec
from tasks.packages.packages import blob_of
from tasks.packages.python_dependencies import environment_blob
from tasks.service.classify import AttemptError
from tasks.storage.blobs import (
    ARTIFACTS,
    CHECKPOINTS,
    PACKAGES,
    Blobs,
    Served,
    SigningBlobs,
    artifact_name,
    split_blob,
    stored_digest,
)
from worker.pool.orders import (
    PLACE,
    SILENT_SECONDS,
    BrokenOffError,
    Order,
    read_line,
    read_parts,
)
from worker.sandbox.messages import (
    Ended,
    Failed,
    Job,
    LentFile,
    Message,
    Postponed,
    Saved,
    Succeeded,
    decode,
    state_path,
)

LINK_SECONDS = 1800.0
"""For which the links to a run's inputs are good."""

# Seconds of tries to get a place in the pool; with what a runner waits, and the wait for room on
# its machine, less than the least time limit of an attempt, in which all of it counts.
_PATIENCE = 16.0
_PAUSE = 1.0  # seconds between two of them
_CONNECT_SECONDS = 5.0
_MOST_FILES = 1000
_SERVED = Served(disposition="attachment", media_type="application/octet-stream")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The runners behind one address. `most_bytes` is what the files of a run may have together."""

    host: str
    port: int
    blobs: Blobs
    most_bytes: int
    patience: float = _PATIENCE

    def start(self, job: Job) -> "RemoteAttempt":
        """Prepare an attempt; `follow` connects."""
        return RemoteAttempt(self, job)

    def lend(self, job: Job, spec: ReduceSpec) -> tuple[LentFile, ...]:
        """Return what a run reads: its inputs, its package and what that depends on.

        Raises StoreError.
        """
        names = [split_blob(one.blob) for files in job.inputs.values() for one in files]
        names += [(PACKAGES, blob_of(spec.digest)), (PACKAGES, environment_blob(spec.digest))]
        names += [(CHECKPOINTS, job.state)] if job.state else []
        return tuple(self._lent(*one) for one in dict.fromkeys(names) if self.blobs.exists(*one))

    def _lent(self, container: str, name: str) -> LentFile:
        link = ""
        if isinstance(self.blobs, SigningBlobs):
            link = self.blobs.signed_link(container, name, LINK_SECONDS, _SERVED)
        size = 0 if link else self.blobs.size(container, name)
        return LentFile(blob=f"{container}/{name}", size=size, link=link)


class RemoteAttempt:
    """One attempt on a runner, as the supervisor's thread sees it."""

    def __init__(self, pool: Pool, job: Job) -> None:
        self._pool = pool
        self._job = job
        self._lock = threading.Lock()
        self._killed = threading.Event()
        self._socket: socket.socket | None = None

    def follow(self, heard: Callable[[Message], None]) -> Ended:
        """Have the attempt carried out; pass each report to `heard` until its end.

        Raises:
            AttemptError: worker lost, if the connection breaks.
            StoreError: a file could not be lent or stored.
        """
        end = time.monotonic() + self._pool.patience
        problem = "no runner had a free slot"
        while not self._killed.is_set():
            try:
                with self._connected() as stream:
                    if stream.readline(len(PLACE)) == PLACE:
                        return self._carried_out(stream, heard)
            except OSError as error:
                problem = str(error)
            if time.monotonic() > end:
                heard(Postponed(message=f"no place in the reduction pool: {problem}"))
                return _ended(0)
            self._killed.wait(_PAUSE)
        return _ended(None)

    def kill(self) -> None:
        """End the connection: the runner then kills what it runs. Any thread may call this."""
        with self._lock:
            self._killed.set()
            if self._socket is not None:
                _shut(self._socket)

    def _connected(self) -> AbstractContextManager[BufferedRWPair]:
        address = (self._pool.host, self._pool.port)
        made = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        made.settimeout(SILENT_SECONDS)
        with self._lock:
            self._socket = made
            if self._killed.is_set():
                _shut(made)
        return _as_file(made)

    def _carried_out(self, stream: BufferedRWPair, heard: Callable[[Message], None]) -> Ended:
        try:
            self._send(stream)
            while True:
                message = decode(read_line(stream))
                if isinstance(message, Ended):
                    return message
                if isinstance(message, Saved):
                    self._take_state(stream, message)
                if isinstance(message, Succeeded):
                    message = self._stored(stream, message)
                elif isinstance(message, Failed):
                    message = self._believed(message)
                heard(message)
        except (OSError, BrokenOffError, ValidationError) as error:
            if self._killed.is_set():
                return _ended(None)
            raise AttemptError(
                Category.WORKER_LOST, f"the connection to the reduction pool broke: {error}"
            ) from error

    def _send(self, stream: BufferedRWPair) -> None:
        job, spec = self._job, self._job.spec
        if not isinstance(spec, ReduceSpec):
            raise TypeError(f"a runner carries out no {spec.kind}")
        lent = self._pool.lend(job, spec)
        order = Order(
            request=job.request,
            key=job.key,
            claim=job.claim,
            spec=spec,
            inputs=dict(job.inputs),
            lent=lent,
            state=job.state,
        )
        absent = set() if job.state else {"state"}  # which a runner of an earlier build knows not
        stream.write(order.model_dump_json(exclude=absent).encode() + b"\n")
        for one in lent:
            if not one.link:
                for part in _exactly(one, self._pool.blobs.stream(*split_blob(one.blob))):
                    stream.write(part)
        stream.flush()

    def _take_state(self, stream: BufferedRWPair, said: Saved) -> None:
        """Take over the state of a checkpoint that follows, as a child of this worker leaves it."""
        if said.size > self._pool.most_bytes:
            raise BrokenOffError(f"its checkpoint has more than {self._pool.most_bytes} bytes")
        path = state_path(self._job.scratch)
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            for part in read_parts(stream, said.size):
                file.write(part)

    def _stored(self, stream: BufferedRWPair, said: Succeeded) -> Succeeded:
        """Store the files that follow, under this attempt's names; of each its bytes count."""
        if len(said.files) > _MOST_FILES:
            raise BrokenOffError(f"it announces {len(said.files)} files")
        left, stored = self._pool.most_bytes, list[ArtifactFile]()
        began, since = time.time(), time.monotonic()
        folder = self._job.scratch / "made"
        folder.mkdir()
        for one in said.files:
            if Path(one.name).name != one.name or not one.name.isprintable():
                raise BrokenOffError(f"it names a file {one.name!r}")
            left -= one.size
            if left < 0:
                raise BrokenOffError(f"its files have more than {self._pool.most_bytes} bytes")
            path = folder / one.name
            with path.open("xb") as file:
                for part in read_parts(stream, one.size):
                    file.write(part)
            name = artifact_name(self._job.key, self._job.claim, one.name)
            kept = self._pool.blobs.put_file(ARTIFACTS, name, path)
            path.unlink(missing_ok=True)
            stored.append(
                ArtifactFile(
                    name=one.name,
                    blob=f"{ARTIFACTS}/{name}",
                    size=kept.size,
                    sha256=kept.sha256,
                    completeness=one.completeness,
                    valid_share=one.valid_share,
                )
            )
        seconds = time.monotonic() - since
        return said.model_copy(
            update={
                "files": tuple(stored),
                "storing": said.storing + seconds,
                "steps": (*said.steps, ("store", began, began + seconds)),
            }
        )

    def _believed(self, said: Failed) -> Failed:
        """Return what a runner says of a failure; only inputs that are lost are made again."""
        healing = 0
        for index, files in self._job.inputs.items():
            if said.healing >> index & 1 and any(map(self._is_lost, files)):
                healing |= 1 << index
        if said.healing and not healing:
            return said.model_copy(update={"healing": 0, "category": Category.BLOB_READ_FAILED})
        return said.model_copy(update={"healing": healing})

    def _is_lost(self, file: ArtifactFile) -> bool:
        """Tell whether storage has lost a file, or keeps it damaged."""
        return stored_digest(self._pool.blobs, file.blob) != file.sha256


@contextmanager
def _as_file(made: socket.socket) -> Iterator[BufferedRWPair]:
    """Lend a socket as a file; both are closed at the end."""
    file = made.makefile("rwb")
    try:
        yield file
    finally:
        with made, suppress(OSError):  # of what was not sent yet
            file.close()


def _exactly(one: LentFile, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield parts; raise BrokenOffError unless they have the announced size."""
    left = one.size
    for part in parts:
        left -= len(part)
        yield part
    if left:
        raise BrokenOffError(f"{one.blob} has not {one.size} bytes")


def _ended(code: int | None) -> Ended:
    return Ended(exit_code=code, peak_memory=0, over_memory=False, log="")


def _shut(made: socket.socket) -> None:
    with suppress(OSError):  # it has ended by itself
        made.shutdown(socket.SHUT_RDWR)
