"""A runner: each connection of a worker is one attempt, in a slot of its own.

`worker.pool.orders` says what goes over a connection.
"""

import select
import socket
import socketserver
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedRWPair
from pathlib import Path

import structlog
from pydantic import ValidationError

from tasks.bag.categories import Category
from tasks.service.classify import AttemptError
from tasks.storage.clock import SystemClock
from worker.files.scratch import Scratch
from worker.pool.orders import (
    ALIVE,
    ALIVE_SECONDS,
    PLACE,
    SILENT_SECONDS,
    BrokenOffError,
    Order,
    read_line,
    read_parts,
)
from worker.sandbox.messages import (
    Begun,
    Ended,
    Failed,
    Job,
    Message,
    Postponed,
    Saved,
    Succeeded,
    encode,
    state_path,
)
from worker.slots.fitness import Fitness
from worker.slots.lent_blobs import MADE, lent_path
from worker.slots.supervisor import RunningProcess

PLACE_SECONDS = 8.0
"""For which a connection waits for a free slot; then the worker tries another runner."""

_NOT_SAID = frozenset({"cpu", "traffic"})  # which a worker of an earlier build refuses

_log = structlog.get_logger("worker")


@dataclass(kw_only=True)
class Runner:
    """Carries out as many attempts at once as it has slots, each in a child started by `start`."""

    start: Callable[[Job], RunningProcess]
    scratch: Scratch
    slots: int
    patience: float = PLACE_SECONDS
    stopping: bool = False
    busy: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    fitness: Fitness = field(default_factory=lambda: Fitness(SystemClock()))
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _running: list[RunningProcess] = field(default_factory=list)

    def serve(self, connection: socket.socket) -> None:
        """Carry out the attempt of one connection, if a slot becomes free in time."""
        if not self._take():
            return
        try:
            with connection.makefile("rwb") as stream:
                stream.write(PLACE)
                stream.flush()
                self._carry_out(connection, stream)
        except AttemptError as error:  # no scratch folder, no child
            self.fitness.failed(str(error))
            _log.error("run not begun", error=str(error)[:500])
        except (OSError, BrokenOffError, ValidationError) as error:
            _log.warning("run broken off", error=str(error)[:500])
        finally:
            with self._changed:
                self.busy -= 1
                self._changed.notify_all()

    def stop(self, grace: float) -> None:
        """Take no more attempts, and kill those that have not ended after some seconds."""
        self.stopping = True
        with self._changed:
            self._changed.wait_for(lambda: not self.busy, grace)
            left = [*self._running]
        for process in left:
            process.kill()
        with self._changed:
            self._changed.wait_for(lambda: not self.busy, SILENT_SECONDS)

    def begin(self, job: Job) -> RunningProcess:
        """Start an attempt, which `stop` may kill until `forget`."""
        process = self.start(job)
        with self._changed:
            self._running.append(process)
        return process

    def forget(self, process: RunningProcess) -> None:
        """Take note that an attempt has ended."""
        with self._changed:
            self._running.remove(process)

    def _take(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self.stopping or self.busy < self.slots, self.patience)
            if self.stopping or self.busy >= self.slots or not self.fitness.fit:
                return False
            self.busy += 1
            return True

    def _carry_out(self, connection: socket.socket, stream: BufferedRWPair) -> None:
        order = Order.model_validate_json(read_line(stream))
        log = _log.bind(request=order.request, task=order.key, claim=order.claim)
        with self.scratch.attempt(uuid.uuid4().hex) as folder:
            for number, one in enumerate(order.lent):
                if not one.link:
                    path = lent_path(folder, number)
                    path.parent.mkdir(exist_ok=True)
                    with path.open("wb") as file:
                        for part in read_parts(stream, one.size):
                            file.write(part)
            log.info("run started", package=order.spec.package)
            began = time.monotonic()
            course = _Course(connection, stream, folder)
            outcome = course.follow(self, order)
            self.outcomes[outcome] += 1
            self._judge(course)
            log.info("run ended", outcome=outcome, seconds=round(time.monotonic() - began, 3))

    def _judge(self, course: "_Course") -> None:
        """Take note of what a run says of this machine."""
        said = course.said
        if isinstance(said, Succeeded):
            self.fitness.succeeded()
        elif isinstance(said, Failed) and said.category is Category.HOST_FAILED:
            self.fitness.failed(said.message)
        elif said is None and not course.begun and course.exit_code:
            self.fitness.failed("a run's child ended before it began")


class _Course:
    """One attempt under way: what it says goes to the worker, and its connection's end kills it."""

    def __init__(self, connection: socket.socket, stream: BufferedRWPair, folder: Path) -> None:
        self._connection = connection
        self._stream = stream
        self._folder = folder
        self._sending = threading.Lock()
        self.said: Succeeded | Failed | Postponed | None = None
        self.begun = False
        self.exit_code: int | None = None  # of a child that ended by itself

    def follow(self, runner: Runner, order: Order) -> str:
        """Run to the end and send that; return the outcome in a word."""
        job = Job(
            request=order.request,
            key=order.key,
            claim=order.claim,
            spec=order.spec,
            inputs=order.inputs,
            scratch=self._folder.resolve(),
            lent=order.lent,
            state=order.state,
        )
        process = runner.begin(job)
        with ExitStack() as stack:
            stack.callback(runner.forget, process)
            over, wake = socket.socketpair()
            stack.enter_context(over)
            watch = threading.Thread(target=self._watch, args=(process, over), daemon=True)
            watch.start()
            stack.callback(watch.join)
            stack.callback(wake.close)
            ended = process.follow(lambda message: self._heard(message, process))
        if ended is None:
            raise BrokenOffError("the attempt's guard was killed from outside")
        self.exit_code = ended.exit_code
        self._send_end(ended)
        return self.said.kind if self.said is not None else "ended"

    def _heard(self, message: Message, process: RunningProcess) -> None:
        if isinstance(message, Succeeded | Failed | Postponed):
            self.said = message
            return
        self.begun = self.begun or isinstance(message, Begun)
        try:
            if isinstance(message, Saved):
                self._send_state(message)
            else:
                self._send(encode(message, _NOT_SAID) + b"\n")
        except (OSError, BrokenOffError):  # the worker is gone, or the child told what is not so
            process.kill()

    def _send_state(self, message: Saved) -> None:
        path = state_path(self._folder)
        with self._sending, path.open("rb") as file:
            self._stream.write(encode(message) + b"\n")
            for part in read_parts(file, message.size):
                self._stream.write(part)
            self._stream.flush()
        path.unlink()

    def _watch(self, process: RunningProcess, over: socket.socket) -> None:
        """Show the worker that this runner lives; kill the attempt when the worker is gone."""
        gone = False
        while not gone:
            ready, _, _ = select.select([self._connection, over], [], [], ALIVE_SECONDS)
            if over in ready:
                return
            try:
                gone = bool(ready)  # a worker sends nothing after its order
                self._send(ALIVE)
            except OSError:
                gone = True
        process.kill()

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._stream.write(data)
            self._stream.flush()

    def _send_end(self, ended: Ended) -> None:
        said = self.said
        if said is not None:
            self._send(encode(said, _NOT_SAID) + b"\n")
        if isinstance(said, Succeeded):
            for one in said.files:
                path = self._folder / MADE / Path(one.name).name
                with path.open("rb") as file:
                    for part in read_parts(file, one.size):
                        self._send(part)
        self._send(encode(ended, _NOT_SAID) + b"\n")


class RunnerServer(socketserver.ThreadingTCPServer):
    """Listens for workers; a thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, port: int, runner: Runner) -> None:
        """Listen. Raises OSError."""

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(SILENT_SECONDS)
                runner.serve(self.request)

        super().__init__((host, port), Handler)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        """Log what the handler did not expect."""
        _log.exception("run broken off")
