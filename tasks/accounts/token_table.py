"""The table `tokens`: the API tokens that people have made. Its RowKeys are spelt here alone.

A row is named by the SHA-256 of its token, which is shown once and stored nowhere. Deleting the row
revokes the token. Rows of expired tokens are deleted when the next token is made.
"""

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from tasks.errors import ConflictError, SwathmillError
from tasks.storage.codec import Codec
from tasks.storage.store import Delete, Insert, Store
from tasks.storage.updates import prefix_range

TABLE = "tokens"
PARTITION = "tokens"
MARK = "swathmill_"
"""What each token begins with, so that people and scanners of leaked secrets know it."""
MOST_DAYS = 730
"""Days after which each token has ended by itself."""
MOST_TOKENS = 50
"""Tokens of a person that are good at one time."""
_BYTES = 32
_DAY = 86400.0  # seconds
_SHOWN = 12
_ROW = "t|"
_ALL = prefix_range(_ROW)


class TooManyTokensError(SwathmillError):
    """A person has as many tokens as there may be, `most`; one must be revoked first."""

    def __init__(self, owner: str, most: int) -> None:
        super().__init__(f"{owner} has {most} tokens, the most there may be; revoke one first")
        self.most = most


class Scope(StrEnum):
    """What the bearer of a token may do, of what its owner may."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """A token: whose it is, what it may do, and until when, in POSIX seconds."""

    digest: str
    owner: str
    role: str
    scope: Scope
    name: str
    created: float
    expires: float

    @property
    def id(self) -> str:
        """The identity of it among its owner's; it is no secret."""
        return self.digest[:_SHOWN]


_CODEC = Codec(TokenRow, "token")


def new_token() -> str:
    """Make a token of 256 random bits."""
    return MARK + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> str:
    """Return what a token is stored under. It is random, so it needs no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def make_token(
    store: Store, *, owner: str, role: str, scope: Scope, name: str, now: float, days: float
) -> tuple[str, TokenRow]:
    """Make and store a token that is good for some days; return its text, and its row.

    Expired tokens of all owners are deleted.

    Raises:
        TooManyTokensError: the owner has as many as a person may have.
        ValueError: the owner is empty.
        StoreError: it is not certain that the token is stored.
    """
    if not owner:
        raise ValueError("a token needs an owner")
    text = new_token()
    row = TokenRow(
        digest=digest_of(text),
        owner=owner,
        role=role,
        scope=scope,
        name=name,
        created=now,
        expires=now + days * _DAY,
    )
    table = TokenTable(store)
    table.delete_expired(now)
    if len(table.of(owner)) >= MOST_TOKENS:
        raise TooManyTokensError(owner, MOST_TOKENS)
    table.add(row)
    return text, row


class TokenTable:
    """The table `tokens` in a store. Every call may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, row: TokenRow) -> None:
        """Store a token."""
        insert = Insert(row=_ROW + row.digest, entity=_CODEC.dump(row))
        self._store.transact(TABLE, PARTITION, (insert,))

    def find(self, token: str, now: float) -> TokenRow | None:
        """Return the row of a token that is good now."""
        found = self._store.get(TABLE, PARTITION, _ROW + digest_of(token))
        row = _CODEC.load(found) if found else None
        return row if row is not None and row.expires > now else None

    def of(self, owner: str) -> list[TokenRow]:
        """Return the tokens of an owner, the newest first."""
        mine = (row for row in self._rows() if row.owner == owner)
        return sorted(mine, key=lambda row: -row.created)

    def delete_expired(self, now: float) -> None:
        """Delete the tokens of all owners that have expired."""
        for row in [row for row in self._rows() if row.expires <= now]:
            self._delete(row)

    def revoke(self, owner: str, token_id: str) -> bool:
        """Delete an owner's token; False where there is none of this id."""
        found = next((row for row in self.of(owner) if row.id == token_id), None)
        if found is None:
            return False
        self._delete(found)
        return True

    def revoke_all(self, owner: str) -> int:
        """Delete all tokens of an owner; return how many there were."""
        found = self.of(owner)
        for row in found:
            self._delete(row)
        return len(found)

    def _rows(self) -> Iterator[TokenRow]:
        return (_CODEC.load(row) for row in self._store.scan(TABLE, PARTITION, *_ALL))

    def _delete(self, row: TokenRow) -> None:
        with suppress(ConflictError):  # another process has deleted it
            self._store.transact(TABLE, PARTITION, (Delete(row=_ROW + row.digest),))
