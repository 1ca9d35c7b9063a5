"""The manager as a process: stands by, acts, and stands by again when another acts."""

import threading
from collections.abc import Callable

import structlog

from service_manager.leader.holders import Holders
from service_manager.leader.leadership import Leadership
from service_manager.leader.lease_keeper import Keep, Turn, between_rounds
from service_manager.leader.manager import Manager
from service_manager.leader.watch import Watch
from service_manager.options import ManagerOptions
from tasks.bag.runtime import Runtime
from tasks.errors import FencedError, StoreError
from tasks.messages.wakeups import LOOK, WakeUps
from tasks.operators import row_schema

log = structlog.get_logger("manager.service")

Make = Callable[[int], Manager]  # by epoch


def serve(
    runtime: Runtime,
    options: ManagerOptions,
    make: Make,
    stop: threading.Event,
    each: Callable[[], None] = lambda: None,
    keep: Keep = between_rounds,
    watch: Watch | None = None,
    holders: Holders | None = None,
) -> None:
    """Run until `stop` is set.

    `each` is called once in every round while this process acts. `keep` says how the lease is
    renewed. `watch` is told of each round. `holders` are the managers of this machine, where no
    other shares its storage.
    """
    seen = watch or Watch()
    # A wait for wake-ups does not see `stop`.
    threading.Thread(target=_wake_to_stop, args=(runtime.wakeups, stop), daemon=True).start()
    leadership = Leadership(runtime, options.lease, holders)
    while not stop.is_set():
        if not _wait(leadership, options, stop, seen):
            break
        log.info("acting", epoch=leadership.epoch)
        try:
            with keep(leadership) as turn:
                row_schema.note_new(runtime)
                _act(turn, leadership, make(leadership.epoch), runtime, options, stop, each, seen)
        except FencedError as error:
            log.warning("standing by", reason=str(error))
        except StoreError as error:
            log.warning("storage does not answer", error=str(error))
            stop.wait(options.tick)
    _release(leadership)
    if holders is not None:
        holders.leave()


def _wake_to_stop(wakeups: WakeUps, stop: threading.Event) -> None:
    if stop.wait():
        wakeups.publish(LOOK)


def _wait(
    leadership: Leadership,
    options: ManagerOptions,
    stop: threading.Event,
    watch: Watch,
) -> bool:
    logged = False
    while not stop.is_set():
        try:
            if leadership.acquire():
                return True
        except StoreError as error:
            log.warning("storage does not answer", error=str(error))
        else:
            if not logged:
                log.info("standing by: another manager acts")
            logged = True
        watch.stands_by(leadership)
        stop.wait(options.lease / 10)
    return False


def _act(
    turn: Turn,
    leadership: Leadership,
    manager: Manager,
    runtime: Runtime,
    options: ManagerOptions,
    stop: threading.Event,
    each: Callable[[], None],
    watch: Watch,
) -> None:
    clock = runtime.clock
    try:
        while not stop.is_set():
            turn()
            began = clock.monotonic()
            busy = manager.tick()
            leadership.wanted_slots = manager.wanted_slots
            each()
            watch.acts(leadership, manager, clock.monotonic() - began)
            if not busy and not stop.is_set():
                runtime.wakeups.wait(stop, options.tick)
    finally:
        manager.close()


def _release(leadership: Leadership) -> None:
    try:
        leadership.release()
    except StoreError as error:
        log.warning("the lease was not released; it runs out by itself", error=str(error))
