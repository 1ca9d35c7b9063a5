"""The operators' page, and the same by the API."""

import datetime as dt
import re

import pytest

from tasks.model.categories import Category
from tasks.tables import workers
from tasks.tables.services import Services
from tests.portal.scripted import LivePortal, put_executions, put_running_task, put_worker
from tests.portal.submissions import submitted


def test_the_operators_page_shows_what_runs_failed_and_lives(
    portal: LivePortal, services: Services
) -> None:
    name = submitted(services)
    now = services.clock.now()
    key = put_running_task(services, name, "A.hdf", "worker-1")
    today = dt.datetime.fromtimestamp(now, dt.UTC)
    counts = {None: 20, Category.EXECUTION_TIMEOUT: 3}
    put_executions(services, today, counts, duration=30.0)
    for worker, ago, draining in (("worker-1", 0, False), ("lost-1", 500, False), ("d", 0, True)):
        put_worker(
            services,
            workers.WorkerRow(
                name=worker,
                host="node",
                slots=4,
                started=now - 900,
                beat_at=now - ago,
                draining=draining,
                sandbox="bubblewrap",
            ),
        )
    with portal.browser() as scientist, portal.browser("op@example.org", "operator") as client:
        assert scientist.get("/operations").status_code == 403
        page = client.get("/operations").text
        answer = client.get("/api/operations").json()
    assert f"/tasks/{key}" in page
    assert "execution timeout" in page
    assert "bubblewrap" in page
    for state in ("lost", "draining", "ready"):
        assert re.search(rf'class="state \w+">{state}<', page)
    (running,) = answer["running"]
    assert running["mean"] == pytest.approx(30)
    assert running["bound"] == pytest.approx(120)
    assert answer["executions"]["outcomes"]["execution timeout"][-1] == 3
    assert {w["name"]: w["state"] for w in answer["workers"]}["lost-1"] == "lost"
