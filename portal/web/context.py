"""The state of a running portal, and how a route gets it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ParamSpec, TypeVar

from fastapi import Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from portal.core.board import Board
from portal.core.caller_limits import CallerLimits
from portal.core.explaining import Explainer
from portal.core.holdings import KnownHoldings
from portal.core.kept import Kept, Shared
from portal.core.layers import Arranged
from portal.core.legends import Legend
from portal.core.results import ResultIndex
from portal.core.sessions import Sessions
from portal.core.sign_in_mail import SignInDesk
from portal.core.stac import StacIndex
from portal.core.tokens import Person
from portal.core.watching import RequestWatch
from portal.core.zarr_store import Member
from portal.web.pages import Pages
from portal.web.pictures import Pictures
from tasks.bag.runtime import Runtime
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_lease import ManagerWatch
from tasks.packages.packages import Packages
from tasks.request.document import Request as Document
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.requests.request_table import RequestRow
from tasks.settings import Settings
from tasks.storage.store import LocalStore
from tasks.uploads import raster_operations
from tasks.uploads.package_operations import PackagesOf

P = ParamSpec("P")
T = TypeVar("T")

if TYPE_CHECKING:
    from authlib.integrations.starlette_client import StarletteOAuth2App

MOST_WAITING = 8  # API calls that wait for planning at once
MOST_UPLOADING = 2  # uploaded packages and rasters that are read at once
MOST_READING = 2  # region files that are read at once
MOST_EXPLAINING = 4  # calls that explain a pixel or wait for their turn
MOST_COPYING = 2  # calls that copy results at once


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What a request's page is sent, the same for all who look at it: a server-sent event."""

    event: bytes
    ended: bool


@dataclass(frozen=True, kw_only=True)
class Portal:
    """One portal: its settings, its services, its templates and its caches."""

    settings: Settings
    runtime: Runtime
    local_packages: Packages
    holdings: KnownHoldings
    pages: Pages
    results: ResultIndex
    stac: StacIndex
    pictures: Pictures
    board: Board
    manager: ManagerWatch
    redis: RedisWatch
    desk: SignInDesk
    provider: "StarletteOAuth2App | None"
    watch: RequestWatch
    stopping: threading.Event
    waiting: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_WAITING)
    )
    reading_regions: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_READING)
    )
    uploading: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_UPLOADING)
    )
    explainer: Explainer = field(default_factory=Explainer)
    explaining: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_EXPLAINING)
    )
    copying: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(MOST_COPYING)
    )
    arranged: Kept[Arranged] = field(default_factory=lambda: Kept(64))
    stores: Kept[Mapping[str, Member]] = field(default_factory=lambda: Kept(16))
    legends: Kept[Legend] = field(default_factory=lambda: Kept(256))
    progress: Shared[Progress] = field(default_factory=lambda: Shared(256))

    @cached_property
    def limits(self) -> CallerLimits:
        """What one caller may cost."""
        return CallerLimits(self.settings, self.runtime.clock.monotonic)

    @cached_property
    def sessions(self) -> Sessions:
        """Which sessions have ended before their time."""
        return Sessions(self.runtime.store)

    @cached_property
    def is_local(self) -> bool:
        """Whether tables are on this machine."""
        return isinstance(self.runtime.store, LocalStore)

    async def quickly(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows: at once where tables are on this machine, else in a thread."""
        if self.is_local:
            return read(*args, **kwargs)
        return await run_in_threadpool(read, *args, **kwargs)

    def results_of(self, row: RequestRow) -> Arranged:
        """Return the finished results of a request as its pages show them."""
        files = {} if row.state.unplanned else self.results.files(self.runtime, row)
        # The index returns the same mapping until the results have changed.
        key = f"{row.id} {row.state.value} {row.delivered} {id(files)}"
        found = self.arranged.get(key, lambda: Arranged.of(files))
        return found if found.files is files else Arranged.of(files)

    def packages_of(self, person: Person) -> PackagesOf:
        """Return the packages that a person may name in a request."""
        return PackagesOf(self.runtime, self.local_packages, person.owner)

    def resolved(self, person: Person, document: Document) -> ResolvedRequest:
        """Work out what a person's request comes to, with the rasters that its names mean to him.

        Raises RequestRefusedError.
        """
        return resolve(raster_operations.described(self.runtime, person.owner, document))


def portal_of(request: Request) -> Portal:
    """Return the portal that the application was made for."""
    portal = request.app.state.portal
    if not isinstance(portal, Portal):
        raise TypeError("the application was not made by create_app")
    return portal


async def _portal_of(request: Request) -> Portal:
    """Return it on the event loop: a thread would cost more than the look."""
    return portal_of(request)


CurrentPortal = Annotated[Portal, Depends(_portal_of)]
PageNumber = Annotated[int, Query(ge=0, le=10_000)]
