"""The templates, and what every page needs to know about the caller and the time."""

import datetime as dt
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urljoin

import structlog
from fastapi import Response
from fastapi.responses import RedirectResponse
from jinja2 import (
    BytecodeCache,
    Environment,
    FileSystemLoader,
    StrictUndefined,
    select_autoescape,
)
from jinja2.bccache import Bucket
from markupsafe import Markup, escape
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from modis.collection import versioned, versioned_text
from portal.serving.addresses import page_above
from portal.serving.expected import Expected
from portal.serving.quantities import duration_text, place_text, size_text, unit_text
from portal.serving.tokens import Person
from tasks.accounts.group_table import name_of
from tasks.errors import StoreError
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_lease import Acting, ManagerWatch
from tasks.shown_text import shown
from tasks.storage.clock import Clock

if TYPE_CHECKING:
    from reprojection.write.palette import Scale

log = structlog.get_logger(__name__)

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "static"

_HTML = "text/html; charset=utf-8"
_PART = re.compile(r"[._/@](?=\w)")
_CODE = re.compile(r"`([^`]+)`")

_TONES = {
    "complete": "good",
    "done": "good",
    "success": "good",
    "complete with gaps": "warn",
    "cancelled": "warn",
    "cancelling": "warn",
    "waiting for confirmation": "warn",
    "draining": "warn",
    "unfit": "bad",
    "failing": "bad",
    "drained": "warn",
    "probing": "warn",
    "needed": "warn",
    "refused": "bad",
    "failed": "bad",
    "lost": "bad",
    "running": "busy",
    "submitted": "busy",
    "planning": "busy",
    "writing": "busy",
}


class _Compiled(BytecodeCache):
    """Compiled templates by their key, so that a process compiles each one once."""

    def __init__(self) -> None:
        self._codes: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with the kept code if the template's source is still the same."""
        if bucket.key in self._codes:
            bucket.bytecode_from_string(self._codes[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the bucket's code."""
        self._codes[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


def _seen(value: object) -> object:
    """Return a value as a page shows it: a text without anything that cannot be seen."""
    if not isinstance(value, str) or value.isprintable():
        return value
    text = shown(value)
    return Markup(text) if isinstance(value, Markup) else text


class Pages:
    """The portal's templates over one clock.

    `sample` says that the granules come from the sample archive; each page then shows it.
    """

    def __init__(
        self, clock: Clock, manager: ManagerWatch, redis: RedisWatch, *, sample: bool
    ) -> None:
        self._clock = clock
        self._manager = manager
        self._env = Environment(
            loader=FileSystemLoader(ROOT / "templates"),
            bytecode_cache=_COMPILED,
            autoescape=select_autoescape(),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_seen,
        )
        self._parts: dict[str, list[str]] = defaultdict(list)
        self._env.globals.update(
            versioned=versioned,
            asset=asset,
            parts=self._parts,
            expect=Expected.of,
            tone=tone,
            version=version("swathmill"),
            alone=False,
            me=None,
            section="",
            manager=self.manager,
            redis=redis,
            sample=sample,
        )
        filters: dict[str, Callable[..., object]] = {
            "bytes": size_text,
            "code": code_text,
            "colours": colours_of_scale,
            "group_name": name_of,
            "iso": iso_text,
            "moment": self._moment,
            "named": versioned_text,
            "parts": parts_text,
            "place": place_text,
            "scale_words": scale_words,
            "seconds": duration_text,
            "units": unit_text,
        }
        self._env.filters.update(filters)

    def manager(self) -> Acting:
        """Tell whether a manager acts.

        While storage does not answer, the manager counts as acting: pages then show storage's own
        error.
        """
        try:
            return self._manager.look()
        except StoreError as error:
            log.warning("the manager's row could not be read", error=str(error))
            return Acting(acts=True)

    def add_part(self, place: str, template: str) -> None:
        """Have a page include a feature's template at a place that the page offers."""
        self._parts[place].append(template)

    def stand_alone(self) -> None:
        """Show no links to parts of the portal: one page is all that there is."""
        self._env.globals["alone"] = True

    def text(self, template: str, /, **values: object) -> str:
        """Render a template as text."""
        return self._env.get_template(template).render(**values)

    def page(
        self, template: str, me: Person | None, section: str, status: int = 200, /, **values: object
    ) -> Response:
        """Render a whole page for a person; `section` is the part of the portal it belongs to."""
        return _html(self.text(template, me=me, section=section, **values), status)

    def part(self, template: str, at: str = "", /, **values: object) -> Response:
        """Render a part of a page, which htmx puts in its place.

        A browser that goes to its address is sent to the page above it; `at` is another page, or
        the place in that page.
        """
        return _Part(self.text(template, **values), at)

    def _moment(self, seconds: float) -> str:
        """Format a time: for an hour as how long ago, later as date and clock time."""
        ago = self._clock.now() - seconds
        if ago < 60:
            return "just now"
        if ago < 3600:
            return f"{int(ago // 60)} min ago"
        at = dt.datetime.fromtimestamp(seconds, dt.UTC)
        return f"{at:%Y-%m-%d %H:%M}"


def tone(state: str) -> str:
    """Return the colour class of a state; any state not in the table is a failure category."""
    return _TONES.get(state, "plain" if state in ("waiting", "ready", "previewed") else "bad")


def code_text(text: str) -> Markup:
    """Turn text into HTML in which `text in backquotes` is set as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


def parts_text(text: str) -> Markup:
    """Turn a name, of a layer or file, into HTML that may break after its `.`, `_`, `/`, `@`."""
    return Markup(_PART.sub(r"\g<0><wbr>", str(escape(text))))


@lru_cache(maxsize=16)
def colours_of_scale(name: "Scale") -> tuple[str, ...]:
    """Return the colours of a scale at even steps, as #rrggbb."""
    from reprojection.write.palette import colours

    return colours(name)


def scale_words(name: "Scale") -> str:
    """Say how a colour scale looks from its low to its high end."""
    from reprojection.write.palette import SCALES

    return SCALES[name]


def iso_text(seconds: float) -> str:
    """Format a time as ISO 8601 in UTC, to the second."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=64)
def asset(name: str) -> str:
    """Return the address of a static file; it contains a hash of the file's content."""
    path = STATIC / name
    if not path.is_file():
        return f"/static/{name}"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:10]
    return f"/static/{name}?v={digest}"


class _Part(Response):
    """A part of a page for scripts; for one who typed its address, the way to the page."""

    def __init__(self, content: str, at: str) -> None:
        super().__init__(content, 200, _kept(content), _HTML)
        self._at = at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a script with the part, a browser that shows it alone with a redirection."""
        if scope["method"] == "GET" and is_shown_alone(Headers(scope=scope)):
            page = urljoin(quote(page_above(scope["app"].routes, scope)), self._at)
            found = RedirectResponse(page, 303, {"Cache-Control": "no-store"})
            await found(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def is_shown_alone(headers: Headers) -> bool:
    """Tell whether a browser shows the answer as a page, not a script in its place on one."""
    return "text/html" in headers.get("accept", "") and "hx-request" not in headers


def _html(content: str, status: int) -> Response:
    """Build an answer that browsers may keep but must revalidate; they may not keep errors."""
    headers = {"Cache-Control": "no-store"} if status != 200 else _kept(content)
    return Response(content, status, headers, _HTML)


def _kept(content: str) -> dict[str, str]:
    digest = hashlib.sha256(content.encode()).hexdigest()[:20]
    return {"Cache-Control": "private, no-cache", "ETag": f'W/"{digest}"', "Vary": "Cookie"}
