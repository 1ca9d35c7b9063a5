"""Routes of the portal are late: worked out when they are called, all alike when they are."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from portal.app import routes_of
from portal.features import FEATURES
from portal.serving.late_routes import LateRoute, Router


def test_all_routes_of_the_portal_are_late_and_can_be_worked_out() -> None:
    routes = [one for one in routes_of(FEATURES) if isinstance(one, APIRoute)]
    assert len(routes) > 150
    for route in routes:
        assert isinstance(route, LateRoute), route.path
        assert route.dependant.call is route.endpoint, route.path


def _double(number: int) -> dict[str, int]:
    return {"double": 2 * number}


def _app() -> tuple[FastAPI, LateRoute]:
    router = Router(tags=["numbers"])
    router.get("/double/{number}", summary="Double a number")(_double)
    (route,) = router.routes
    assert isinstance(route, LateRoute)
    return FastAPI(routes=[*router.routes]), route


def test_a_route_is_worked_out_by_its_first_call_and_not_by_looking_for_it() -> None:
    app, route = _app()
    client = TestClient(app)
    assert client.get("/elsewhere").status_code == 404
    assert client.post("/double/4").status_code == 405
    assert "dependant" not in vars(route)
    assert client.get("/double/4").json() == {"double": 8}
    assert client.get("/double/x").status_code == 422
    assert "dependant" in vars(route)
    assert route.tags == ["numbers"]
    assert route.summary == "Double a number"


def test_what_no_route_has_is_an_error_before_and_after() -> None:
    _, route = _app()
    for _ in range(2):
        with pytest.raises(AttributeError, match="colour"):
            _ = route.colour


def test_threads_that_ask_at_once_all_get_it() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            _, route = _app()
            ready = threading.Barrier(4)

            def ask(route: LateRoute = route, ready: threading.Barrier = ready) -> object:
                ready.wait()
                return route.unique_id

            with ThreadPoolExecutor(4) as threads:
                asked = [threads.submit(ask) for _ in range(4)]
                assert {one.result() for one in asked} == {"_double_double__number__get"}
    finally:
        sys.setswitchinterval(before)
