"""Rows of the table `tasks` as values. How they are stored and named is in `task_table`."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reprojection.read.completeness import WHOLE, Completeness, Missing
from tasks.bag.categories import Category
from tasks.bag.model import NO_USE, ArtifactFile, Phase, State, TaskOutcome, Use

NAMED = 100
"""Missing inputs of a task's files that its row has by name; the files have them all."""
_WHY = 200  # characters of the reason why an input is missing


@dataclass(frozen=True, kw_only=True)
class Interest:
    """A request's interest in a task, with the outcome recorded for it."""

    request: str
    key: str
    phase: Phase
    name: str = ""  # what the task makes, for people
    output: str = ""  # folder among the request's results; empty: intermediate
    outcome: TaskOutcome | None = None  # None: none is recorded yet
    category: Category | None = None
    reused: bool = False  # DONE before this request asked
    message: str = ""
    fallback: str = ""
    earlier: tuple[str, ...] = ()  # fallback tasks before that one, not withdrawn
    stopped: bool = False  # failed without being run: the first runs had all failed alike
    files: tuple[ArtifactFile, ...] = ()

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """All fallback tasks in the task's place, the newest last."""
        return (*self.earlier, self.fallback) if self.fallback else self.earlier

    def with_fallback(self, fallback: str) -> "Interest":
        """Return the interest with one more fallback task."""
        if not fallback or fallback == self.fallback:
            return self
        earlier = tuple(one for one in self.fallbacks if one != fallback)
        return replace(self, fallback=fallback, earlier=earlier)


def in_effect(interests: Collection[Interest]) -> list[Interest]:
    """Return interests without those in fallback tasks of a task that was made after all.

    Another request's retry revives a task whose fallback task is in hand, or made. Both may make
    the same result: only the one with all inputs counts.
    """
    after = {interest.key: interest.fallbacks for interest in interests}
    passed = [one.key for one in interests if one.fallbacks and one.outcome is TaskOutcome.DONE]
    needless: set[str] = set()
    while passed:
        fallbacks = set(after.get(passed.pop(), ())) - needless
        needless |= fallbacks
        passed += fallbacks
    return [interest for interest in interests if interest.key not in needless]


@dataclass(frozen=True, kw_only=True)
class CompletionEvent:
    """Hold a completion event, which the manager must process.

    It says that an attempt ended (`number` > 0), that a task ended without one, or that a task is
    waiting on inputs again.
    """

    key: str
    row: str
    number: int = 0
    state: State  # of the task after the change
    category: Category | None = None
    duration: float = 0.0
    ended: float = 0.0
    phase: Phase
    task_class: str
    worker: str = ""
    has_dependents: bool
    interests: tuple[str, ...]
    not_before: float
    message: str = ""
    fallback: str
    sponsor: str
    files: tuple[ArtifactFile, ...]
    rank: int = 0  # the task's
    counted: bool = False  # it is in the statistics already
    use: Use = NO_USE  # the attempt's
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class Edge:
    """`dependent` waits for `key`; `bits` are the dependent's input indices that are `key`."""

    key: str
    dependent: str
    bits: int


@dataclass(frozen=True, kw_only=True)
class WriteFence:
    """Whether a request may still get interests in tasks of a shard."""

    open: bool
    etag: str = field(default="", compare=False)


@dataclass(frozen=True, kw_only=True)
class ReadyMarker:
    """A task that is ready, under the request on whose account it runs.

    `alone` says that it goes into no batch; `rank` is the task's.
    """

    key: str
    request: str
    task_class: str = ""
    alone: bool = False
    rank: int = 0


@dataclass(frozen=True, kw_only=True, order=True)
class LaterMarker:
    """A task that is ready at a time, in POSIX seconds. In order of time."""

    due: float
    key: str


@dataclass(frozen=True, kw_only=True)
class RunningMarker:
    """A task that runs, with what its row says of the attempt."""

    key: str
    claim: str
    worker: str
    claimed_at: float
    attempt: int
    retries: int
    phase: Phase
    task_class: str
    sponsor: str
    place: int = 0  # in its batch


def dump_files(files: Sequence[ArtifactFile]) -> bytes:
    """Files as a binary property: half the size of a string one, which Azure counts as UTF-16."""
    if not files:
        return b""
    most = NAMED // max(1, sum(f.completeness != WHOLE for f in files))
    return json.dumps([_dump_file(f, most) for f in files]).encode()


def load_files(text: bytes) -> tuple[ArtifactFile, ...]:
    """Return the files of a binary property."""
    return tuple(_load_file(*file) for file in json.loads(text or b"[]"))


def dump_given(given: Sequence[tuple[int, Sequence[ArtifactFile]]]) -> bytes:
    """Files by the index of an input, as a binary property."""
    found = [[index, *(_dump_file(file, NAMED) for file in files)] for index, files in given]
    return json.dumps(found).encode()


def load_given(text: bytes) -> tuple[tuple[int, tuple[ArtifactFile, ...]], ...]:
    """Return the files of inputs of a binary property."""
    return tuple(
        (index, tuple(_load_file(*file) for file in files)) for index, *files in json.loads(text)
    )


def dump_dependents(edges: Sequence[Edge]) -> bytes:
    """Edges from one task as a binary property: of each the dependent's key and its bits.

    The 32 bytes of the key are followed by the number of bytes of the bits, in two bytes, and
    these; all with the highest first.
    """
    return b"".join(
        bytes.fromhex(edge.dependent) + size.to_bytes(2) + edge.bits.to_bytes(size)
        for edge in edges
        for size in ((edge.bits.bit_length() + 7) // 8,)
    )


def load_dependents(key: str, data: bytes) -> tuple[Edge, ...]:
    """Return the edges of a binary property, from the task `key`."""
    edges: list[Edge] = []
    at = 0
    while at < len(data):
        start = at + 34
        end = start + int.from_bytes(data[start - 2 : start])
        bits = int.from_bytes(data[start:end])
        edges.append(Edge(key=key, dependent=data[at : at + 32].hex(), bits=bits))
        at = end
    return tuple(edges)


def _dump_file(file: ArtifactFile, most: int) -> list[object]:
    """Name, blob, size, checksum; then, where there is any, what else is said of it."""
    said: dict[str, object] = {}
    if file.completeness != WHOLE:
        said["lacks"] = _dump_completeness(file.completeness.named(most))
    if file.valid_share is not None:
        said["valid"] = file.valid_share
    return [file.name, file.blob, file.size, file.sha256, *([said] if said else [])]


def _load_file(
    name: str, blob: str, size: int, sha256: str, said: Mapping[str, Any] | None = None
) -> ArtifactFile:
    more = said or {}
    lacks = more.get("lacks")
    return ArtifactFile(
        name=name,
        blob=blob,
        size=size,
        sha256=sha256,
        completeness=WHOLE if lacks is None else _load_completeness(lacks),
        valid_share=more.get("valid"),
    )


def _dump_completeness(said: Completeness) -> list[object]:
    return [said.share, said.unnamed, [[one.what, one.why[:_WHY]] for one in said.missing]]


def _load_completeness(said: tuple[float, int, list[tuple[str, str]]]) -> Completeness:
    share, unnamed, missing = said
    names = tuple(Missing(what=what, why=why) for what, why in missing)
    return Completeness(share=share, missing=names, unnamed=unnamed)
