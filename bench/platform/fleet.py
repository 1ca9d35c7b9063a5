"""Clients on the nodes of a fleet: processes here, or workers on other machines.

Nodes meet at a Redis server. Each takes orders from a list of its own, connects its clients, says
that it is ready, waits until all are, works, and hands in what it measured; times count from that
common start. Orders are pickled: whoever can write to that server can have nodes run code, so it is
one of the study's own. A node that is lost ends the measurement after `PATIENCE`.
"""

import pickle
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from redis import Redis

from bench.platform.clients import Call, Work, run_share
from swathmill.errors import StackError

PATIENCE = 600  # seconds without a word from a node
_KEPT = 86_400  # seconds for which keys outlive a study that was killed


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a node is to do: these clients' work, begun together with the run's other nodes."""

    run: str
    work: Work
    clients: tuple[int, ...]
    seconds: float
    count: int


@dataclass(frozen=True, kw_only=True)
class _Keys:
    study: str

    def nodes(self) -> str:
        return f"swathmill-study:{self.study}:nodes"

    def orders(self, node: int) -> str:
        return f"swathmill-study:{self.study}:orders:{node}"

    def ready(self, run: str) -> str:
        return f"swathmill-study:{self.study}:ready:{run}"

    def go(self, run: str) -> str:
        return f"swathmill-study:{self.study}:go:{run}"

    def done(self, run: str) -> str:
        return f"swathmill-study:{self.study}:done:{run}"


@dataclass(kw_only=True)
class Fleet:
    """The nodes of one study, as the machine sees them that gives the orders."""

    redis: Redis
    study: str
    nodes: int
    patience: int = PATIENCE
    _keys: _Keys = field(init=False)

    def __post_init__(self) -> None:
        self._keys = _Keys(study=self.study)

    def gather(self) -> None:
        """Wait until all nodes have come. Raises StackError."""
        end = time.monotonic() + self.patience
        while (there := _number(self.redis.get(self._keys.nodes()))) < self.nodes:
            if time.monotonic() > end:
                raise StackError(
                    f"{there} of {self.nodes} nodes have come within {self.patience} s.",
                    "Start `python -m bench.platform node` on each machine, or name fewer.",
                )
            time.sleep(0.1)

    def run(self, work: Work, number: int, seconds: float, count: int = 0) -> list[Call]:
        """Let clients work on as many nodes as there are, as `Crowd` says.

        Raises:
            StackError: a client cannot connect, or a node is silent.
        """
        run, keys = uuid.uuid4().hex, self._keys
        nodes = min(self.nodes, number)
        for node in range(nodes):
            order = Order(
                run=run,
                work=work,
                clients=tuple(range(node, number, nodes)),
                seconds=seconds,
                count=count,
            )
            self.redis.lpush(keys.orders(node), pickle.dumps(order))
        faults = [said for said in self._heard(keys.ready(run), nodes) if said]
        self.redis.lpush(keys.go(run), *([b"stop" if faults else b"go"] * nodes))
        if faults:
            raise StackError(f"A client cannot connect: {faults[0].decode()}", "See the node.")
        return [call for said in self._heard(keys.done(run), nodes) for call in _calls(said)]

    def end(self) -> None:
        """Have the nodes leave."""
        for node in range(self.nodes):
            self.redis.lpush(self._keys.orders(node), b"")
            self.redis.expire(self._keys.orders(node), _KEPT)
        self.redis.delete(self._keys.nodes())

    def _heard(self, key: str, nodes: int) -> Iterator[bytes]:
        """Yield what each node says, in any order."""
        for number in range(nodes):
            said = _popped(self.redis, key, self.patience)
            if said is None:
                raise StackError(
                    f"{nodes - number} of {nodes} nodes have said nothing for {self.patience} s.",
                    "Look at their logs.",
                )
            yield said


def _popped(redis: Redis, key: str, seconds: int) -> bytes | None:
    """Take what comes next from a list; None if nothing does in time; 0: wait for ever."""
    found = cast("list[bytes] | None", redis.brpop([key], timeout=seconds))
    return found[1] if found else None


def _number(said: object) -> int:
    return int(cast("int | bytes | None", said) or 0)


def _calls(said: bytes) -> list[Call]:
    found: list[Call] = pickle.loads(said)
    return found


def serve(redis: Redis, study: str) -> int:
    """Be a node of a study until it ends; return how many orders were carried out."""
    keys = _Keys(study=study)
    node = _number(redis.incr(keys.nodes())) - 1
    redis.expire(keys.nodes(), _KEPT)
    carried_out = 0
    while True:
        found = _popped(redis, keys.orders(node), 0)
        if not found:
            return carried_out
        order: Order = pickle.loads(found)
        carried_out += _carry_out(redis, keys, order)


def _carry_out(redis: Redis, keys: _Keys, order: Order) -> bool:
    """Carry out an order; False if the run is called off, because somebody cannot connect."""
    origin = 0.0

    def meet() -> None:
        nonlocal origin
        redis.lpush(keys.ready(order.run), b"")
        if _popped(redis, keys.go(order.run), PATIENCE) != b"go":
            raise StackError("The run was called off.", "Another node cannot connect.")
        origin = time.monotonic()

    try:
        calls = run_share(order.work, order.clients, order.seconds, order.count, meet)
    except Exception as error:  # noqa: BLE001 - it is told to whoever gives the orders
        if not origin:
            redis.lpush(keys.ready(order.run), f"{type(error).__name__}: {error}".encode())
            redis.expire(keys.ready(order.run), _KEPT)
        return False
    told = [replace(one, began=one.began - origin, ended=one.ended - origin) for one in calls]
    redis.lpush(keys.done(order.run), pickle.dumps(told))
    for key in (keys.ready(order.run), keys.go(order.run), keys.done(order.run)):
        redis.expire(key, _KEPT)
    return True


@contextmanager
def gathered(url: str, study: str, nodes: int, *, here: bool) -> Iterator[Fleet]:
    """Gather a fleet; with `here` start its nodes as processes of this machine.

    Raises:
        StackError: not all have come.
    """
    with Redis.from_url(url) as redis:
        fleet = Fleet(redis=redis, study=study, nodes=nodes)
        command = [sys.executable, "-m", "bench.platform", "node", "--meet", url, "--study", study]
        started = [subprocess.Popen(command) for _ in range(nodes if here else 0)]
        try:
            fleet.gather()
            yield fleet
        finally:
            fleet.end()
            _ended(started)


def _ended(started: list["subprocess.Popen[bytes]"]) -> None:
    end = time.monotonic() + 10
    for one in started:
        try:
            one.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
