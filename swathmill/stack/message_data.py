"""What the message server keeps, and what Redis's commands do to it: as far as they are used here.

The commands are those of Celery's transport and of `tasks/messages`. Scripts are not run: those of
this project and of redis-py have a function each, found by the digest of their text.
"""

import hashlib
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from redis.lock import Lock

from tasks.messages import host_limits, wanted_slots

Reply: TypeAlias = "float | bytes | Sequence[Reply] | Mapping[bytes, Reply] | None"
"""True is OK. A tuple is a pair, of which the older protocol has both words in the list."""
_Items = deque[bytes]
_Fields = dict[bytes, bytes]  # of a hash; of a set without values; of a sorted set with the scores
_Kind = TypeVar("_Kind", _Items, _Fields, bytes)


class CommandError(Exception):
    """The answer to a command that cannot be carried out, in Redis's form: a code and a text."""


class MessageData:
    """Values by key. A key without items is absent; one whose time is over is gone."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._values: dict[bytes, _Items | _Fields | bytes] = {}
        self._ends: dict[bytes, float] = {}

    def run(self, words: Sequence[bytes]) -> Reply:
        """Carry out a command.

        Raises:
            CommandError: there is no such command here, or it has other arguments.
        """
        for key in [key for key, end in self._ends.items() if end <= self.now()]:
            self.delete(key)
        name = words[0].upper()
        if name not in _COMMANDS:
            raise CommandError(f"ERR unknown command '{name.decode(errors='replace')}'")
        try:
            return _COMMANDS[name](self, *words[1:])
        except (TypeError, ValueError):
            raise CommandError(f"ERR wrong arguments of '{name.decode()}'") from None

    def seen(self, key: bytes) -> object:
        """Return a key's value as it is now, to be compared with a later one."""
        value = self._values.get(key)
        return value if isinstance(value, bytes) or value is None else value.copy()

    # Lists.

    def lpush(self, key: bytes, *items: bytes) -> int:
        """Add items before the first."""
        found = self._of(key, deque())
        found.extendleft(items)
        return self._keep(key, found)

    def rpush(self, key: bytes, *items: bytes) -> int:
        """Add items behind the last."""
        found = self._of(key, deque())
        found.extend(items)
        return self._keep(key, found)

    def lpop(self, key: bytes) -> bytes | None:
        """Take the first item off a list."""
        return self._pop(key, deque.popleft)

    def rpop(self, key: bytes) -> bytes | None:
        """Take the last item off a list."""
        return self._pop(key, deque.pop)

    def llen(self, key: bytes) -> int:
        """Count the items of a list."""
        return len(self._of(key, deque()))

    def lrange(self, key: bytes, start: bytes, stop: bytes) -> Sequence[Reply]:
        """Return items by their places; `stop` is included."""
        found = self._of(key, deque())
        return [*found][_places(start, stop, len(found))]

    def ltrim(self, key: bytes, start: bytes, stop: bytes) -> bool:
        """Keep only those items."""
        found = self._of(key, deque())
        places = _places(start, stop, len(found))
        if places.start > 0 or places.stop < len(found):
            self._keep(key, deque([*found][places]))
        return True

    # Sets, hashes and sorted sets.

    def sadd(self, key: bytes, *members: bytes) -> int:
        """Add members to a set."""
        return self._add(key, dict.fromkeys(members, b""))

    def hset(self, key: bytes, *pairs: bytes) -> int:
        """Set fields of a hash."""
        return self._add(key, dict(zip(pairs[::2], pairs[1::2], strict=True)))

    def zadd(self, key: bytes, *pairs: bytes) -> int:
        """Add members with their scores, or change their scores."""
        scores = [b"%r" % float(score) for score in pairs[::2]]
        return self._add(key, dict(zip(pairs[1::2], scores, strict=True)))

    def remove(self, key: bytes, *members: bytes) -> int:
        """Take members or fields away."""
        found = self._of(key, {})
        gone = sum(found.pop(member, None) is not None for member in members)
        self._keep(key, found)
        return gone

    def members(self, key: bytes) -> Sequence[Reply]:
        """Return the members of a set."""
        return [*self._of(key, {})]

    def count(self, key: bytes) -> int:
        """Count members."""
        return len(self._of(key, {}))

    def hget(self, key: bytes, field: bytes) -> bytes | None:
        """Return a field of a hash."""
        return self._of(key, {}).get(field)

    def zrevrangebyscore(
        self, key: bytes, most: bytes, least: bytes, *options: bytes
    ) -> Sequence[Reply]:
        """Return members between two scores, the highest first."""
        scores = {member: float(score) for member, score in self._of(key, {}).items()}
        within = [one for one in scores if float(least) <= scores[one] <= float(most)]
        within.sort(key=lambda one: (scores[one], one), reverse=True)
        words = [word.upper() for word in options]
        if b"LIMIT" in words:
            first, number = (int(word) for word in words[words.index(b"LIMIT") + 1 :][:2])
            within = within[first : first + number]
        if b"WITHSCORES" not in words:
            return [*within]
        return [(one, scores[one]) for one in within]

    def zrange(self, key: bytes, most: bytes, least: bytes, *options: bytes) -> Sequence[Reply]:
        """Do the same by its newer name, with BYSCORE and REV."""
        if not {b"BYSCORE", b"REV"} <= {word.upper() for word in options}:
            raise ValueError(options)
        return self.zrevrangebyscore(key, most, least, *options)

    # Words, and keys of any kind.

    def get(self, key: bytes) -> bytes | None:
        """Return a word."""
        return self._of(key, b"") or None

    def set(self, key: bytes, value: bytes, *options: bytes) -> bool | None:
        """Set a word, with NX only if it is absent, with EX or PX for a time."""
        words = [word.upper() for word in options]
        if b"NX" in words and key in self._values:
            return None
        self.delete(key)
        self._values[key] = value
        for unit, seconds in ((b"EX", 1.0), (b"PX", 0.001)):
            if unit in words:
                self._ends[key] = self.now() + int(words[words.index(unit) + 1]) * seconds
        return True

    def delete(self, *keys: bytes) -> int:
        """Delete keys."""
        for key in keys:
            self._ends.pop(key, None)
        return sum(self._values.pop(key, None) is not None for key in keys)

    def exists(self, *keys: bytes) -> int:
        """Count the keys that there are."""
        return sum(key in self._values for key in keys)

    def expire(self, key: bytes, seconds: bytes) -> int:
        """Let a key go after a time."""
        if key not in self._values:
            return 0
        self._ends[key] = self.now() + int(seconds)
        return 1

    # Scripts.

    def script(self, verb: bytes, text: bytes) -> bytes:
        """Answer LOAD with the script's digest."""
        if verb.upper() != b"LOAD":
            raise ValueError(verb)
        return _digest(text)

    def evalsha(self, digest: bytes, count: bytes, *words: bytes) -> Reply:
        """Do what the script of that digest does."""
        if digest not in _SCRIPTS:
            raise CommandError("NOSCRIPT No matching script.")
        keys = int(count)
        return _SCRIPTS[digest](self, words[:keys], words[keys:])

    def take_place(self, keys: Sequence[bytes], words: Sequence[bytes]) -> bytes:
        """Do as `host_limits.TAKE`."""
        (places, following), (most, pause, lease, who) = keys, words
        now = self.now()
        leases = self._of(places, {})
        self.remove(places, *(one for one, end in leases.items() if float(end) <= now))
        if self.count(places) >= int(most):
            return b"full"
        begin = float(self.get(following) or 0)
        if begin > now:
            return b"%r" % (begin - now)
        free = b"%d" % (math.ceil(float(pause)) + 1)
        self.set(following, b"%.6f" % (now + float(pause)), b"EX", free)
        self.zadd(places, b"%r" % (now + float(lease)), who)
        self._keep_leases(places, lease)
        return b"0"

    def renew_place(self, keys: Sequence[bytes], words: Sequence[bytes]) -> None:
        """Do as `host_limits.RENEW`."""
        (places,), (lease, who) = keys, words
        if who in self._of(places, {}):
            self.zadd(places, b"%r" % (self.now() + float(lease)), who)
        self._keep_leases(places, lease)

    def resize(self, keys: Sequence[bytes], words: Sequence[bytes]) -> None:
        """Do as `wanted_slots.RESIZE`."""
        self._keep(keys[0], deque([b""] * int(words[0])))

    def release(self, keys: Sequence[bytes], words: Sequence[bytes]) -> int:
        """Do as the script by which redis-py gives a lock back."""
        return self.delete(keys[0]) if self.get(keys[0]) == words[0] else 0

    def _keep_leases(self, places: bytes, lease: bytes) -> None:
        self.expire(places, b"%d" % (math.ceil(float(lease)) + 1))

    def _pop(self, key: bytes, pop: Callable[[_Items], bytes]) -> bytes | None:
        found = self._of(key, deque())
        if not found:
            return None
        item = pop(found)
        self._keep(key, found)
        return item

    def _add(self, key: bytes, fields: _Fields) -> int:
        found = self._of(key, {})
        before = len(found)
        return self._keep(key, found | fields) - before

    def _of(self, key: bytes, absent: _Kind) -> _Kind:
        value = self._values.get(key, absent)
        if not isinstance(value, type(absent)):
            raise CommandError("WRONGTYPE The key holds another kind of value.")
        return value

    def _keep(self, key: bytes, value: _Items | _Fields) -> int:
        if value:
            self._values[key] = value
        else:
            self.delete(key)
        return len(value)


def _places(start: bytes, stop: bytes, length: int) -> slice:
    first, last = (place + length if place < 0 else place for place in (int(start), int(stop)))
    return slice(max(first, 0), max(last + 1, 0))


def _digest(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


_SCRIPTS: dict[bytes, Callable[[MessageData, Sequence[bytes], Sequence[bytes]], Reply]] = {
    _digest(text.encode()): done
    for text, done in (
        (host_limits.TAKE, MessageData.take_place),
        (host_limits.RENEW, MessageData.renew_place),
        (wanted_slots.RESIZE, MessageData.resize),
        (Lock.LUA_RELEASE_SCRIPT, MessageData.release),
    )
}

_COMMANDS: dict[bytes, Callable[..., Reply]] = {
    b"DEL": MessageData.delete,
    b"EVALSHA": MessageData.evalsha,
    b"EXISTS": MessageData.exists,
    b"EXPIRE": MessageData.expire,
    b"GET": MessageData.get,
    b"HDEL": MessageData.remove,
    b"HGET": MessageData.hget,
    b"HSET": MessageData.hset,
    b"LLEN": MessageData.llen,
    b"LPOP": MessageData.lpop,
    b"LPUSH": MessageData.lpush,
    b"LRANGE": MessageData.lrange,
    b"LTRIM": MessageData.ltrim,
    b"RPOP": MessageData.rpop,
    b"RPUSH": MessageData.rpush,
    b"SADD": MessageData.sadd,
    b"SCARD": MessageData.count,
    b"SCRIPT": MessageData.script,
    b"SET": MessageData.set,
    b"SMEMBERS": MessageData.members,
    b"SREM": MessageData.remove,
    b"ZADD": MessageData.zadd,
    b"ZCARD": MessageData.count,
    b"ZRANGE": MessageData.zrange,
    b"ZREM": MessageData.remove,
    b"ZREVRANGEBYSCORE": MessageData.zrevrangebyscore,
}
