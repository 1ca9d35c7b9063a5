"""The state of a running portal, what a feature adds to it, and how a route gets it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ParamSpec, TypeVar, cast

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool

from portal.serving.caller_limits import CallerLimits
from portal.serving.pages import Pages
from portal.serving.problems import Translate
from portal.serving.sessions import Sessions
from tasks.bag.runtime import Runtime
from tasks.messages.redis_watch import RedisWatch
from tasks.operators.manager_lease import ManagerWatch
from tasks.settings import Settings
from tasks.storage.store import LocalStore

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Portal:
    """One portal: its settings, its services, its templates, and what each feature keeps.

    `states` has one object of each type that a feature has asked for.
    """

    settings: Settings
    runtime: Runtime
    pages: Pages
    manager: ManagerWatch
    redis: RedisWatch
    stopping: threading.Event
    states: dict[object, object] = field(default_factory=dict)
    making: threading.RLock = field(default_factory=threading.RLock)

    def state(self, kind: Callable[["Portal"], T]) -> T:
        """Return this portal's one object of a type, which is made of the portal when first asked.

        What a feature keeps for all its routes, caches and turns, is an attribute of such a type.
        """
        found = self.states.get(kind)
        if found is None:
            with self.making:  # one state may be made of others
                found = self.states.get(kind)
                if found is None:
                    found = self.states[kind] = kind(self)
        return cast(T, found)

    @cached_property
    def limits(self) -> CallerLimits:
        """The limits of one caller."""
        return CallerLimits(self.settings, self.runtime.clock.monotonic)

    @cached_property
    def sessions(self) -> Sessions:
        """The sessions that have ended before their time."""
        return Sessions(self.runtime.store)

    @cached_property
    def is_local(self) -> bool:
        """True if tables are on this machine."""
        return isinstance(self.runtime.store, LocalStore)

    async def quickly(self, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read a few rows: at once where tables are on this machine, else in a thread."""
        if self.is_local:
            return read(*args, **kwargs)
        return await run_in_threadpool(read, *args, **kwargs)


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A part of the portal: its routes, the type of what it keeps for them, and what else it adds.

    `problems` say what callers are told of exceptions of its own.
    Both the state and `begin`, which adds the feature to what others offer, are called once for
    each portal, before it serves. They raise WrongSettingError where the settings rule them out.
    """

    routers: tuple[APIRouter, ...]
    state: Callable[[Portal], object] | None = None
    begin: Callable[[FastAPI, Portal], None] = lambda _app, _portal: None
    problems: Mapping[type[Exception], Translate] = field(default_factory=dict)


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
