"""Routes that are worked out when they are first called.

FastAPI works out a route's parameters, body and answer where it is declared. That takes 2 ms of
processor time for each, a third of what the portal needs to start, and most processes of a portal
are asked for few of its routes. `tests/portal/serving/test_late_routes.py` works out all.
"""

import threading
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

_WORKING_OUT = threading.RLock()


class LateRoute(APIRoute):
    """A route that has what it is found by; anything else about it is worked out when asked for."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        name: str | None = None,
        methods: set[str] | list[str] | None = None,
        include_in_schema: bool = True,
        **declared: Any,
    ) -> None:
        """As `APIRoute`, whose errors are raised when the route is worked out."""
        self.path = path
        self.endpoint = endpoint
        self.name = name or get_name(endpoint)
        self.methods = {method.upper() for method in methods or ("GET",)}
        self.include_in_schema = include_in_schema
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self._declared: dict[str, Any] | None = declared

    def __getattr__(self, name: str) -> Any:
        """Work the route out: Python asks here for what it does not have yet."""
        if name.startswith("__"):
            raise AttributeError(name)
        with _WORKING_OUT:
            declared = self.__dict__.get("_declared")
            if declared is not None:
                self._declared = None
                super().__init__(
                    self.path,
                    self.endpoint,
                    name=self.name,
                    methods=self.methods,
                    include_in_schema=self.include_in_schema,
                    **declared,
                )
            try:
                return self.__dict__[name]
            except KeyError:
                raise AttributeError(name) from None


class Router(APIRouter):
    """A router of late routes; a feature of the portal has some."""

    def __init__(self, *, route_class: type[LateRoute] = LateRoute, **given: Any) -> None:
        """As `APIRouter`."""
        super().__init__(route_class=route_class, **given)
