"""A portal on services in memory, and a manager that follows a script instead of planning."""

import datetime as dt
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from portal.app import create_app
from portal.serving import tokens
from portal.serving.caller_limits import CallerLimits
from portal.serving.identity import COOKIE
from portal.serving.portal import Portal
from reprojection.grid.grids import Grid
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.description import Band, Provenance, SourceGranule
from reprojection.read.raster import Raster
from reprojection.write.write import write_cog
from tasks.bag import (
    history,
    protocol,
    task_table,
    transitions,
    workers,
)
from tasks.bag.categories import Category
from tasks.bag.model import (
    NO_USE,
    ArtifactFile,
    Attempt,
    Phase,
    RequestState,
    State,
    Task,
    TaskOutcome,
    Use,
)
from tasks.bag.runtime import Runtime
from tasks.bag.spec import CollectSpec
from tasks.bag.task_keys import shard
from tasks.bag.task_rows import CompletionEvent, Interest
from tasks.bag.transitions import RetryPolicy
from tasks.canonical import canonical, digest_of
from tasks.messages.redis_watch import RedisWatch
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preview, RequestRow, RequestTable
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import ARTIFACTS
from tasks.storage.clock import Clock, SystemClock
from tasks.storage.store import Insert, Row, Upsert
from tests.serving import serving_app

SECRET = "s" * 40
FROM_SCRIPT = {"HX-Request": "true"}
"""What a script sends that asks for a part of a page."""
PATIENCE = 60.0  # seconds: a busy machine may take longer than the five of httpx
_POLICY = RetryPolicy()


def event_of(client: httpx.Client, request: str, *, ended: bool = False) -> dict[str, Any]:
    """The first event of a request's page: what it shows now; or the one that it has ended."""
    with client.stream("GET", f"/requests/{request}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        events = (json.loads(line.removeprefix("data: ")) for line in lines)
        found: dict[str, Any] = next(one for one in events if one["ended"] or not ended)
    return found


def settings(**changes: str) -> Settings:
    """Settings of a portal under test, some of them otherwise."""
    return Settings.model_validate({"secret": SECRET, "portal_url": "http://127.0.0.1", **changes})


def part(client: httpx.Client, path: str, query: Mapping[str, str] | None = None) -> str:
    """Ask for a part of a page, as its scripts do."""
    return client.get(path, params=query, headers=FROM_SCRIPT).text


def client_of(
    url: str, headers: Mapping[str, str] | None = None, follow_redirects: bool = False
) -> httpx.Client:
    """A client of a portal on this machine."""
    return httpx.Client(
        base_url=url,
        headers=headers,
        follow_redirects=follow_redirects,
        timeout=PATIENCE,
        trust_env=False,
        verify=False,  # reading all certificates takes 20 ms
    )


@dataclass(frozen=True, kw_only=True)
class LivePortal:
    """A portal that listens on a free port of this machine."""

    url: str
    runtime: Runtime
    stopping: threading.Event
    redis: RedisWatch
    limits: CallerLimits
    inner: Portal

    def client(self, owner: str = "ada@example.org", role: str = "scientist") -> httpx.Client:
        """A client with a bearer token."""
        token = tokens.issue(SECRET, owner, role)
        return client_of(self.url, headers={"Authorization": f"Bearer {token}"})

    def browser(self, owner: str = "ada@example.org", role: str = "scientist") -> httpx.Client:
        """A client with a session, as a browser has it after signing in."""
        session = tokens.issue(SECRET, owner, role, use=tokens.Use.SESSION)
        made = self.visitor()
        made.cookies.set(COOKIE, session)
        return made

    def visitor(self) -> httpx.Client:
        """A browser that has never been here."""
        headers = {"Accept": "text/html", "Origin": self.url}
        return client_of(self.url, headers, follow_redirects=True)

    def guest(self) -> httpx.Client:
        """A client without a token."""
        return client_of(self.url)

    def link(self, owner: str = "ada@example.org", role: str = "scientist") -> str:
        """A sign-in link."""
        return tokens.sign_in_link(self.url, SECRET, owner, role)


@contextmanager
def live_portal(
    runtime: Runtime, made: Settings, proxies: str = "127.0.0.1"
) -> Iterator[LivePortal]:
    """Serve a portal from a thread until the block ends."""
    app = create_app(made, runtime)
    with serving_app(app, None, proxies) as url:
        portal = app.state.portal
        yield LivePortal(
            url=url,
            runtime=runtime,
            stopping=portal.stopping,
            redis=portal.redis,
            limits=portal.limits,
            inner=portal,
        )


def take_all(turns: threading.BoundedSemaphore, most: int) -> None:
    """Take all turns, which are so many."""
    taken = [turns.acquire(blocking=False) for _ in range(most + 1)]
    assert taken == [True] * most + [False]


def live_runtime(clock: Clock | None = None) -> Runtime:
    """Services in memory under the machine's clock."""
    return memory_runtime(clock or SystemClock())


def raster_bytes(
    folder: Path, seed: int = 0, width: int = 280, height: int = 160, *, counted: bool = False
) -> bytes:
    """A small COG as Swathmill writes them: a hill of leaf area with a lake of no data.

    `counted`: with a band that counts the granules with a value, 1 but in the lake.
    """
    grid = Grid(
        crs="EPSG:4326", transform=(0.05, 0.0, -8.0, 0.0, -0.05, 58.5), width=width, height=height
    )
    rows_, cols = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(seed).normal(0, 2, (height, width))
    hill = 35 + 30 * np.sin(cols / 40 + seed) * np.cos(rows_ / 30) + noise
    data = np.clip(hill, 0, 100).astype(np.uint8)
    data[(cols - 200) ** 2 + (rows_ - 60) ** 2 < 900] = 255
    raster = Raster(
        data=np.stack([data, (data != 255).astype(np.uint8)] if counted else [data]),
        grid=grid,
        nodata=255,
        scale=0.1,
        offset=0.0,
        units="m2 m-2",
        kind="continuous",
        bands=(Band(name="Lai_1km"), Band(name="count", role="count"))[: 1 + counted],
        provenance=Provenance(
            product="MCD15A2",
            collection="5",
            layer="Lai_1km",
            granules=(SourceGranule(name="sample"),),
        ),
    )
    path = folder / f"raster-{seed}.tif"
    write_cog(raster, path)
    return path.read_bytes()


def put_interest(runtime: Runtime, interest: Interest) -> None:
    """Write a request's interest row."""
    row = task_table.interest_row(interest.request, interest.key)
    runtime.store.transact(
        task_table.TABLE,
        shard(interest.key),
        [Upsert(row=row, entity=task_table.INTEREST.dump(interest))],
    )


def put_result(
    runtime: Runtime,
    request: str,
    output: str,
    name: str,
    data: bytes,
    completeness: Completeness = WHOLE,
    *,
    handed_over: bool = False,
) -> str:
    """Store a finished result of a request; returns its task's key.

    A GeoTIFF counts as a raster of ours, unless a package has handed it over as a file.
    """
    raster = name.endswith(".tif") and not handed_over
    key = digest_of(canonical([request, output, name]).decode())
    blob = f"{key}/claim/{name}"
    stored = runtime.blobs.put_bytes(ARTIFACTS, blob, data)
    file = ArtifactFile(
        name=name,
        blob=f"{ARTIFACTS}/{blob}",
        size=stored.size,
        sha256=stored.sha256,
        completeness=completeness,
        valid_share=0.5 if raster else None,
    )
    put_interest(
        runtime,
        Interest(
            request=request,
            key=key,
            phase=Phase.AGGREGATION,
            name=name,
            output=output,
            outcome=TaskOutcome.DONE,
            files=(file,),
        ),
    )
    return key


def put_task_of_result(runtime: Runtime, request: str) -> str:
    """Store the task of a request's one result, with an input; returns its key."""
    (interest,) = request_operations.results(runtime, request)
    task = Task(
        key=interest.key,
        phase=interest.phase,
        task_class="aggregation",
        inputs=1,
        state=State.DONE,
        files=interest.files,
        interests=(request,),
    )
    row = Insert(row=task_table.task_row(task.key), entity=task_table.TASK.dump(task))
    runtime.store.transact(task_table.TABLE, shard(task.key), [row])
    return task.key


def put_failed_task(
    runtime: Runtime, request: str, granule: str, categories: tuple[Category, ...]
) -> str:
    """A task of a request whose attempts ended so; the last leaves it FAILED. Returns its key."""
    spec = CollectSpec(product="MCD15A2", collection="5", granule=granule, production="2012")
    interest = Interest(request=request, key=spec.key, phase=spec.phase, name=granule)
    change = transitions.create(spec, interest, 0)
    runtime.store.transact(task_table.TABLE, shard(spec.key), change.operations)
    for number, category in enumerate(categories, 1):
        if number > 1:
            task = runtime.tasks.task(spec.key)
            assert task is not None
            if task.not_before:
                woken = transitions.wake(task, task.not_before)
                runtime.store.transact(task_table.TABLE, shard(spec.key), woken.operations)
        claimed = protocol.claim(runtime, spec.key, "worker-1", _POLICY)
        assert claimed is not None
        now = runtime.clock.now()
        attempt = claimed.attempt(
            started=now - 90,
            ended=now,
            duration=90.0,
            category=category,
            message=f"attempt {number} ended as {category.value}",
            log=f"fetching {granule}\nattempt {number}: {category.value}\n",
            peak_memory=123_000_000,
        )
        protocol.fail(runtime, attempt, RetryPolicy(budget=len(categories), base=0.01))
    task = runtime.tasks.task(spec.key)
    if task is not None and task.state is State.FAILED:
        put_interest(
            runtime,
            replace(
                interest,
                outcome=TaskOutcome.FAILED,
                category=categories[-1],
                message=f"attempt {len(categories)} ended as {categories[-1].value}",
            ),
        )
    return spec.key


def put_running_task(runtime: Runtime, request: str, granule: str, worker: str) -> str:
    """A task that runs; returns its key."""
    spec = CollectSpec(product="MCD15A2", collection="5", granule=granule, production="2012")
    interest = Interest(request=request, key=spec.key, phase=spec.phase, name=granule)
    runtime.store.transact(
        task_table.TABLE, shard(spec.key), transitions.create(spec, interest, 0).operations
    )
    claimed = protocol.claim(runtime, spec.key, worker, _POLICY)
    assert claimed is not None
    return spec.key


def put_worker(runtime: Runtime, worker: workers.WorkerRow) -> None:
    """A worker's heartbeat."""
    workers.beat(runtime.store, runtime.clock, worker)


def put_executions(
    runtime: Runtime,
    day: dt.datetime,
    counts: dict[Category | None, int],
    task_class: str = "collection MCD15A2.5",
    duration: float = 4.0,
    *,
    owner: str = "",
    worker: str = "worker-1",
    keys: Sequence[str] = (),
    message: str = "",
    use: Use = NO_USE,
) -> None:
    """Attempts that ended at a moment of a day, counted as the manager counts them.

    `keys` are the first ones' tasks, in place of tasks that nobody has.
    """
    named = iter(keys)
    attempts = [
        Attempt(
            key=next(named, "")
            or hashlib.sha256(f"{day}{category}{number}{task_class}".encode()).hexdigest(),
            number=1,
            claim="c",
            phase=Phase(task_class.split()[0]),
            task_class=task_class,
            worker=worker,
            started=day.timestamp() - duration,
            ended=day.timestamp(),  # so that it is of that day, shortly before midnight, too
            duration=duration,
            category=category,
            message=message,
            use=use,
        )
        for category, count in counts.items()
        for number in range(count)
    ]
    for start in range(0, len(attempts), history.BATCH):
        batch = [_event(attempt) for attempt in attempts[start : start + history.BATCH]]
        history.count(runtime.store, batch, epoch=1, owners={"": owner})


def _event(attempt: Attempt) -> CompletionEvent:
    task = Task(
        key=attempt.key,
        phase=attempt.phase,
        task_class=attempt.task_class,
        inputs=0,
        state=State.DONE if attempt.category is None else State.FAILED,
        category=attempt.category,
    )
    operation = task_table.attempt_event(task, attempt)
    assert isinstance(operation, Upsert)
    return task_table.COMPLETION_EVENT.load(
        Row(partition=shard(task.key), row=operation.row, entity=operation.entity, etag="")
    )


def set_row(runtime: Runtime, request: str, **changes: object) -> RequestRow:
    """Change a request's row as the manager would."""
    return request_operations.change_request(
        runtime,
        request,
        lambda row: replace(row, **changes),  # type: ignore[arg-type]
    )


def count_preview(runtime: Runtime, request: str) -> None:
    """Answer a dry run with its counts and a gap."""
    set_row(
        runtime,
        request,
        state=RequestState.PREVIEWED,
        ended=runtime.clock.now(),
        preview=Preview(granules=32, tasks=107, gaps=1, reused=4, size=123_456_789),
        gaps=(Gap(what="MCD15A2.005 2012-03-05 h17v03", reason="not published"),),
        gap_count=1,
    )


class ScriptedManager:
    """Counts dry runs, and lets each request make `outputs` rasters, one with each tick."""

    def __init__(self, runtime: Runtime, folder: Path, outputs: int = 3) -> None:
        self._runtime = runtime
        self._folder = folder
        self._outputs = outputs
        self._stop = threading.Event()

    def tick(self) -> None:
        """One round over all requests that have not ended."""
        for name in RequestTable(self._runtime.store).live():
            self._step(request_operations.load(self._runtime, name))

    @contextmanager
    def running(self, every: float = 0.1) -> Iterator[None]:
        """Tick from a thread until the block ends."""

        def loop() -> None:
            while not self._stop.wait(every):
                self.tick()

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(10)

    def _step(self, row: RequestRow) -> None:
        now = self._runtime.clock.now()
        if row.state is RequestState.CANCELLING:
            set_row(self._runtime, row.id, state=RequestState.CANCELLED, ended=now)
        elif row.dry_run:
            count_preview(self._runtime, row.id)
        elif row.state is RequestState.SUBMITTED:
            set_row(
                self._runtime,
                row.id,
                state=RequestState.RUNNING,
                outputs=self._outputs,
                phases=self._phases(0),
            )
        elif row.delivered < self._outputs:
            number = row.delivered + 1
            data = raster_bytes(self._folder, number)
            put_result(
                self._runtime,
                row.id,
                "MCD15A2.005/Lai_1km",
                f"Lai_1km_2012-01-{number:02d}.tif",
                data,
            )
            set_row(self._runtime, row.id, delivered=number, phases=self._phases(number))
        else:
            set_row(self._runtime, row.id, state=RequestState.COMPLETE, ended=now)

    def _phases(self, done: int) -> dict[Phase, PhaseCount]:
        total = self._outputs
        return {
            Phase.COLLECTION: PhaseCount(total=total, done=total, reused=1),
            Phase.REPROJECTION: PhaseCount(total=total, done=done, running=min(1, total - done)),
            Phase.AGGREGATION: PhaseCount(total=total, done=done),
        }
