"""`python -m service_manager`: the manager's process. SIGTERM and SIGINT end it between rounds."""

import gc
import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import structlog
from kombu.exceptions import OperationalError

from archives.errors import ArchiveError, SourcesSettingError
from processes import handed_over
from reprojection.isolation import ReadingProcess
from reprojection.read.outline import read_layers
from service_manager.dispatch.index_file import IndexFile
from service_manager.dispatch.kept_index import KeptIndex
from service_manager.events.completion_events import READERS
from service_manager.leader.holders import Holders
from service_manager.leader.lease_keeper import beside_rounds
from service_manager.leader.manager import Manager, SendError
from service_manager.leader.presence import Presence
from service_manager.leader.service import serve
from service_manager.leader.watch import Watch
from service_manager.mail import mail_picture
from service_manager.mail.notify import MailServer, Postman, Signing
from service_manager.options import ManagerOptions
from service_manager.planner.plan_stream import PlanStream
from service_manager.plans.plan_jobs import COLLECT
from service_manager.requests.continuing import Continuing, newest_in
from service_manager.requests.lifecycle import PLANNERS
from service_manager.storage.holdings import Shelf, Teller
from tasks.bag.runtime import Runtime
from tasks.errors import StoreError
from tasks.messages.celery_app import Sender, make_app
from tasks.messages.wanted_slots import RedisWantedSlots
from tasks.operators.manager_rows import RefusedMails
from tasks.operators.overhead import OverheadMeter
from tasks.packages.packages import Packages
from tasks.request.document import Request
from tasks.service import exits, logs, telemetry
from tasks.service.connect import SettingMissingError, connect, embedded_folder
from tasks.service.probes import serve_probes
from tasks.service.sources import open_sources
from tasks.settings import Settings, WrongSettingError, read_settings
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.store import LocalStore
from tasks.uploads.library import UploadLibrary


def _keep_index(
    settings: Settings,
    runtime: Runtime,
    index: IndexFile,
    beside: Callable[[Callable[[], None]], "Future[None]"],
) -> Callable[[], None]:
    """Fetch the archive's index, where storage keeps it; return what keeps it there."""
    if isinstance(runtime.blobs, FileBlobs):
        return lambda: None  # the index lies on the same disk
    kept = KeptIndex(runtime.blobs, settings.archive, index.path, runtime.clock, beside)
    kept.restore()
    return kept.tick


def main() -> int:
    """Run the manager; the exit status says whether it could start."""
    name = f"{platform.node()}-{os.getpid()}"
    log = structlog.get_logger("manager.service")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    reader = ReadingProcess()
    # What it imports takes as long as the rest of this start, unless it is a fork of this process.
    reader.begin(fork=handed_over.is_unknown())
    handed_over.take()
    try:
        settings = read_settings()
        logs.configure(settings.log_level, process="manager")
        runtime = connect(settings)
        OverheadMeter(runtime).begin()
        index = IndexFile.take(settings.data_dir)
        looking = ThreadPoolExecutor(1, thread_name_prefix="holdings")
        keep_index = _keep_index(settings, runtime, index, looking.submit)
        archive = open_sources(settings, index.path, reader.read_outlines)
        postman = Postman(
            runtime.store,
            runtime.clock,
            MailServer.of(settings),
            Signing.of(settings),
            lambda request: mail_picture.draw(runtime, request),
        )
        watch = _watched(settings, runtime, lambda: postman.refused)
        end_telemetry = telemetry.start(telemetry.read_collector(), "manager", name)
    except (WrongSettingError, SettingMissingError, SourcesSettingError) as error:
        sys.stderr.write(f"The service manager cannot start: {error}\n")
        return exits.CONFIGURATION
    except ArchiveError as error:
        log.error("cannot start", error=str(error))
        return exits.UNAVAILABLE
    except StoreError as error:
        log.error("cannot start: storage does not answer", error=str(error))
        return exits.UNAVAILABLE
    options = ManagerOptions.of(settings, name)
    library = UploadLibrary(runtime, Packages.of(settings))
    packages = library.exact_packages()
    scale = RedisWantedSlots(settings.redis_url.get_secret_value())
    sender = Sender(make_app(settings.redis_url.get_secret_value()))

    gc.set_threshold(*COLLECT)
    planners = ThreadPoolExecutor(PLANNERS, thread_name_prefix="plan")
    readers = ThreadPoolExecutor(READERS, thread_name_prefix="read")
    shelf = Shelf(archive)
    teller = Teller(runtime, shelf, lambda path: reader.run(read_layers, path), looking.submit)
    standing = ThreadPoolExecutor(1, thread_name_prefix="standing")
    continuing = Continuing(runtime, partial(newest_in, archive), standing.submit, library=library)

    def planned(request: Request) -> PlanStream:
        shelf.refresh()
        return PlanStream(request, archive, packages, settings, runtime.tasks.is_done)

    def send(keys: Sequence[str], whom: str = "") -> None:
        try:
            sender(keys, whom)
        except OperationalError as error:
            raise SendError(str(error)) from error

    def make(epoch: int) -> Manager:
        return Manager(
            runtime,
            options,
            planned,
            send,
            epoch,
            planners.submit,
            send,
            scale,
            sender.recall,
            watch.hears,
            look,
            library,
            map if isinstance(runtime.store, LocalStore) else readers.map,
        )

    presence = Presence(runtime, name, options.heartbeat, watch, lambda: postman.refused)
    keep = beside_rounds(runtime.clock, options.lease)

    def look() -> None:
        postman.look()
        teller.look()

    def each() -> None:
        postman.tick()
        teller.tick()
        keep_index()
        continuing.tick()

    folder = embedded_folder(settings)
    holders = Holders(folder / "managers") if folder else None
    serve(runtime, options, make, stop, each=each, keep=keep, watch=presence, holders=holders)
    presence.close()
    for threads in (planners, readers, looking, standing):
        threads.shutdown(wait=False, cancel_futures=True)
    postman.close(10.0)
    reader.close()
    index.close()
    end_telemetry()
    log.info("stopped")
    return 0


def _watched(settings: Settings, runtime: Runtime, refused: Callable[[], RefusedMails]) -> Watch:
    """Answer probes where the settings ask for it. Raises WrongSettingError."""
    if not settings.probe_address:
        return Watch()
    # Only where it is used: it takes part of the time in which a process starts.
    from service_manager.leader.metrics import ManagerMetrics
    from tasks.messages.redis_watch import RedisWatch

    redis = RedisWatch(settings.redis_url.get_secret_value(), runtime.clock.monotonic)
    redis.start()
    metrics = ManagerMetrics(runtime.clock, settings.lease_seconds, redis, refused)
    serve_probes(settings, metrics.probe_answers())
    return metrics


if __name__ == "__main__":
    sys.exit(main())
