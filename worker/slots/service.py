"""The worker process: forkserver, slots, heartbeat, Celery; and its orderly end."""

import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
from celery import Celery, bootsteps, signals
from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult, TaskPool
from celery.platforms import SecurityWarning
from celery.worker.consumer import Consumer, Tasks
from kombu.asynchronous import Hub

from processes import handed_over
from reprojection.errors import KernelsAbsentError
from reprojection.kernels import kernels
from tasks.bag.runtime import Runtime
from tasks.bag.spec import ReduceSpec
from tasks.bag.workers import Hold, WorkerRow
from tasks.errors import SwathmillError
from tasks.messages.celery_app import TASK, make_app, queue_of
from tasks.operators.overhead import OverheadMeter
from tasks.packages.file_names import file_name
from tasks.service import exits, logs, telemetry
from tasks.service.connect import SettingMissingError, connect, storage_modules
from tasks.settings import Settings, WrongSettingError, forget_secrets, read_settings
from tasks.storage import schema
from tasks.storage.queues import FIRST, address
from worker.files.host_folders import HostFolders
from worker.files.scratch import Scratch
from worker.sandbox import sandbox
from worker.sandbox.children import PRELOADED, Children, start_forkserver
from worker.sandbox.makers import reading_line, reading_tier
from worker.sandbox.messages import ChildSettings, Job
from worker.slots import attempt
from worker.slots.fitness_watch import FitnessWatch, test_once
from worker.slots.heartbeat import Heartbeat
from worker.slots.supervisor import AttemptOrder, RunningProcess, Supervisor

_GB = 10**9
_PULSE_SECONDS = 0.1


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where packages of others run in place of this worker's children; `line` says it."""

    line: str
    start: Callable[[Job], RunningProcess]


def _none(_settings: Settings, _runtime: Runtime) -> Places | None:
    return None


def main(places_of: Callable[[Settings, Runtime], Places | None] = _none) -> int:
    """Run a worker until SIGTERM or SIGINT; return the exit code."""
    # In a container the worker is root; the sandbox confines user code.
    warnings.filterwarnings("ignore", category=SecurityWarning, module="celery")
    # Before any secret, any thread, any client and any logging to a pipe that a fork would share.
    start_forkserver((*storage_modules(), *PRELOADED))
    handed_over.take()
    try:
        settings = read_settings()
        collector = telemetry.read_collector()
        forget_secrets()  # those who run programs of others get what they need in messages
        name = worker_name(settings)
        kernels.library()  # without it a task could only fail
        logs.configure(settings.log_level, process="worker", worker=name)
        confinement = sandbox.report(settings)
        scratch = Scratch(settings.data_dir, name)
        folders = HostFolders(settings.data_dir, socket.gethostname())
        runtime = connect(settings)
        OverheadMeter(runtime).begin()
        end_telemetry = telemetry.start(collector, "worker", name)
    except (KernelsAbsentError, WrongSettingError, SettingMissingError) as error:
        sys.stderr.write(f"The worker cannot start: {error}\n")
        return exits.CONFIGURATION
    except SwathmillError as error:
        structlog.get_logger("worker").error(str(error))
        return exits.UNAVAILABLE
    places = places_of(settings, runtime)
    # With other places, no program of others runs here.
    tier, line = (None, places.line) if places else (confinement.tier, confinement.line)
    line = f"{line}; {reading_line()}"
    shared = ChildSettings(
        settings=settings,
        cache=cache_folder(settings).resolve(),
        sandbox=tier,
        reading=reading_tier(),
    )
    memory_limit = int(settings.attempt_memory_gb * _GB)
    children = Children(
        partial(attempt.prepare, shared), memory_limit, settings.slots, scratch.folder
    )
    supervisor = Supervisor(
        runtime=runtime,
        settings=settings,
        name=name,
        scratch=scratch,
        start=_start(places, children),
        reading=shared.reading,
    )
    supervisor.fitness.tested = False
    row = WorkerRow(
        name=name,
        host=socket.gethostname(),
        slots=settings.slots,
        started=runtime.clock.now(),
        beat_at=runtime.clock.now(),
        sandbox=line,
        version=version("swathmill"),
        reads=schema.SCHEMA,
        place=settings.worker_place,
    )
    heartbeat = Heartbeat(
        runtime=runtime,
        supervisor=supervisor,
        row=row,
        every=settings.heartbeat_seconds,
    )
    log = structlog.get_logger("worker")
    try:
        _answer_probes(supervisor, heartbeat)
    except WrongSettingError as error:
        sys.stderr.write(f"The worker cannot start: {error}\n")
        return exits.CONFIGURATION
    removed = (*scratch.clean(), *folders.remove_abandoned())
    try:
        # While the forkserver still imports: Celery imports half of itself here.
        consume = consumer(make_app(settings.redis_url.get_secret_value()), supervisor)
        children.fill()
        log.info(
            "worker starts",
            slots=settings.slots,
            place=settings.worker_place,
            sandbox=line,
            stale=removed,
        )
        heartbeat.start()
        watch = FitnessWatch(
            fitness=supervisor.fitness,
            test=partial(test_once, scratch, children),
            held=lambda: supervisor.hold is not Hold.NONE,
            ending=lambda: supervisor.draining,
        )
        watch.look()  # before the first message: one that comes to an unfit worker is lost
        watch.start()
        _watch_machine(supervisor)
        return consume()
    finally:
        supervisor.kill_all(AttemptOrder.HAND_BACK)
        heartbeat.stop()
        children.close()
        scratch.close()
        folders.close()
        end_telemetry()
        log.info("worker ended")


def _start(places: Places | None, children: Children) -> Callable[[Job], RunningProcess]:
    """Return how attempts are started: in a child, or the packages of others in other places."""
    if places is None:
        return children.start
    # Only where there are some: each module of a worker's own process costs its start.
    from worker.phases.package_files import shipped_packages

    def start(job: Job) -> RunningProcess:
        ours = not isinstance(job.spec, ReduceSpec) or job.spec.digest in shipped_packages()
        return children.start(job) if ours else places.start(job)

    return start


def _answer_probes(supervisor: Supervisor, heartbeat: Heartbeat) -> None:
    """Answer probes where the settings ask for it. Raises WrongSettingError."""
    if not supervisor.settings.probe_address:
        return
    # Only where it is used: it takes part of the time in which a process starts.
    from tasks.messages.redis_watch import RedisWatch
    from tasks.service.probes import serve_probes
    from worker.slots.metrics import WorkerMetrics

    metrics = WorkerMetrics()
    supervisor.heard = metrics.hears
    settings = supervisor.settings
    redis = RedisWatch(settings.redis_url.get_secret_value(), supervisor.runtime.clock.monotonic)
    redis.start()
    serve_probes(settings, metrics.probe_answers(supervisor, heartbeat, redis))


def _watch_machine(supervisor: Supervisor) -> None:
    """End this worker in time where the platform says that its machine is to be taken away."""
    if not supervisor.settings.instance_metadata:
        return
    # Only where it is used: it takes part of the time in which a process starts.
    from tasks.service.eviction import EvictionWatch

    def told(grace: float) -> None:
        supervisor.grace = min(supervisor.grace, grace)
        if not supervisor.draining:  # else it ends already, now sooner
            os.kill(os.getpid(), signal.SIGTERM)

    EvictionWatch(supervisor.settings.instance_metadata, told).start()


def worker_name(settings: Settings) -> str:
    """Return the worker's name, valid as row key and as folder name."""
    name = settings.worker_name or f"{socket.gethostname()}-{os.getpid()}"
    return file_name(name, "-")[:100]


def cache_folder(settings: Settings) -> Path:
    """Return the folder of the local cache.

    All workers of a machine with one data folder share it, so that a granule fetched by one of them
    is available to the others.
    """
    return settings.data_dir / "cache" / socket.gethostname()


class _Slots(TaskPool):  # type: ignore[misc]
    """The threads of the slots; `freed` is an eventfd that is raised when one is free again."""

    freed: int

    def on_apply(
        self,
        target: Callable[..., object],
        args: tuple[object, ...] | None = None,
        kwargs: dict[str, object] | None = None,
        callback: Callable[..., object] | None = None,
        accept_callback: Callable[..., object] | None = None,
        **_: object,
    ) -> ApplyResult:
        """Give a message to a thread."""
        done = self.executor.submit(apply_target, target, args, kwargs, callback, accept_callback)
        done.add_done_callback(lambda _: os.eventfd_write(self.freed, 1))
        return ApplyResult(done)


class _Pulse(bootsteps.StartStopStep):  # type: ignore[misc]
    """Keeps Celery's loop turning, and stops fetching messages while the worker may run none.

    With prefetching off, the loop asks Redis for a message only when a slot is free. Nothing of
    Celery's wakes a sleeping loop when a slot becomes free: the slot itself does, by `freed`.
    """

    supervisor: Supervisor
    queues: tuple[str, ...]
    freed: int
    requires = (Tasks,)  # so this stops before that closes the connection

    def stop(self, consumer: Consumer) -> None:
        """End the call for messages that Redis holds: the connection would wait for its end."""
        taking = consumer.task_consumer
        held = getattr(taking.channel, "_in_poll", None) if taking is not None else None
        if (line := getattr(held, "_sock", None)) is not None:
            with suppress(OSError):  # it has just been closed
                line.shutdown(socket.SHUT_RDWR)  # what has come already is still read

    def register_with_event_loop(self, consumer: Consumer, hub: Hub) -> None:
        """Register what turns the loop; Celery calls this for each connection."""
        hub.add_reader(self.freed, os.eventfd_read, self.freed)
        hub.call_repeatedly(_PULSE_SECONDS, self._turn, consumer)

    def _turn(self, consumer: Consumer) -> None:
        if self.supervisor.leaving and not self.supervisor.busy():
            self.supervisor.leaving = False
            os.kill(os.getpid(), signal.SIGTERM)  # as a platform asks a worker to end
        taking = consumer.task_consumer
        if taking is None:
            return
        takes = self.supervisor.takes()
        for queue in self.queues:
            if takes and not taking.consuming_from(queue):
                consumer.add_task_queue(queue)
            elif not takes and not self.supervisor.draining and taking.consuming_from(queue):
                consumer.cancel_task_queue(queue)


def consumer(app: Celery, supervisor: Supervisor) -> Callable[[], int]:
    """Make what gives each message's keys to a slot until Celery is asked to stop.

    It is called when messages may come, and returns the exit code. What goes before all comes
    first, then the queue of this host, then that of all workers: each that of the worker's place.
    """
    place = supervisor.settings.worker_place
    queues = tuple(queue_of(address(host, place)) for host in (FIRST, socket.gethostname(), ""))
    freed = os.eventfd(0, os.EFD_CLOEXEC)

    @app.task(name=TASK, ignore_result=True)  # type: ignore[untyped-decorator]
    def attempt(*keys: str) -> None:
        supervisor.execute(keys)

    def stopping(**_: object) -> None:
        # Celery waits for the slots without a limit, so the grace period is limited here.
        supervisor.draining, supervisor.leaving = True, False
        os.eventfd_write(freed, 1)  # Celery's loop looks at once, and not at its next turn
        threading.Thread(target=_end_of_grace, args=(supervisor,), daemon=True).start()

    def no_logging(**_: object) -> None:
        """Keep Celery from configuring logging, by answering this signal."""

    signals.worker_shutting_down.connect(stopping, weak=False)
    signals.setup_logging.connect(no_logging, weak=False)
    app.steps["consumer"].add(
        type("Pulse", (_Pulse,), {"supervisor": supervisor, "queues": queues, "freed": freed})
    )
    worker = app.Worker(
        hostname=f"attempts@{supervisor.name}",
        pool_cls=type("Slots", (_Slots,), {"freed": freed}),
        concurrency=supervisor.settings.slots,
        queues=[*queues],
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        no_color=True,
        loglevel=supervisor.settings.log_level.upper(),
    )

    def consume() -> int:
        worker.start()
        return int(worker.exitcode or 0)

    return consume


def _end_of_grace(supervisor: Supervisor) -> None:
    clock = supervisor.runtime.clock
    since = clock.monotonic()
    # The grace may become shorter meanwhile.
    while supervisor.busy() and clock.monotonic() < since + supervisor.grace:
        clock.sleep(0.1)
    supervisor.kill_all(AttemptOrder.HAND_BACK)
    sys.stderr.flush()
