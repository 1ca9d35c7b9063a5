"""The fleet of a study: nodes that an engine starts, as it starts workers, and the orders to them.

Nodes meet at a Redis server. Whoever starts there takes a ticket from the study's list: a few lines
of Python, which fetch the study's code and begin to serve (`node.py`). So a node runs in the image
of a worker, with its identity and network, and needs no checkout. It takes orders from a list of
its own, connects its clients, says that it is ready, waits until all are, works, and hands in what
it measured; times count from that common start. Tickets are code and orders are pickled: whoever
can write to that server can have nodes run what he likes, so it is one of the study's own.
"""

import io
import pickle
import time
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from redis import Redis

from bench.platform.clients import Call, Work
from bench.platform.node import KEPT, PATIENCE, Keys, Order, popped
from swathmill.commands.fleet.engine import Engine
from swathmill.errors import StackError

BOOT = (
    "import sys,redis;r=redis.Redis.from_url(sys.argv[1]);"
    "exec(r.brpop('swathmill-study:'+sys.argv[2],3600)[1])"
)
"""What a node runs, by `python -c`, with the server's URL and the study's name behind it."""

_TICKET = """
import io, sys, tempfile, zipfile
with tempfile.TemporaryDirectory() as home:
    zipfile.ZipFile(io.BytesIO(r.get({code!r}))).extractall(home)
    sys.path.insert(0, home)
    from bench.platform.node import serve
    serve(r, {session!r}, {node})
"""


@dataclass(kw_only=True)
class Fleet:
    """The nodes of one study, as the machine sees them that gives the orders."""

    redis: Redis
    study: str
    engine: Engine
    patience: float = PATIENCE
    _session: str = field(default_factory=lambda: uuid.uuid4().hex)
    _asked: int = 0
    _here: list[int] = field(default_factory=list)  # the nodes that have come

    def start(self, count: int) -> None:
        """Have the engine start more nodes. Raises StackError."""
        self.redis.set(self._code, _packed(), ex=KEPT)
        for node in range(self._asked, self._asked + count):
            ticket = _TICKET.format(code=self._code, session=self._session, node=node)
            self.redis.lpush(self._tickets, ticket)
        self.redis.expire(self._tickets, KEPT)
        self._asked += count
        self.engine.start(count)

    def come(self, seconds: int = 1) -> list[int]:
        """Wait for so long for the next node; return the nodes that have come."""
        if said := popped(self.redis, self._keys.came(), seconds):
            self._here.append(int(said))
        return list(self._here)

    def gather(self, count: int) -> None:
        """Start nodes and wait until all have come. Raises StackError."""
        self.start(count)
        end = time.monotonic() + self.patience
        while len(self.come()) < self._asked:
            if time.monotonic() > end:
                raise StackError(
                    f"{len(self._here)} of {self._asked} nodes have come within "
                    f"{self.patience:g} s.",
                    "See that each machine reaches the Redis of --meet, or name fewer nodes.",
                )

    def run(self, work: Work, number: int, seconds: float, count: int = 0) -> list[Call]:
        """Let clients work on as many nodes as there are, as `Crowd` says.

        Raises:
            StackError: a client cannot connect, or a node is silent.
        """
        run, keys = uuid.uuid4().hex, self._keys
        nodes = self._here[:number]
        for first, node in enumerate(nodes):
            order = Order(
                run=run,
                work=work,
                clients=tuple(range(first, number, len(nodes))),
                seconds=seconds,
                count=count,
            )
            self.redis.lpush(keys.orders(node), pickle.dumps(order))
            self.redis.expire(keys.orders(node), KEPT)
        faults = [said for said in self._heard(keys.ready(run), len(nodes)) if said]
        self.redis.lpush(keys.go(run), *([b"stop" if faults else b"go"] * len(nodes)))
        self.redis.expire(keys.go(run), KEPT)
        if faults:
            raise StackError(f"A client cannot connect: {faults[0].decode()}", "See the node.")
        return [call for said in self._heard(keys.done(run), len(nodes)) for call in _calls(said)]

    def leave(self) -> None:
        """Have the nodes leave, also those that come later; end what waits for a machine."""
        self.redis.delete(self._tickets, self._code)
        for node in range(self._asked):
            self.redis.lpush(self._keys.orders(node), b"")
            self.redis.expire(self._keys.orders(node), KEPT)
        self.engine.end([one.name for one in self.engine.there() if not one.running])

    @property
    def _tickets(self) -> str:
        return f"swathmill-study:{self.study}"

    @property
    def _code(self) -> str:
        return f"swathmill-study:{self._session}:code"

    @property
    def _keys(self) -> Keys:
        return Keys(session=self._session)

    def _heard(self, key: str, nodes: int) -> Iterator[bytes]:
        """Yield what each node says, in any order."""
        for number in range(nodes):
            said = popped(self.redis, key, PATIENCE)
            if said is None:
                raise StackError(
                    f"{nodes - number} of {nodes} nodes have said nothing for {PATIENCE} s.",
                    "Look at their logs.",
                )
            yield said


def _packed() -> bytes:
    """Return the study's code as a ZIP file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(Path(__file__).parent.glob("*.py")):
            archive.write(file, f"bench/platform/{file.name}")
    return packed.getvalue()


def _calls(said: bytes) -> list[Call]:
    found: list[Call] = pickle.loads(said)
    return found


@contextmanager
def gathered(redis: Redis, study: str, nodes: int, engine: Engine) -> Iterator[Fleet]:
    """Gather a fleet; have it leave at the end.

    Raises:
        StackError: not all have come.
    """
    fleet = Fleet(redis=redis, study=study, engine=engine)
    try:
        fleet.gather(nodes)
        yield fleet
    finally:
        fleet.leave()
