"""The sweep: reads all markers and news of a shard, and so repairs what lost hints left."""

from dataclasses import dataclass, field

from service_manager.tasks.dispatch import Dispatch
from service_manager.tasks.view import Running, View
from tasks.model.keys import SHARDS
from tasks.model.model import Phase
from tasks.storage.store import Row, Store
from tasks.tables import rows
from tasks.tables.services import Services

_PAGE = 1000  # ready tasks of one request and shard read in a sweep


@dataclass
class Swept:
    """What was found in a shard."""

    later: list[tuple[float, str]] = field(default_factory=list)  # not before, key
    news: bool = False


class Sweep:
    """One shard at a time, all of them every `period` seconds."""

    def __init__(self, services: Services, view: View, dispatch: Dispatch, period: float) -> None:
        self._services = services
        self._view = view
        self._dispatch = dispatch
        self._period = period
        self._due = dict.fromkeys(SHARDS, 0.0)

    def due(self) -> str | None:
        """The shard whose turn it is, if one is due."""
        now = self._services.clock.monotonic()
        late = min(self._due, key=lambda shard: self._due[shard])
        return late if self._due[late] <= now else None

    def run(self, shard: str) -> Swept:
        """Read a shard's markers. Raises StoreError; it is due again then."""
        now = self._services.clock.monotonic()
        ready, until = self._ready(shard)
        running = read_running(self._services.store, shard, now)
        later = [(int(row.row.split("|")[1]) / 1000, _key(row)) for row in self._scan(shard, "z|")]
        start, end = rows.prefix_range("o|")
        news = any(self._services.store.scan(rows.TABLE, shard, start, end, limit=1))
        self._dispatch.reconcile(shard, ready, until)
        self._reconcile(shard, running)
        self._due[shard] = now + self._period
        return Swept(later=later, news=news)

    def feed(self, request: str) -> None:
        """Read more of a large request's ready tasks, some of each shard. Raises StoreError."""
        limit = self._dispatch.most // len(SHARDS) + self._dispatch.wide
        start, end = rows.prefix_range(f"r|{request}|")
        more = False
        for shard in SHARDS:
            found = list(self._services.store.scan(rows.TABLE, shard, start, end, limit=limit))
            more = more or len(found) == limit
            for row in found:
                self._dispatch.add(_key(row), request)
        self._dispatch.fed(request, more=more)

    def _ready(self, shard: str) -> tuple[dict[str, str], dict[str, str]]:
        """A shard's ready tasks, sponsor by key, of a large request only the first; and of such
        requests the last key read."""
        found: dict[str, str] = {}
        until: dict[str, str] = {}
        start, end = rows.prefix_range("r|")
        while True:
            page = list(self._services.store.scan(rows.TABLE, shard, start, end, limit=_PAGE))
            for row in page:
                found[_key(row)] = row.row.split("|")[1]
            if len(page) < _PAGE:
                return found, until
            _, sponsor, last = page[-1].row.split("|")
            start = page[-1].row + "\0"
            if page[0].row.split("|")[1] == sponsor:
                until[sponsor] = last
                start = f"r|{sponsor}}}"

    def _reconcile(self, shard: str, found: dict[str, Running]) -> None:
        known = self._view.running
        for key in [k for k in known if k[0] == shard and k not in found]:
            del known[key]
        for key, running in found.items():
            old = known.get(key)
            if old is None or old.claim != running.claim:
                known[key] = running
            else:
                old.sponsor = running.sponsor
                old.retries = running.retries
                old.attempt = running.attempt
                old.claimed_at = running.claimed_at

    def _scan(self, shard: str, prefix: str) -> list[Row]:
        start, end = rows.prefix_range(prefix)
        return list(self._services.store.scan(rows.TABLE, shard, start, end))


def read_running(store: Store, shard: str, now: float) -> dict[str, Running]:
    """A shard's running attempts by key, as if begun now. Raises StoreError."""
    found = store.scan(rows.TABLE, shard, *rows.prefix_range("x|"))
    return {running.key: running for running in (_running(row, now) for row in found)}


def _key(row: Row) -> str:
    return str(row.entity["key"])


def _running(row: Row, now: float) -> Running:
    e = row.entity
    return Running(
        key=str(e["key"]),
        claim=str(e["claim"]),
        worker=str(e["worker"]),
        attempt=int(e["attempt"]),
        retries=int(e["retries"]),
        phase=Phase(str(e["phase"])),
        task_class=str(e["task_class"]),
        sponsor=str(e["sponsor"]),
        claimed_at=float(e["claimed_at"]),
        since=now,
    )
