"""The acting manager: one round after another, each concern on its own.

A concern that fails because storage does not answer is tried again in the next round; none keeps
anything in memory that the tables do not have.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import structlog

from service_manager.dispatch.brake import Brake
from service_manager.dispatch.dispatch import Dispatch
from service_manager.dispatch.fleet_dispatch import WITHOUT_PLACES, FleetDispatch, PlaceLook
from service_manager.dispatch.input_locations import InputLocations
from service_manager.dispatch.manager_cache import Live, ManagerCache
from service_manager.dispatch.ready import ReadyTasks
from service_manager.dispatch.restricting import Restricting
from service_manager.events.completion_events import CompletionEvents
from service_manager.events.dependents import Dependents, Informed
from service_manager.events.sweep import Sweep
from service_manager.fleet.attempts import Attempts
from service_manager.fleet.wanted_slots import WantedSlots
from service_manager.mail import notify
from service_manager.options import ManagerOptions
from service_manager.plans.plan_jobs import Planner, Run, inline
from service_manager.requests.intake import Intake
from service_manager.requests.lifecycle import Lifecycle
from service_manager.requests.release import Release
from service_manager.storage.retention import Retention
from service_manager.storage.worth import Policy
from tasks.bag.categories import Category
from tasks.bag.model import Phase, State
from tasks.bag.protocol import NOT_HERE
from tasks.bag.runtime import Runtime
from tasks.bag.task_keys import SHARDS, shard
from tasks.bag.task_rows import CompletionEvent
from tasks.bag.workers import WorkerRow
from tasks.errors import StoreError
from tasks.messages.wakeups import LOOK
from tasks.operators.manager_rows import HostQueue, PhaseQueue, PhaseStore, PlaceQueue
from tasks.request.library import NO_UPLOADS, Library
from tasks.service import tracing
from tasks.service.tracing import Span
from tasks.setting_values import Slots
from tasks.storage.own_rows import Together
from tasks.storage.queues import address

log = structlog.get_logger("manager")

CLEANING = 0.1  # seconds of one round
AT_REST = 5.0  # seconds between two looks for what no wake-up told, while nothing goes on
PREPARING = 2.0  # seconds between two writings of how far planning and writing are
_TOLD = 500  # requests that wait for a worker of a place

Concern = Callable[[], bool | None]  # returns whether there is more to do at once
Send = Callable[[Sequence[str]], None]
Recall = Callable[[], Sequence[str]]
SendTo = Callable[[Sequence[str], str], None]
Heard = Callable[[Sequence[CompletionEvent]], None]


class SendError(Exception):
    """The broker did not take a message."""


class Manager:
    """The acting manager: it runs rounds until one raises FencedError.

    `send` wakes a worker for a batch of keys and raises SendError when it cannot; `send_to` wakes a
    worker at one address (`tasks/storage/queues.py`); without it no host is preferred, and no work
    has a place. `recall` takes back all messages that no slot has taken, and returns their keys.
    `plan` is the planner. `scale` tells autoscalers how many slots are wanted at a place. `heard`
    is told of attempts that ended, `told` of wake-ups to look. `library` says what names in
    requests mean. Rows that are independent are read `together`.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: ManagerOptions,
        plan: Planner,
        send: Send,
        epoch: int,
        run: Run = inline,
        send_to: SendTo | None = None,
        scale: Callable[[int, str], None] = lambda _wanted, _place: None,
        recall: Recall = tuple,
        heard: Heard = lambda _events: None,
        told: Callable[[], None] = lambda: None,
        library: Library = NO_UPLOADS,
        together: Together = map,
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._send = send
        self._send_to = send_to
        self._scale = scale
        self._recall = recall
        self._heard = heard
        self._told = told
        self._work = options.work_places if send_to is not None else WITHOUT_PLACES
        self._wanted = {
            place: WantedSlots(options if not place else replace(options, scale_slots=Slots()))
            for place in ("", *self._work.names)
        }
        self.wanted_slots = options.scale_slots.least  # by workers without a place
        self.wanted_by_place: dict[str, int] = {}
        self.cache = ManagerCache()
        self._locations = InputLocations(self.cache) if send_to is not None else None
        self._dispatch = FleetDispatch(
            lambda: Dispatch(
                options.window,
                options.resend,
                self._locations,
                options.patience,
                self._expected,
                places=options.places,
            ),
            self._work,
        )
        self._ready = ReadyTasks(runtime, options, self.cache, self._dispatch)
        self._dependents = Dependents(runtime, self._find, self._locations)
        self._events = CompletionEvents(runtime, self.cache, self._dependents, epoch, together)
        self._attempts = Attempts(runtime, options, self.cache, self._dispatch)
        self._lifecycle = Lifecycle(
            runtime,
            options,
            self.cache,
            self._dispatch,
            self._ready,
            Intake(runtime, options, plan, run, lambda: self.cache.slots, library),
            self._dependents,
            self._hear,
            epoch,
            self._locations,
        )
        self._brake = Brake(
            runtime, self.cache, self._dispatch, self._find, self._events.notice, epoch
        )
        self._release = Release(
            runtime,
            self.cache,
            self._dispatch,
            options.sweep,
            partial(notify.tell_cancelled, runtime, portal_url=options.portal_url),
        )
        self._restricting = Restricting(runtime.store, runtime.clock, self.cache, options.sweep)
        self._sweep = Sweep(runtime, self.cache, self._dispatch, options.sweep)
        self._swept = False  # all shards, once
        self._retention = Retention(runtime, options.orphans, Policy.of(options), library)
        self._cleaned: Iterator[bool] | None = None  # a pass under way
        self._clean_period = options.orphans / len(SHARDS)
        self._due_clean = self._clock.monotonic() + options.orphans
        self._shards_looked_at = itertools.cycle(SHARDS)
        self._turns: dict[Concern, float] = {}  # when each had its last
        self._concerns: tuple[tuple[Concern, float], ...] = (
            (self._hear_wakeups, 0.0),
            (self._lifecycle.take_up, 1.0),
            (self._restrict, 1.0),
            (self._lifecycle.plan, 0.0),
            (self._sweeping, 0.0),
            (self._process_events, 0.0),
            (self._lifecycle.work, 0.0),
            (self._ready.wake, 0.0),
            (self._ready.move, options.heartbeat),
            (self._attempts.look, options.heartbeat),
            (self._lifecycle.ends, 0.0),
            (self._brake.step, 0.0),
            (self._dispatching, 0.0),
            (self._scaling, options.heartbeat),
            (self._lifecycle.progress, 1.0),
            (self._lifecycle.prepare, PREPARING),
            (self._release.step, 0.0),
            (self._cleaning, 0.0),
        )
        # A request that comes is told by a wake-up, and nothing runs that could be lost.
        self._at_rest: Mapping[Concern, float] = {
            self._lifecycle.take_up: AT_REST,
            self._restrict: options.sweep,  # and in the round in which a request comes
            self._attempts.look: options.sweep,
        }

    def tick(self) -> bool:
        """One round; returns whether there is more to do at once.

        Raises:
            FencedError: another manager acts.
        """
        busy = False
        for concern, period in self._concerns:
            now = self._clock.monotonic()
            at_rest = self._at_rest.get(concern, period) if self.cache.at_rest else period
            if now < self._turns.get(concern, -math.inf) + at_rest:
                continue
            self._turns[concern] = now
            try:
                busy |= bool(concern())
            except StoreError as error:
                log.warning(
                    "tried again in the next round", concern=concern.__qualname__, error=str(error)
                )
        return busy

    @property
    def ready(self) -> int:
        """Tasks without a place that a slot may take."""
        return sum(self._dispatch.looks(self.cache)[0].ready.values())

    def queues(self) -> tuple[PhaseQueue, ...]:
        """Return what is ready and what runs, by phase."""
        ready = self._dispatch.queues(self._clock.monotonic())
        running = Counter(one.phase for one in self.cache.running.values())
        return tuple(
            PhaseQueue(phase=phase, ready=number, oldest=oldest, running=running[phase])
            for phase in Phase
            for number, oldest in [ready.get(phase, (0, 0.0))]
        )

    def waiting_for_places(self) -> tuple[HostQueue, ...]:
        """Return the archive hosts whose places are all taken, with the tasks that wait.

        After them come the packages for whose runs there is no more room.
        """
        hosts = self._dispatch.waiting_for_places(self.cache)
        return (*hosts, *self._dispatch.waiting_for_room(self.cache))

    def places(self) -> tuple[PlaceQueue, ...]:
        """Return what waits and runs at each place; nothing where none has a name."""
        looks = {look.place: look for look in self._dispatch.looks(self.cache)}
        names = sorted({*looks, *(one.place for one in self.workers)})
        if names == [""]:
            return ()
        return tuple(self._place(name, looks.get(name)) for name in names)

    def _place(self, name: str, look: PlaceLook | None) -> PlaceQueue:
        here = [one for one in self.workers if one.place == name]
        ready = look.ready if look is not None else {}
        return PlaceQueue(
            place=name,
            workers=len(here),
            slots=sum(one.slots for one in here if one.able),
            wanted_slots=self.wanted_by_place.get(name, 0),
            ready=sum(ready.values()),
            running=look.cache.busy if look is not None else 0,
            heard=0.0 if here else self._attempts.heard.get(name, 0.0),
            requests=() if here else tuple(islice((one for one, n in ready.items() if n), _TOLD)),
        )

    @property
    def stored(self) -> tuple[tuple[PhaseStore, ...], int]:
        """The files kept in storage, by phase, and how many shards were looked at for it."""
        return self._retention.stored()

    @property
    def workers(self) -> Sequence[WorkerRow]:
        """The workers, as they beat when they were last looked at."""
        return self._attempts.workers

    def close(self) -> None:
        """Let go of plans that are made beside the rounds."""
        self._lifecycle.close()

    def _expected(self, task_class: str) -> float | None:
        return self._attempts.expected(task_class)

    def _find(self, request: str) -> Live | None:
        return self._lifecycle.find(request)

    def _hear(self, informed: Informed) -> None:
        for task in informed.ready:
            self._ready.now(task)
        self._events.notice([shard(ended) for ended in informed.ended])

    def _restrict(self) -> None:
        if self._restricting.look():
            # What waits on the queue was chosen under the earlier ones.
            self._dispatch.unsend(self._recall())

    def _sweeping(self) -> None:
        for _ in range(1 if self._swept else len(SHARDS)):
            number = self._sweep.due()
            if number is None:
                break
            found = self._sweep.run(number)
            for at, key in found.later:
                self._ready.later(at, key)
            if found.has_events:
                self._events.notice([number])
        self._swept = True

    def _hear_wakeups(self) -> None:
        keys = self._runtime.wakeups.drain()
        self._events.notice([shard(key) for key in keys if key != LOOK])
        if LOOK in keys:
            self._turns.pop(self._lifecycle.take_up, None)
            if not self.cache.slots:  # else a worker more is found by the next look
                self._turns.pop(self._attempts.look, None)
            self._told()

    def _process_events(self) -> bool:
        began = self._clock.monotonic()
        result = self._events.run()
        self._heard([event for event in result.ended if event.number])
        self._record(result.ended)
        for event in result.ended:
            self._ended(event)
        for event in result.returned:
            self._attempts.returned(event)
            self._given_back(event)
            self._ready_again(event)
        for task in result.ready:
            self._ready.now(task)
        for at, key in result.later:
            self._ready.later(at, key)
        if not result.more:
            self._attempts.counted(began)
        return result.more

    def _given_back(self, event: CompletionEvent) -> None:
        """Take note of what a worker says of a run that it gave back."""
        host, _ = self.cache.workers.get(event.worker, ("", 0))
        if event.message.startswith(NOT_HERE) and host:
            why = event.message.removeprefix(NOT_HERE)
            self._dispatch.unsuited(event.task_class, host, why)
        elif event.message:
            self._dispatch.no_room(self.cache, event.task_class, event.message)

    def _record(self, events: Sequence[CompletionEvent]) -> None:
        """Record how long the ends of attempts have waited for the manager."""
        if not tracing.is_on():
            return
        now = self._clock.now()
        for event in events:
            trace = tracing.trace_of(event.sponsor)
            attempt = tracing.attempt_of(event.sponsor, event.key, event.number)
            tracing.record(
                Span(
                    name="process end",
                    trace=trace,
                    id=tracing.span_of(trace, attempt, "process end"),
                    parent=attempt,
                    began=event.ended,
                    ended=now,
                    attributes={
                        "swathmill.request": event.sponsor,
                        "swathmill.task": event.key,
                        "swathmill.attempt": event.number,
                    },
                )
            )

    def _ended(self, event: CompletionEvent) -> None:
        self._attempts.ended(event)
        if event.category is Category.DISK_SHARED:
            self._dispatch.no_room(self.cache, event.task_class, event.message)
        self._wanted[self._work.of(event.task_class)].ended(event)
        if self._locations is not None:
            failed = event.category is not None
            self._locations.ended(event.key, event.worker, failed=failed)
        self._dispatch.freed(self._clock.monotonic(), event.task_class)
        self._ready_again(event)

    def _ready_again(self, event: CompletionEvent) -> None:
        self._dispatch.remove(event.key)
        if event.state is State.READY and not event.not_before:
            self._dispatch.add(
                event.key,
                event.sponsor,
                event.task_class,
                alone=event.category is not None,
                rank=event.rank,
            )

    def _dispatching(self) -> None:
        for request in self._dispatch.hungry():
            self._sweep.feed(request)
        if self._dispatch.overtaken(self.cache):
            self._dispatch.unsend(self._recall())
        chosen = self._dispatch.choose(self.cache, self._clock.monotonic())
        for number, keys in enumerate(chosen):
            try:
                host, place = self._dispatch.host(keys[0]), self._dispatch.place(keys[0])
                whom = address(host, place)
                if whom and self._send_to is not None:
                    self._send_to(keys, whom)
                else:
                    self._send(keys)
            except SendError as error:
                log.warning("the broker takes no messages", error=str(error))
                self._dispatch.unsend(itertools.chain.from_iterable(chosen[number:]))
                return

    def _scaling(self) -> None:
        now, wanted = self._clock.monotonic(), dict[str, int]()
        for look in self._dispatch.looks(self.cache):
            wanted[look.place] = self._wanted[look.place].count(look.cache, look.ready, now)
        # Of a place that has no work any more, the workers leave.
        wanted |= {one.place: 0 for one in self.workers if one.place not in wanted}
        self.wanted_slots, self.wanted_by_place = wanted[""], wanted
        for place, number in wanted.items():
            self._scale(number, place)
            self._attempts.scale_in(number, place)

    def _cleaning(self) -> None:
        """Expire artifacts that are not worth keeping and delete useless blobs, shard by shard.

        It works for a small part of each round. Raises StoreError; then the next shard is due.
        """
        now = self._clock.monotonic()
        if self._cleaned is None:
            if now < self._due_clean:
                return
            self._due_clean = now + self._clean_period
            self._cleaned = self._retention.passing(next(self._shards_looked_at))
        passing, self._cleaned = self._cleaned, None
        until = now + CLEANING
        gone = 0
        for went in passing:
            gone += went
            if self._clock.monotonic() >= until:
                self._cleaned = passing
                break
        if gone:
            log.info("artifacts expired and useless blobs deleted", count=gone)
