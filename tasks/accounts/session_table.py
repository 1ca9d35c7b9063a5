"""Which sessions have ended before their time: rows of the table `tokens`, one for a person.

A session is a signed cookie that nothing stores. What ends it is stored: the time up to which all
sessions and links of a person have ended, the digests of single ones, and the time up to which an
operator's rights that were given to the person have ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tasks.accounts.token_table import PARTITION, TABLE, digest_of
from tasks.storage import updates
from tasks.storage.clock import Clock
from tasks.storage.codec import Codec, in_json
from tasks.storage.store import Operation, Row, Store

LONGEST = 31 * 86_400.0
"""Seconds after which no session is good any more, so that its end may be forgotten."""
MOST = 200
"""Sessions of a person that may have ended singly; with more, all of them end."""
_SHORT = 24  # of a digest: enough to tell a person's sessions apart

Single = tuple[str, float]
"""The digest of a session that has ended, and when it did."""


@dataclass(frozen=True, kw_only=True)
class EndedRow:
    """What has ended of a person's sessions and sign-in links.

    Attributes:
        owner: The person.
        before: What was signed up to this POSIX second has ended.
        singly: Sessions that have ended by themselves.
        no_operator: An operator's rights that were given up to this POSIX second have ended.
    """

    owner: str
    before: float = 0.0
    singly: tuple[Single, ...] = ()
    no_operator: float = 0.0

    def ends(self, token: str, signed: float) -> bool:
        """Tell whether a session's or a link's token, signed at a POSIX second, has ended."""
        return signed <= self.before or _digest(token) in {one for one, _ in self.singly}


_CODEC = Codec(EndedRow, "ended sessions", {"singly": in_json(tuple[Single, ...])})


def ended(store: Store, owner: str) -> EndedRow:
    """Read what has ended of a person's sessions. Raises StoreError."""
    found = store.get(TABLE, PARTITION, _name(owner))
    return _CODEC.load(found) if found else EndedRow(owner=owner)


def end_all(store: Store, clock: Clock, owner: str) -> None:
    """End all sessions and sign-in links of a person, made up to now. Raises StoreError."""
    _change(store, clock, owner, lambda row: replace(row, before=clock.now(), singly=()))


def end_operator(store: Store, clock: Clock, owner: str) -> None:
    """End the operator's rights of a person, given up to now by any session, link or token.

    Raises StoreError.
    """
    _change(store, clock, owner, lambda row: replace(row, no_operator=clock.now()))


def end_one(store: Store, clock: Clock, owner: str, token: str) -> None:
    """End one session of a person, by its token. Raises StoreError."""
    now = clock.now()

    def change(row: EndedRow) -> EndedRow:
        recent = {one: at for one, at in row.singly if now - at <= LONGEST}
        recent.setdefault(_digest(token), now)
        if len(recent) > MOST:
            return replace(row, before=now, singly=())
        return replace(row, singly=tuple(recent.items()))

    _change(store, clock, owner, change)


def _change(store: Store, clock: Clock, owner: str, change: Callable[[EndedRow], EndedRow]) -> None:
    name = _name(owner)

    def once(found: Row | None) -> tuple[Operation, ...]:
        old = _CODEC.load(found) if found else EndedRow(owner=owner)
        new = change(old)
        return () if new == old else (updates.write(found, name, _CODEC.dump(new)),)

    updates.update(store, clock, TABLE, PARTITION, name, once)


def _name(owner: str) -> str:
    return f"e|{updates.hashed(owner)}"


def _digest(token: str) -> str:
    return digest_of(token)[:_SHORT]
