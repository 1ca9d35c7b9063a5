"""One simulated history out of one seed, and what must hold when it is over."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from service_manager.dispatch import dispatch
from service_manager.events import completion_events
from service_manager.mail.notify import Postman
from service_manager.options import ManagerOptions
from service_manager.requests import continuing
from service_manager.requests.continuing import Continuing
from service_manager.storage.retention import NOTHING
from service_manager.storage.worth import Policy
from tasks.bag import history as executions
from tasks.bag import protocol, workers
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestOrder, RequestState, State
from tasks.bag.runtime import Runtime
from tasks.bag.time_limits import TimeLimits
from tasks.bag.transitions import RetryPolicy
from tasks.errors import RequestRefusedError, StoreError
from tasks.operators import restrictions
from tasks.operators.restrictions import ALL, QUOTAS, Kind, Restriction
from tasks.request.document import Request, parse_request
from tasks.requests import outbox, request_operations, request_table
from tasks.requests.plan import Plan
from tasks.requests.retrying import Scope
from tasks.setting_values import Slots, WorkPlaces
from tasks.storage.blobs import MemoryBlobs, split_blob
from tasks.storage.memory_store import MemoryStore
from tasks.storage.store import Store
from tests.simulation.actors import Beside, Client, Script, SimWorker, manager
from tests.simulation.broken import BrokenHosts
from tests.simulation.disks import SharedDisk
from tests.simulation.idleness import Idleness
from tests.simulation.mail import Mailboxes, SimMailServer
from tests.simulation.network import (
    BLOBS,
    LATEST,
    MESSAGES,
    STORE,
    WAKE_UPS,
    Broker,
    Cut,
    Cuts,
    Mailbox,
    Rates,
    SimClock,
    SimStore,
    runtime_of,
)
from tests.simulation.noise import Noise
from tests.simulation.patching import Undo, patch, quicken
from tests.simulation.places import Places
from tests.simulation.reckoning import Reckoning, passing_rows
from tests.simulation.scenario import CELL, Scenario, one_of_many_rasters
from tests.simulation.steps import steps_met
from tests.simulation.watch import Watch
from tests.simulation.world import Process, ViolationError, World

NEWEST = dt.date(2012, 1, 4)
"""The last day in the archive, two after that of the requests."""
STORM = 600.0  # seconds of faults
SETTLED = 100.0  # seconds of calm, after which the manager knows what each worker does
PASSES = 400.0  # seconds, in which retention looks three times
CALM = 3600.0  # seconds after them, in which everything must end, also on one slot
OPTIONS = ManagerOptions(
    tick=1.0,
    sweep=15.0,
    resend=15.0,
    heartbeat=4.0,
    lease=16.0,
    window=8,
    places=1,
    max_tasks=60,
    time_limits=TimeLimits(samples=2, floor=25.0, ceiling=80.0),
    orphans=float("inf"),
    probe=40.0,
    retry=RetryPolicy(budget=4, base=2.0, ceiling=15.0, longest=30.0),
)
WORK_PLACES = (
    "big=reduction",
    "big=aggregation",
    "big=collection",
    "big=aggregation gpu=reduction",
)
"""What settings say of places; some of it is at none."""
LONG = TimeLimits(samples=2, floor=25.0, ceiling=800.0)
"""Of noisy histories, whose tasks take longer."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A fault in the product that the simulation must find. `apply` breaks it and returns what
    mends it again; the flags are mutants of the simulated parts."""

    name: str
    apply: Callable[[], Callable[[], None]] = lambda: lambda: None
    rasters: bool = False
    """It is sought in histories of one request of many rasters."""
    split_markers: bool = False
    delete_on_conflict: bool = False
    lost_is_failure: bool = False
    noisy: bool = False  # noisy histories find it


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one history; `met` counts what became of requests of several steps."""

    seed: int
    digest: str
    steps: int
    faults: Counter[str]
    met: Counter[str] = field(default_factory=Counter)
    violation: str = ""
    log: tuple[str, ...] = ()


@dataclass
class History:
    """The whole simulated installation; with `steps` all requests have several steps.

    A `noisy` one has no fault but noise on its hosts, and no task waits beside an idle slot. With
    `rasters` there is one request of many rasters, and no trouble: its results come in order.
    """

    seed: int
    mutant: Mutant
    store: Store
    steps: bool = False
    noisy: bool = False
    rasters: bool = False
    world: World = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.seed)
        random = self.world.random
        self.rates = Rates(random)
        self.blobs = MemoryBlobs()
        self.watch = Watch(
            world=self.world,
            store=self.store,
            blobs=self.blobs,
            shortest=OPTIONS.time_limits.floor / 2,
            lease=OPTIONS.lease,
            losses=self._retry().losses,
        )
        self.cuts = Cuts(self.world)
        self.broker = Broker(self.world, self.rates, self.cuts)
        self.wakeups = Mailbox(self.world, self.rates, "wake-up")
        self.queue = Mailbox(self.world, self.rates, "request wake-up")
        # Of its own numbers, so that the other histories stay as they are.
        apart = Random(f"places {self.seed}")
        self.placed = apart.random() < 0.25
        self.places = Places(self.world, OPTIONS.places, apart)
        host = "archive.example.org" if self.placed else ""
        self.scenario = Scenario.of(random, steps=self.steps, host=host, large=self.noisy)
        self.retention = NOTHING if random.random() < 0.5 else None
        if self.retention and Random(f"results {self.seed}").random() < 0.5:
            self.retention = Policy(storage=1e12, results=30.0)  # they go soon after the end
        self.script = Script(
            never=set(self.scenario.never),
            crashes=dict(self.scenario.crashes),
            fails=random.choice([0.0, 0.1, 0.3]),
            hangs=random.choice([0.0, 0.0, 0.03]),
            slow=random.choice([0.5, 3.0, 10.0, 30.0]),
            machines={
                f"worker-{i}": (start, start + random.uniform(60, 500), random.uniform(4, 12))
                for i in range(3)
                if (start := random.uniform(-800, STORM)) > -200
            },
        )
        self.expected = random.choice([None, 0.2, 0.2])
        self.slots = random.choice([1, 1, 2])  # of each worker
        self.fuses = random.choice([0.0, 0.5, 0.9])
        self.processes: dict[str, Process] = {}
        self.incarnation: Counter[str] = Counter()
        self.client: Client | None = None
        self.asking = 0  # people who are about to ask for a file that was lost
        self.skews: dict[str, float] = {}
        self.skewed: list[float] = []  # all that a clock was ever wrong by
        self.parts = random.random() < 0.5  # hosts are cut off, their clocks jump
        self.away = Random(f"tables {self.seed}")
        self.splits = self.away.random() < 0.5  # one table is away, and the others are there
        self.shrinks = random.random() < 0.3  # all workers but one leave for good
        self.gone: set[str] = set()
        self.broken = BrokenHosts.of(self.world, self.seed, STORM, alone=self.shrinks)
        faultless = self.noisy or self.rasters
        self.disk = SharedDisk.of(self.world, self.seed, 0.0 if faultless else STORM)
        # Of its own numbers, so that the other histories stay as they are.
        scales = Random(f"scale {self.seed}").random() < 0.25
        self.work = self._work()
        self.options = replace(OPTIONS, retry=self._retry(), work_places=self.work)
        if scales:
            self.options = replace(self.options, scale_in=15.0, scale_slots=Slots(least=1))
        self.operates = Random(f"operators {self.seed}").random() < 0.25
        self.apart = Random(f"mail {self.seed}")
        self.refuses = self.apart.choice([0.0, 0.1, 0.5])
        self.mailboxes = Mailboxes()
        self.stands = Random(f"standing {self.seed}").random() < 0.25
        self.noise = self._noise()
        self.workers: dict[str, SimWorker] = {}

    def _retry(self) -> RetryPolicy:
        """In some histories a task that is lost with its worker a few times is given up."""
        few = Random(f"losses {self.seed}").random() < 0.25
        return replace(OPTIONS.retry, losses=2) if few else OPTIONS.retry

    def _work(self) -> WorkPlaces:
        """In each fourth history some work has a place, where workers never end for good."""
        random = Random(f"work places {self.seed}")
        if self.shrinks or self.rasters or random.random() >= 0.25:
            return WorkPlaces()
        self.world.faults["work with places"] += 1
        return WorkPlaces.read(random.choice(WORK_PLACES))

    def _place(self, worker: str) -> str:
        """The place of a worker: the first has none, the next are at one each, and so on."""
        places = ("", *self.work.names)
        return places[int(worker.partition("-")[2]) % len(places)]

    def _noise(self) -> Noise:
        """Noise on the hosts of each fourth history; a noisy one has no more faults than that."""
        random = Random(f"noise {self.seed}")
        if not self.noisy:
            names = [f"worker-{i}" for i in range(3)] if random.random() < 0.25 else []
            return Noise.of(random, names, STORM)
        self.world.calm, self.expected = True, None
        self.number, self.slots = random.choice([2, 3, 6, 7]), random.choice([1, 2, 2])
        self.alone = random.random() < 0.2  # all workers are on one host
        self.options = replace(
            OPTIONS, time_limits=LONG, places=random.choice([1, 2, 4]), work_places=self.work
        )
        self.number = max(self.number, 1 + len(self.work.names))
        self.places.number = self.options.places
        usual = random.choice([6.0, 20.0])
        self.script = replace(
            self.script, slow=1.25 * usual, quick=0.75 * usual, machines={}, hangs=0.0
        )
        hosts = ["host"] if self.alone else [f"worker-{i}" for i in range(self.number)]
        return Noise.of(random, hosts, STORM)

    # --- processes ---

    def runtime(self, process: Process) -> Runtime:
        store = SimStore(
            self.world,
            process,
            self.store,
            self.rates,
            self.watch,
            self.cuts,
            split=self.mutant.split_markers,
        )
        return runtime_of(
            self.world, process, store, self.blobs, self.queue, self.wakeups, self.cuts
        )

    def process(self, name: str) -> Process:
        random = self.world.random
        self.incarnation[name] += 1
        if name not in self.skews:
            self.skews[name] = random.choice([0.0, random.uniform(-300, 300)])
            self.skewed.append(self.skews[name])
        fuse = -1
        if not self.world.calm and random.random() < self.fuses:
            fuse = int(2 ** random.uniform(3, 11))
        process = Process(name=f"{name}#{self.incarnation[name]}", skew=self.skews[name], fuse=fuse)
        self.processes[name] = process
        return process

    def start_manager(self, name: str) -> None:
        process = self.process(name)
        runtime = self.runtime(process)
        retention = self.retention
        beside = self.beside(process, runtime)

        def run() -> None:
            manager(
                runtime,
                self.options,
                self.plan,
                partial(self.broker.send, process),
                partial(self.broker.recall, process),
                slots=self.slots,
                retention=retention,
                expected=self.expected,
                beside=beside,
            )

        self.world.spawn(process, run)

    def beside(self, process: Process, runtime: Runtime) -> list[Callable[[], None]]:
        """What a manager's process does beside its rounds: mails, and standing requests."""
        host = process.name.partition("#")[0]

        def outbox_goes(seconds: float) -> None:
            until = self.world.now + seconds
            self.cuts.add(Cut(process=host, party=outbox.TABLE, way="there", until=until))

        server = SimMailServer(
            world=self.world,
            process=process,
            mailboxes=self.mailboxes,
            trouble=self.refuses,
            random=self.apart,
            outbox_goes=outbox_goes,
        )
        postman = Postman(runtime.store, runtime.clock, server.as_server())
        threads = Beside(self.world, process)
        goes_on = Continuing(runtime, self.newest, threads.submit, period=20.0)
        return [partial(threads.tick, postman.deliver), goes_on.tick]

    def newest(self, later: Request) -> dt.date | None:
        """The archive has the days up to `NEWEST`, and got them one by one."""
        return later.time.start if later.time.start <= NEWEST else None

    def start_worker(self, name: str) -> None:
        process = self.process(name)
        self.workers[name] = SimWorker(
            world=self.world,
            process=process,
            runtime=self.runtime(process),
            options=self.options,
            broker=self.broker,
            script=self.script,
            watch=self.watch,
            slots=self.slots,
            places=self.places,
            noise=self.noise,
            host="host" if self.noisy and self.alone else name,
            broken=self.broken,
            disk=self.disk,
            place=self._place(name),
            sandbox="none"
            if Random(f"sandbox {name} {self.seed}").random() < 0.1
            else "bubblewrap",
            gone=lambda other: self.workers[other].process.dead,
            delete_on_conflict=self.mutant.delete_on_conflict,
            lost_is_failure=self.mutant.lost_is_failure,
        )
        self.workers[name].start()

    def plan(self, request: Request) -> Plan:
        """The planner: the title says what to plan."""
        if request.title == "refused":
            raise RequestRefusedError("title", "is refused.", "Choose another.")
        return self.scenario.plans[request.title]

    # --- what happens ---

    def supervise(self) -> None:
        """Processes that died are started again after a while, as a container platform does."""
        for name, process in list(self.processes.items()):
            if not process.dead or name.startswith("client") or name in self.gone:
                continue
            if self.world.calm or self.world.random.random() < 0.1:
                if name.startswith("manager"):
                    self.start_manager(name)
                else:
                    self.start_worker(name)
        self.world.at(2.0, self.supervise)

    def trouble(self) -> None:
        """Kills, stalls, lost messages and blobs, at random times."""
        world, random = self.world, self.world.random
        if world.calm:
            return
        victims = [
            p
            for n, p in self.processes.items()
            if not p.dead and not n.startswith("client") and p.stalled_until <= world.now
        ]
        chance = random.random()
        if victims and chance < 0.25 * self.fuses:
            victim = random.choice(victims)
            world.faults["kill"] += 1
            world.note(f"{victim.name} is killed")
            world.kill(victim)
        elif victims and chance < 0.5 * self.fuses:
            world.stall(random.choice(victims), random.uniform(5, 150))
        elif chance > 0.97:
            self._stale_orders()
        elif chance > 0.94:
            world.faults["broker emptied"] += 1
            self.broker.lose_all()
        elif chance > 0.87:
            self._lose_blob()
        world.at(random.uniform(2, 60), self.trouble)

    def part(self) -> None:
        """Hosts cut off from one party, a throttled partition, a clock that jumps."""
        world, random = self.world, self.world.random
        if world.calm:
            return
        hosts = [name for name in self.processes if not name.startswith("client")]
        until = world.now + random.uniform(5, 120)
        chance = random.random()
        if chance < 0.2:
            name = random.choice(hosts)
            jump = random.choice([-1, 1]) * random.choice([100.0, 1e5])
            world.faults["clock jumps"] += 1
            self.skews[name] += jump
            self.skewed.append(self.skews[name])
            self.processes[name].skew += jump
        elif chance < 0.4:
            shard = random.choice(sorted({key[0] for key in self.watch.tasks} or {"0"}))
            worker = random.choice([name for name in hosts if name.startswith("worker")])
            beats = f"{workers.TABLE}/{workers.partition_of(worker)}"
            party = random.choice([beats, f"tasks/{shard}"])
            self.cuts.add(Cut(process="", party=party, way="there", until=until, part=0.6))
        else:
            party = random.choice(
                [STORE, workers.TABLE, workers.TABLE, "tasks", BLOBS, MESSAGES, WAKE_UPS]
            )
            way = random.choice(["there", "back"])
            self.cuts.add(Cut(process=random.choice(hosts), party=party, way=way, until=until))
        world.at(random.uniform(10, 120), self.part)

    def split(self) -> None:
        """One table is away by itself: of two writes that belong together one may fail."""
        if self.world.calm:
            return
        random = self.away
        cut = Cut(
            process=random.choice(["", "manager-a", "manager-b"]),
            party=random.choice([outbox.TABLE, executions.TABLE, request_table.TABLE]),
            way=random.choice(["there", "back"]),
            until=self.world.now + random.uniform(10, 60),
        )
        self.cuts.add(cut)
        self.world.at(random.uniform(20, 120), self.split)

    def shrink(self) -> None:
        """All workers but one leave for good, by themselves or as their hosts do."""
        names = [name for name in self.processes if name.startswith("worker")]
        kept = self.world.random.choice(names)
        for name in names:
            process = self.processes[name]
            if name == kept or process.dead:
                self.gone |= {name} - {kept}
                continue
            self.world.faults["worker gone"] += 1
            self.gone.add(name)
            self.world.kill(process)
            if self.world.random.random() < 0.5:
                row = self.watch.rows.get(name)
                clock = SimClock(self.world, process)
                workers.leave(self.store, clock, name, row.started if row else 0.0)
                self.watch.rows.pop(name, None)

    def _stale_orders(self) -> None:
        """A manager that is over had orders under way: a worker is held, its attempts moved."""
        clock = SimClock(self.world, Process(name="an earlier manager"))
        for worker in workers.list_workers(self.store):
            hold = self.world.random.choice(list(workers.Hold))
            self.world.faults["stale order"] += 1
            workers.order_hold(self.store, clock, worker.name, worker.started, hold)
            for attempt in worker.attempts:
                workers.order_move(self.store, clock, worker.name, attempt.claim)

    def _lose_blob(self) -> None:
        if self.world.random.random() >= self.rates.blob_lost:
            return
        done = sorted(
            (f.blob, t.key)
            for t in self.watch.tasks.values()
            for f in t.files
            if t.state is State.DONE
        )
        if done:
            blob, key = self.world.random.choice(done)
            self.watch.lost_tasks.add(key)
            self.world.faults["blob lost"] += 1
            self.world.note(f"blob {blob} is lost")
            self.watch.lost_blobs.add(blob)
            self.blobs.delete(*split_blob(blob))
            if self.world.random.random() < 0.5:
                self._ask_for(key, blob)

    def _ask_for(self, key: str, blob: str) -> None:
        """Somebody wants to have the file that was lost, sooner or later."""
        process = Process(name=f"client of {blob}")
        runtime = self.runtime(process)
        delay = self.world.random.uniform(0.1, 300)
        self.asking += 1

        def run() -> None:
            runtime.clock.sleep(delay)
            while True:
                try:
                    protocol.lose(runtime, key, blob)
                except StoreError:
                    runtime.clock.sleep(3)
                else:
                    break
            self.world.faults["lost blob asked for"] += 1
            self.watch.asked_blobs.add(blob)
            self.asking -= 1

        self.world.spawn(process, run)

    def people(self) -> None:
        """A client's process: requests, cancels, submissions repeated."""
        random = self.world.random
        process = Process(name="client")
        self.processes["client"] = process
        client = Client(world=self.world, runtime=self.runtime(process))
        self.client = client
        script: list[tuple[float, str, str]] = []
        self.asking += 1
        titles = list(self.scenario.plans)
        for i in range(random.randint(1, 5)):
            at = random.choice([0.0, random.uniform(0, STORM * 0.8)])
            title = random.choice(titles) if random.random() > 0.03 else "refused"
            script.append((at, f"r{i}", title))
            late = at + random.uniform(0.1, 200)
            if random.random() < 0.25:
                script.append((late, f"r{i}", "cancel"))
                if random.random() < 0.6:  # and wants it again after all
                    script.append((late + random.uniform(0.1, 30), f"s{i}", title))
            elif random.random() < 0.15:
                script.append((late, f"r{i}", "pause"))
                script.append((late + random.uniform(0.1, 60), f"r{i}", "resume"))
            if random.random() < 0.2:
                for _ in range(random.randint(1, 2)):
                    script.append((at + random.uniform(50, STORM), f"r{i}", "retry"))
            if random.random() < 0.1:
                script.append((at + random.uniform(0.1, 200), f"r{i}", title))

        def run() -> None:
            for at, name, what in sorted(script):
                if at > self.world.now:
                    client.runtime.clock.sleep(at - self.world.now)
                self.act(client, name, what)
            client.finished = True
            self.asking -= 1

        self.world.spawn(process, run)
        self.another(client, script)

    def another(self, client: Client, script: Sequence[tuple[float, str, str]]) -> None:
        """Somebody else at the same requests: tries again at the same moments, and cancels then."""
        random = Random(f"another {self.seed}")
        process = Process(name="client-another")
        other = replace(client, runtime=self.runtime(process))
        mine = [
            (at + random.uniform(-1, 1), name, "retry")
            for at, name, what in script
            if what == "retry" and random.random() < 0.5
        ]
        mine += [
            (at + random.uniform(0, 3), name, "cancel")
            for at, name, _ in mine
            if random.random() < 0.3
        ]
        self.asking += 1

        def run() -> None:
            for at, name, what in sorted(mine):
                if at > self.world.now:
                    other.runtime.clock.sleep(at - self.world.now)
                if name in client.submitted:
                    self.act(other, name, what)
            self.asking -= 1

        self.world.spawn(process, run)

    def eager(self) -> None:
        """Somebody who asks for another try as soon as something fails, some of it or all."""
        random = Random(f"eager {self.seed}")
        if self.client is None or random.random() >= 0.5:
            return
        eager = replace(self.client, runtime=self.runtime(Process(name="client-eager")))
        scopes = [Scope(), Scope(category=Category.SOURCE_NOT_PUBLISHED), Scope()]
        hasty = random.random() < 0.5  # and again for each that fails
        scopes *= 3 if hasty else 1

        def ask(request: str, wait: float, scope: Scope) -> None:
            eager.runtime.clock.sleep(wait)
            if request in eager.submitted:
                self.world.faults["retry"] += 1
                eager.retry(request, scope)
            self.asking -= 1

        def failing(request: str) -> None:
            if not scopes or self.world.now > STORM or random.random() < 0.5 * (not hasty):
                return
            self.asking += 1
            scope, wait = scopes.pop(), random.uniform(0.0, 0.5 if hasty else 2.0)
            process = Process(name="client-eager")
            self.world.spawn(process, partial(ask, request, wait, scope))

        self.watch.failing = failing

    def librarian(self) -> None:
        """Somebody who puts requests under labels and shares them with a group, and back again."""
        random = Random(f"labels {self.seed}")
        if self.client is None or random.random() >= 0.25:
            return
        process = Process(name="client-librarian")
        tidy = replace(self.client, runtime=self.runtime(process))
        self.asking += 1

        def run() -> None:
            for _ in range(8):
                tidy.runtime.clock.sleep(random.uniform(1, STORM / 4))
                labels = tuple(one for one in ("a", "b") if random.random() < 0.5)
                group = random.choice(["", "group"])
                if tidy.submitted:
                    self.world.faults["label"] += 1
                    tidy.describe(random.choice(sorted(tidy.submitted)), labels, group)
            self.asking -= 1

        self.world.spawn(process, run)

    def pair(self) -> None:
        """Two people who want the same; whoever asked first pauses it for a long while."""
        random = Random(f"pair {self.seed}")  # so that the other histories stay as they are
        if self.client is None or random.random() >= 0.5:
            return
        process = Process(name="client-pair")
        both = replace(self.client, runtime=self.runtime(process))
        title, clock = random.choice(list(self.scenario.plans)), both.runtime.clock
        waits = random.uniform(0.0, STORM / 4), random.uniform(0.1, 5.0), random.uniform(0.1, 20.0)
        paused = random.uniform(60.0, 200.0)
        self.asking += 1

        def run() -> None:
            orders = (("p0", title), ("p1", title), ("p0", "pause"))
            for wait, (name, what) in zip(waits, orders, strict=True):
                clock.sleep(wait)
                self.act(both, name, what)
            clock.sleep(paused)
            self.act(both, "p0", "resume")
            self.asking -= 1

        self.world.spawn(process, run)

    def operators(self) -> None:
        """Restrict and lift, drain and release at random; all is lifted at the storm's end."""
        random = Random(f"what operators do {self.seed}")
        process = Process(name="operators")
        runtime = self.runtime(process)
        store, clock = runtime.store, runtime.clock
        subjects = {kind: ["owner0", "owner1"] for kind in Kind}
        subjects |= {kind: [*Phase] for kind in (Kind.PAUSE_PHASE, Kind.LIMIT_PHASE)}
        kinds: list[Kind] = [one for one in Kind if one not in (Kind.QUOTA_PACKAGE, Kind.QUOTA_ALL)]
        self.asking += 1

        def insist(call: Callable[[], object]) -> None:
            while True:
                try:
                    call()
                except StoreError:
                    clock.sleep(2.0)
                else:
                    return

        def run() -> None:
            while self.world.now < STORM:
                clock.sleep(random.uniform(1, 60))
                kind = random.choice(kinds)
                subject = random.choice(subjects[kind])
                if kind is Kind.QUOTA_OWNER and self.seed % 2:  # half of the histories
                    kind, subject = Kind.QUOTA_ALL, ALL
                worker = f"worker-{random.randint(0, 2)}"
                value = float(random.randint(0, 2))
                new = Restriction(kind=kind, subject=subject, value=max(value, 1.0))
                if kind in QUOTAS:
                    new = replace(new, value=value / 100)
                self.world.faults["restriction"] += 1
                insist(partial(restrictions.put, store, new))
                insist(partial(workers.ask, store, clock, worker, workers.Ask.DRAIN, ""))
                clock.sleep(random.uniform(1, 90))
                insist(partial(restrictions.lift, store, clock, kind, subject))
                insist(partial(workers.ask, store, clock, worker, workers.Ask.RELEASE, ""))
                self.confirm(runtime, insist)
            # What was set may land after it was lifted: they look once more, as people do.
            clock.sleep(LATEST)
            for left in restrictions.load(store):
                insist(partial(restrictions.lift, store, clock, left.kind, left.subject))
            for number in range(3):
                name = f"worker-{number}"
                insist(partial(workers.ask, store, clock, name, workers.Ask.RELEASE, ""))
            for _ in range(5):  # a manager may have read them before
                self.confirm(runtime, insist)
                clock.sleep(LATEST)
            self.asking -= 1

        self.world.spawn(process, run)

    def confirm(self, runtime: Runtime, insist: Callable[[Callable[[], object]], None]) -> None:
        """Have owners let go on what would take more than is left of a quota."""
        for name, row in list(self.watch.requests.items()):
            if row.state is RequestState.HELD:
                insist(partial(request_operations.order, runtime, name, RequestOrder.CONFIRM))

    def act(self, client: Client, name: str, what: str) -> None:
        """One thing that a person does."""
        if what in ("cancel", "pause", "resume"):
            self.world.faults[what] += 1
            client.order(name, RequestOrder(what))
        elif what == "retry":
            if self.world.random.random() < 0.5:  # what was missing was published meanwhile
                self.script.never.clear()
            if self.world.random.random() < 0.25:  # what the package lacked is there now
                self.script.crashes.clear()
            self.world.faults[what] += 1
            client.retry(name)
        else:
            client.submit(f"owner{hash_of(name) % 2}", self.document(what), name)

    def document(self, title: str) -> Request:
        return parse_request(
            {
                "title": title,
                "products": [{"name": "MOD13A2", "collection": "6", "layers": ["x"]}],
                "region": {"tiles": ["h18v04"]},
                "time": {"start": "2012-01-01", "end": "2012-01-02"},
                "grid": {"modis": 1000},
                "on_missing": self.scenario.policies.get(title, "skip"),
                "notify": "scientist@example.org",
                "standing": int(self.stands),
            }
        )

    def run_rasters(self) -> None:
        """One request of many rasters in the calm: its results come as the work goes."""
        world, random = self.world, Random(f"rasters {self.seed}")
        world.calm = True
        self.scenario = one_of_many_rasters(random)
        self.script = Script(
            never=set(),
            crashes={},
            fails=0.0,
            hangs=0.0,
            slow=random.choice([4.0, 8.0]),
            machines={},
        )
        self.options = replace(OPTIONS, max_tasks=1000)
        self.expected, self.slots = None, 1
        self.broken = BrokenHosts(world)
        self.start_manager("manager-a")
        for number in range(2):
            self.start_worker(f"worker-{number}")
        process = Process(name="client")
        client = Client(world=world, runtime=self.runtime(process), finished=True)
        self.client = client
        document = self.document("plan0")
        world.spawn(process, lambda: client.submit("owner", document, "r0"))
        world.run(STORM + CALM, lambda: "r0" in self.watch.ended)
        self._check_order()

    def _check_order(self) -> None:
        """At 30% of the cells a quarter of the rasters is there."""
        specs = {one.key: one for one in self.scenario.plans["plan0"].tasks}
        cells = {k for k, one in specs.items() if getattr(one.spec, "name", "").startswith(CELL)}
        rasters = {key for key, one in specs.items() if one.output}
        made = self.watch.made
        if not rasters <= {*made}:
            self.watch.fail(f"{len(rasters - {*made})} rasters are not made")
        done = [number for number, key in enumerate(made) if key in cells]
        there = rasters & {*made[: done[3 * len(cells) // 10]]}
        if len(there) < len(rasters) / 4:
            self.watch.fail(f"at 30% of the cells {len(there)} of {len(rasters)} rasters are there")

    def run(self) -> None:
        """The storm, then the calm, then the reckoning; without a storm in a noisy one."""
        if self.noisy:
            self.run_noisy()
            return
        if self.rasters:
            self.run_rasters()
            return
        world = self.world
        for name in ("manager-a", "manager-b"):
            self.start_manager(name)
        number = world.random.choice([1, 1, 2, 3])
        number = max(number, 1 + len(self.work.names))
        self.broken.among(1 if self.work.names else number, STORM)
        for i in range(number):
            self.start_worker(f"worker-{i}")
        self.people()
        self.eager()
        self.librarian()
        if self.operates:
            self.operators()
        world.at(1.0, self.supervise)
        world.at(1.0, self.trouble)
        if self.placed:
            world.at(1.0, self.places.search)
        if self.parts:
            world.at(world.random.uniform(5, 60), self.part)
        if self.splits:
            world.at(self.away.uniform(5, 60), self.split)
        if self.shrinks:
            world.at(world.random.uniform(30, STORM), self.shrink)
        world.run(STORM)
        world.calm = True
        wakes = (process.stalled_until for process in self.processes.values() if not process.dead)
        self.watch.settled = max(world.now, *wakes) + SETTLED
        world.run(STORM + CALM, self.settled)
        if not self.settled():
            self.watch.fail(f"not everything ended: {self.unsettled()}")
        world.run(world.now + 40)
        reckoning = self.reckoning()
        reckoning.check()
        apart = max(self.skewed) - min(self.skewed)
        if reckoning.short_lived and apart < PASSES:
            world.run(world.now + PASSES + apart)
            reckoning.expired()

    def reckoning(self) -> Reckoning:
        return Reckoning(
            watch=self.watch,
            scenario=self.scenario,
            client=self.client,
            mailboxes=self.mailboxes,
            short_lived=self.retention not in (None, NOTHING),
        )

    def run_noisy(self) -> None:
        """Noise and people alone: nothing fails, and no task waits beside an idle slot."""
        for name in ("manager-a", "manager-b"):
            self.start_manager(name)
        self.broken.among(1 if self.work.names else self.number, STORM)
        for i in range(self.number):
            self.start_worker(f"worker-{i}")
        self.people()
        self.pair()
        if self.operates:
            self.operators()
        self.watch.settled = 0.0
        self.watch.one_host = self.alone
        self.world.at(1.0, self.supervise)
        mean = (self.script.quick + self.script.slow) / 2
        Idleness(self.watch, self.workers.values, self.places, mean, self.work).look()
        self.world.run(STORM + CALM, self.settled)
        if not self.settled():
            self.watch.fail(f"not everything ended: {self.unsettled()}")
        self.reckoning().check()

    def settled(self) -> bool:
        return not self.unsettled()

    def unsettled(self) -> str:
        """What has not ended."""
        client = self.client
        if client is None or self.asking:
            return "the client"
        live = {name for name in client.submitted if name not in self.watch.ended}
        live |= self.watch.requests.keys()  # those that went on from a standing one, too
        if live:
            return f"requests {sorted(live)}"
        left = [row.row for row in passing_rows(self.store)]
        if left:
            return f"rows {left[:5]}"
        waiting = [mail.request for mail in outbox.unsent(self.store)]
        if waiting:
            return f"mails about {waiting}"
        return self.unsettled_standing()

    def unsettled_standing(self) -> str:
        """Which standing requests have not gone on, though the archive has later days."""
        left = [
            row.id
            for row in self.watch.ended.values()
            if row.standing and request_operations.document_of(row).time.end < NEWEST
        ]
        return f"standing requests {left}" if left else ""


def hash_of(text: str) -> int:
    """A number of a text, the same in every process."""
    return sum(text.encode())


def _small_pages(seed: int) -> Undo:
    """In some histories managers read and remember little at once, so that more is always left."""
    if Random(f"pages {seed}").random() >= 0.25:
        return lambda: None
    undo = [
        patch(completion_events, "ROWS", 2),
        patch(completion_events, "_TOGETHER", 32),
        patch(dispatch, "_KEPT", 0.25),
    ]

    def wide() -> None:
        for each in undo:
            each()

    return wide


def simulate(
    seed: int,
    mutant: Mutant | None = None,
    store: Store | None = None,
    *,
    log: bool = False,
    steps: bool = False,
    noisy: bool = False,
    rasters: bool = False,
) -> Outcome:
    """Run one history, in memory or on another store, which is empty."""
    history = History(
        seed=seed,
        mutant=mutant or Mutant(name="none"),
        store=store or MemoryStore(),
        steps=steps,
        noisy=noisy,
        rasters=rasters or (mutant is not None and mutant.rasters),
    )
    world = history.world
    if log:
        world.log = []
    day, continuing.DAY = continuing.DAY, -math.inf  # each is due: clocks here may be years off
    mend, slow, wide = history.mutant.apply(), quicken(), _small_pages(seed)
    violation = ""
    try:
        history.run()
    except ViolationError as error:
        violation = str(error)
    finally:
        wide()
        slow()
        mend()
        continuing.DAY = day
        world.calm = True
        world.end()
    return Outcome(
        seed=seed,
        digest=world.trace.hexdigest(),
        steps=world.steps,
        faults=world.faults,
        met=steps_met(history.scenario, history.client, history.watch),
        violation=violation,
        log=tuple(world.log or ()),
    )
