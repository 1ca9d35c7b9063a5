"""What one caller may cost: calls a second, large answers at once, bytes of them in an hour.

A caller is who is signed in, else an address; of IPv6 its network of 64 bits, which one subscriber
has whole. Calls are counted by address alone. Callers on this machine itself have no limit. All is
counted in the memory of one portal process: of several portals each counts for itself.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import structlog
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from portal.serving.problems import TooManyError
from tasks.settings import Settings

HOUR = 3600.0
BURST = 10.0
"""Seconds of calls that may come at once."""
LARGE = 8 * 2**20
"""Bytes from which on an answer is large; one of unknown length is, too."""
DOWNLOADS = 16
"""Large answers that are sent to one caller at once."""
ASKED = 10
"""Sign-in links that one address may ask for in an hour."""
_MOST = 100_000  # callers that are remembered
_SUBSCRIBER = 64  # bits of an IPv6 address
_STATE = "swathmill_caller"

log = structlog.get_logger(__name__)


class Rates:
    """Amounts by key: at most `burst` at once, and `burst` more in each `seconds`. Thread-safe.

    The generic cell rate algorithm (ITU-T I.371): of a key only the time is kept at which all that
    it has used will have come back. A key of which all has come back is forgotten; of more than
    100,000 keys, those that were used longest ago.
    """

    def __init__(self, burst: float, seconds: float, monotonic: Callable[[], float]) -> None:
        self._each = seconds / burst if burst else 0.0
        self._seconds = seconds if burst else 0.0
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._full: OrderedDict[str, float] = OrderedDict()

    def wait(self, key: str) -> float:
        """Return the seconds until something is left for a key; 0.0: now."""
        with self._lock:
            return self._wait(key, self._monotonic(), 0.0)

    def take(self, key: str, amount: float = 1.0) -> float:
        """Take an amount for a key where so much is left; return the seconds to wait where not."""
        with self._lock:
            now = self._monotonic()
            wait = self._wait(key, now, amount)
            if not wait:
                self._use(key, now, amount)
            return wait

    def use(self, key: str, amount: float) -> None:
        """Take an amount for a key, whatever is left."""
        with self._lock:
            self._use(key, self._monotonic(), amount)

    def __len__(self) -> int:
        return len(self._full)

    def _wait(self, key: str, now: float, amount: float) -> float:
        if not self._seconds or not key:
            return 0.0
        used = max(0.0, self._full.get(key, now) - now)
        return max(0.0, used + amount * self._each - self._seconds)

    def _use(self, key: str, now: float, amount: float) -> None:
        if not self._seconds or not key:
            return
        self._full[key] = max(now, self._full.get(key, now)) + amount * self._each
        self._full.move_to_end(key)
        while self._full and (len(self._full) > _MOST or next(iter(self._full.values())) <= now):
            self._full.popitem(last=False)


class CallerLimits:
    """The limits of a portal's callers. Thread-safe."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float]) -> None:
        self.calls = Rates(settings.caller_rate * BURST, BURST, monotonic)
        self.asked = Rates(ASKED, HOUR, monotonic)
        self.sent = Rates(settings.caller_gb * 1e9, HOUR, monotonic)
        self._most = DOWNLOADS
        self._lock = threading.Lock()
        self.under_way: dict[str, int] = {}

    def begin(self, caller: str) -> None:
        """Count a large answer to a caller; `end` takes it off again.

        Raises:
            TooManyError: the caller has as many as it may, or was sent as much as it may be.
        """
        wait = self.sent.wait(caller)
        if wait:
            raise TooManyError(
                "You were sent as much as one caller may be within an hour.",
                "Go on later: what has come already stays, and ranges of files can be asked for.",
                seconds=wait,
            )
        with self._lock:
            number = self.under_way.get(caller, 0)
            if caller and number >= self._most:
                raise TooManyError(
                    f"{number} large files are being sent to you already.",
                    "Ask for fewer at once.",
                    seconds=5.0,
                )
            self.under_way[caller] = number + 1

    def end(self, caller: str) -> None:
        """Take a large answer off that has ended."""
        with self._lock:
            left = self.under_way[caller] - 1
            if left:
                self.under_way[caller] = left
            else:
                del self.under_way[caller]


def address_of(scope: Scope) -> str:
    """Return what stands for the address of a call; "" for one from this machine itself."""
    client = scope.get("client")
    if not client:
        return ""
    try:
        found: IPv4Address | IPv6Address = ip_address(client[0])
    except ValueError:
        return str(client[0])
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            network = str(ip_network((int(found), _SUBSCRIBER), strict=False))
            return "" if found.is_loopback else network
        found = found.ipv4_mapped
    return "" if found.is_loopback else str(found)


def note_caller(request: Request, owner: str) -> None:
    """Note who is signed in, so that large answers to the call are counted as theirs."""
    request.scope[_STATE] = owner


def caller_of(scope: Scope) -> str:
    """Return as whose a call counts; "" for one from this machine itself."""
    address = address_of(scope)
    owner = scope.get(_STATE, "")
    return f"owner {owner}" if address and owner else address


Refusal = Callable[[Request, TooManyError], Response]


class CallLimit:
    """Refuses the calls of an address that sends more than it may."""

    def __init__(self, app: ASGIApp, limits: CallerLimits, refusal: Refusal) -> None:
        self._app = app
        self._limits = limits
        self._refusal = refusal
        self._has_warned = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = address_of(scope)
        self._warn(scope, address)
        wait = self._limits.calls.take(address)
        if not wait:
            await self._app(scope, receive, send)
            return
        error = TooManyError(
            "Your address calls more often than one may.", "Call more slowly.", seconds=wait
        )
        await self._refusal(Request(scope), error)(scope, receive, send)

    def _warn(self, scope: Scope, address: str) -> None:
        """Say once that a proxy is not trusted: all who come by it count as one."""
        if self._has_warned:
            return
        forwarded = Headers(scope=scope).get("x-forwarded-for", "")
        if forwarded and scope["client"][0] not in forwarded:
            self._has_warned = True
            log.warning(
                "a proxy that is not trusted names its callers; SWATHMILL_TRUSTED_PROXIES lists "
                "those that are",
                address=address,
            )


class CountedResponse(StreamingResponse):
    """A stream that counts among what its caller may be sent, if it is large."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits: CallerLimits = scope["app"].state.portal.limits
        caller = caller_of(scope)
        length = self.headers.get("content-length", "")
        if not caller or (length and int(length) < LARGE):
            await super().__call__(scope, receive, send)
            return

        async def count(message: Message) -> None:
            limits.sent.use(caller, float(len(message.get("body", b""))))
            await send(message)

        limits.begin(caller)
        try:
            await super().__call__(scope, receive, count)
        finally:
            limits.end(caller)
