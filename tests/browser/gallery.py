"""All pages of the portal in all their states, for whoever looks at them: axe, and pictures."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from playwright.sync_api import (
    Browser,
    BrowserContext,
    FilePayload,
    Page,
    Position,
    Route,
    ViewportSize,
    expect,
)

from reprojection.read.completeness import WHOLE, Completeness, Missing
from service_manager.leader.leadership import Leadership
from tasks.accounts.group_table import GroupRow, GroupTable
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState, TaskOutcome
from tasks.bag.runtime import Runtime
from tasks.bag.task_rows import Interest
from tasks.bag.workers import WorkerRow
from tasks.canonical import digest_of
from tasks.errors import StoreError
from tasks.holdings import holdings
from tasks.request.document import parse_request
from tasks.requests import request_operations
from tasks.requests.plan import Gap
from tasks.requests.request_table import PhaseCount, Preparation, Preview, Rehearsal, RequestTable
from tasks.storage.blobs import ARTIFACTS
from tests.browser.pages import map_ready, open_part
from tests.portal.archive import StillArchive, telling
from tests.portal.requests.test_runs import put_story
from tests.portal.scripted import (
    LivePortal,
    count_preview,
    live_portal,
    live_runtime,
    put_executions,
    put_failed_task,
    put_interest,
    put_result,
    put_running_task,
    put_worker,
    raster_bytes,
    set_row,
    settings,
)
from tests.portal.site_tables import site_csv, site_rows
from tests.portal.submissions import DOCUMENT
from tests.portal.viewer.serving_viewer import viewed_folder
from tests.tasks.package_files import upload_of
from tests.waiting import until

ADA = "ada@example.org"
LAYER = "MCD15A2.005/Lai_1km/MCD15A2.005.Lai_1km"
DAYS = tuple(str(dt.date(2012, 1, 1) + dt.timedelta(days=8 * n)) for n in range(16))
_SITES = "id,latitude,longitude\nMoor,56.6,-6.7\nFen,52.1,0.2"
SITES = {
    "title": "Two sites",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"sites": _SITES},
    "time": {"start": "2012-04-13", "end": "2012-04-30"},
}
POLYGON = '{"type":"Polygon","coordinates":[[[-6,52],[2,52],[-2,57],[-6,52]]]}'

Who = Literal["operator", "scientist", "newcomer", "guest", "nobody"]
Theme = Literal["light", "dark"]


@dataclass(frozen=True, kw_only=True)
class World:
    """A portal with something in each state, and by which words these are found.

    Among the words are addresses of other portals: of a folder's map, of one that sends mails and
    takes few calls, and of one whose storage is silent.
    """

    portal: LivePortal
    ids: dict[str, str]

    def at(self, path: str) -> str:
        """Return the address of a page; `{running}` stands for the request of this name."""
        found = path.format(**self.ids)
        return found if found.startswith("http") else self.portal.url + found


@dataclass(frozen=True, kw_only=True)
class State:
    """A page in a state: who opens it where, and what is done on it then."""

    name: str
    path: str
    who: Who = "operator"
    act: Callable[[Page], None] | None = None


@contextmanager
def world(folder: Path, archive: Path) -> Iterator[World]:
    """Serve a portal with requests, uploads, groups and work in all states, until the block ends.

    `archive` is a sample archive; `folder` takes what is written.
    """
    runtime = live_runtime()
    ids = _requests(runtime, folder)
    ids["task"] = put_failed_task(
        runtime, ids["gaps"], "MCD15A2.A2012001.h17v03.005.hdf", (Category.UNKNOWN,) * 2
    )
    _work(runtime, ids)
    ids["lost"] = _submitted(runtime, "Lost")
    key = put_result(runtime, ids["lost"], "L", "lost.tif", b"1")
    runtime.blobs.delete(ARTIFACTS, f"{key}/claim/lost.tif")
    ada = GroupRow(name="forest-team", owner=ADA, members=("ben@example.org",))
    GroupTable(runtime.store).write(runtime.clock, ada)
    made = settings(archive=str(archive), data_dir=str(folder), sources="folder")
    strict = settings(smtp_url="smtp://127.0.0.1:9", caller_rate="0.1")
    with (
        telling(runtime, StillArchive()),
        beating(runtime),
        live_portal(runtime, made) as portal,
        live_portal(runtime, strict) as other,
        live_portal(_silent(), settings()) as silent,
        viewed_folder(made) as ids["viewer"],
    ):
        ids |= {"strict": other.url, "silent": silent.url}
        until(lambda: holdings.read(runtime.store)[0] is not None, what="what the archive has")
        with portal.client() as client:
            told = "description: Mean leaf area.\nparameters: {low: {about: least value}}\n"
            answer = client.post("/api/packages", content=upload_of(more=told))
            ids["package"] = answer.raise_for_status().json()["id"]
            every = client.get("/api/packages").raise_for_status().json()
            ids["shipped"] = next(one["id"] for one in every if one["reference"] == "anomaly")
        with portal.client() as client:
            link = client.post(f"/api/requests/{ids['gaps']}/links").raise_for_status().json()
        ids["link"] = link["url"].partition("127.0.0.1")[2]
        yield World(portal=portal, ids=ids)


def _silent() -> Runtime:
    """A runtime whose storage does not answer."""
    runtime = live_runtime()

    def broken(*_: object) -> None:
        raise StoreError("gone")

    runtime.store.get = broken  # type: ignore[assignment, method-assign]
    return runtime


@contextmanager
def beating(runtime: Runtime) -> Iterator[None]:
    """Have a manager and two workers give signs, until the block ends: pages say it at once.

    Previews of the title "Counted" get their counts.
    """
    manager, stop, began = Leadership(runtime, 30.0), threading.Event(), runtime.clock.now() - 4000
    assert manager.acquire()

    def loop() -> None:
        while not stop.is_set():
            manager.renew()
            for name in RequestTable(runtime.store).live():
                row = request_operations.load(runtime, name)
                if row.dry_run and row.title == "Counted":
                    count_preview(runtime, name)
            for number in (1, 2):
                beat = runtime.clock.now()
                worker = WorkerRow(
                    name=f"worker-{number}", host=f"node-{number}", slots=2, started=began,
                    beat_at=beat,
                )  # fmt: skip
                put_worker(runtime, worker)
            stop.wait(1.0)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def _requests(runtime: Runtime, folder: Path) -> dict[str, str]:
    """Submit requests and bring each into its state."""
    now = runtime.clock.now()
    part = {
        Phase.COLLECTION: PhaseCount(total=32, done=30, reused=4, running=1),
        Phase.REPROJECTION: PhaseCount(total=64, done=20, running=4),
        Phase.AGGREGATION: PhaseCount(total=32, done=6, running=1),
    }
    whole = {phase: PhaseCount(total=one.total, done=one.total) for phase, one in part.items()}
    lacking = {**whole, Phase.AGGREGATION: PhaseCount(total=32, done=29, failed=2)}
    counted = Preview(
        granules=3200, tasks=10_700, gaps=1, reused=4, size=12_345_678_900,
        stored=34_500_000_000, unmeasured=10_696,
    )  # fmt: skip
    gap = Gap(what="MCD15A2.005 2012-04-30", reason="the archive has no granule of this date")
    ids = {"submitted": _submitted(runtime, "Leaf area, waiting")}

    def put(name: str, title: str, state: RequestState, **changes: object) -> str:
        ids[name] = _submitted(runtime, title)
        set_row(runtime, ids[name], state=state, outputs=32, **changes)
        return ids[name]

    days = Preparation(done=12, total=121, unit="days")
    put("planning", "Leaf area, being planned", RequestState.PLANNING, preparation=days)
    put("paused", "Leaf area, paused", RequestState.RUNNING, paused=True, phases=part)
    put(
        "held", "Leaf area of ten years", RequestState.HELD, preview=counted,
        message="It takes 10,700 tasks, more than 10,000.",
    )  # fmt: skip
    put("cancelling", "Leaf area, being cancelled", RequestState.CANCELLING, phases=part)
    put("cancelled", "Leaf area, given up", RequestState.CANCELLED, phases=part, ended=now - 400)
    put(
        "refused", "Leaf area of 2031", RequestState.REFUSED, ended=now - 500,
        message="the archive has no granule of MCD15A2 005 from 2031-01-01 to 2031-01-31",
    )  # fmt: skip
    failed = put(
        "failed", "Leaf area, failed", RequestState.FAILED, ended=now - 90_000, phases=lacking,
        message="no result could be made",
    )  # fmt: skip
    for day in DAYS:
        _fail(runtime, failed, day)
    running = put("running", "Leaf area, spring", RequestState.RUNNING, phases=part, delivered=6)
    _rasters(runtime, folder, running, ("Lai_1km",), DAYS[:6])
    for day in DAYS[6:]:
        put_interest(runtime, _planned(running, day))
    complete = put(
        "complete", "Leaf area over the British Isles", RequestState.COMPLETE, phases=whole,
        delivered=32, ended=now - 60,
    )  # fmt: skip
    _rasters(runtime, folder, complete, ("Fpar_1km", "Lai_1km"), DAYS)
    gaps = put(
        "gaps", "A thesis on leaf area", RequestState.GAPS, phases=lacking, delivered=27,
        ended=now - 7200, labels=("thesis",), standing=7, gaps=(gap,), gap_count=1,
        notes=("MCD15A2.005: reads up to about 4.2 MB of 137 MB",),
    )  # fmt: skip
    _rasters(runtime, folder, gaps, ("Fpar_1km", "Lai_1km"), DAYS[:13], lacks=2)
    for day in DAYS[13:15]:
        _fail(runtime, gaps, day)
    own = parse_request({**DOCUMENT, "title": "Own code", "reduction": {"package": "own"}})
    ids["rehearsal"] = request_operations.submit(runtime, ADA, own)
    set_row(
        runtime, ids["rehearsal"], state=RequestState.HELD, rehearsal=Rehearsal.RUNS,
        message="the rehearsal failed: no module named scipyx",
    )  # fmt: skip
    ids["story"] = put_story(runtime).request
    ids["sites"] = request_operations.submit(runtime, ADA, parse_request(SITES))
    rows = [*site_rows("Moor", [1.0, 2.5, 2.1]), *site_rows("Fen", [0.5, 1.0, 1.6])]
    put_result(runtime, ids["sites"], "sites", "sites.csv", site_csv(rows))
    set_row(
        runtime, ids["sites"], state=RequestState.COMPLETE, ended=now - 30, delivered=1, outputs=1
    )
    return ids


def _submitted(runtime: Runtime, title: str) -> str:
    return request_operations.submit(runtime, ADA, parse_request({**DOCUMENT, "title": title}))


def _planned(request: str, day: str, layer: str = "Lai_1km") -> Interest:
    return Interest(
        request=request,
        key=digest_of(f"{request} {day} {layer}"),
        phase=Phase.AGGREGATION,
        name=f"MCD15A2.005.{layer}.{day}",
        output=f"MCD15A2.005/{layer}",
    )


def _fail(runtime: Runtime, request: str, day: str) -> None:
    """Have the raster of a day fail."""
    failed = replace(
        _planned(request, day),
        outcome=TaskOutcome.FAILED,
        category=Category.UNREADABLE_INPUT_FILE,
        message="MCD15A2.A2012105.h17v03.005.hdf: a chunk of Lai_1km has 512 bytes, not 2,048",
    )
    put_interest(runtime, failed)


def _rasters(
    runtime: Runtime,
    folder: Path,
    request: str,
    layers: Sequence[str],
    days: Sequence[str],
    lacks: int = 0,
) -> None:
    """Store rasters of layers and days; the last ones of the last layer lack an input."""
    half = Completeness(share=0.5, missing=(Missing(what="MCD15A2 h17v03", why="unreadable"),))
    for layer in layers:
        for number, day in enumerate(days):
            data = raster_bytes(folder, seed=number % 4, width=300, height=200)
            said = half if layer == layers[-1] and number >= len(days) - lacks else WHOLE
            put_result(
                runtime,
                request,
                f"MCD15A2.005/{layer}",
                f"MCD15A2.005.{layer}.{day}.tif",
                data,
                said,
            )


def _work(runtime: Runtime, ids: dict[str, str]) -> None:
    """Put workers, what they run, and what was executed in the last days."""
    put_running_task(runtime, ids["running"], "MCD15A2.A2012009.h18v03.005.hdf", "worker-1")
    today = dt.datetime.fromtimestamp(runtime.clock.now(), dt.UTC)
    for before in range(6):
        day = today - dt.timedelta(days=before)
        put_executions(runtime, day, {None: 20 + 7 * before}, owner=ADA)
        if before % 2:
            put_executions(runtime, day, {Category.EXECUTION_TIMEOUT: before}, duration=90.0)
    wasteful = "reduction ada/evapotranspiration@3 0123abcd, 1-2 Gpx"
    put_executions(runtime, today, {Category.USER_CODE_FAILED: 3}, wasteful, 900.0, owner=ADA)


def _search(page: Page) -> None:
    page.fill("#product-search", "leaf area")
    expect(page.get_by_role("button", name="Add MCD15A2").first).to_be_visible()


def _fill(page: Page) -> None:
    """Fill the form in, all five steps."""
    page.fill("#product-search", "MCD15A2")
    page.get_by_role("button", name="Add MCD15A2 collection 005", exact=True).click()
    page.get_by_role("checkbox", name="Lai_1km").check()
    for name, value in {
        "start": "2012-03-05", "end": "2012-03-30", "resolution": "0.1",
        "west": "-8", "south": "51", "east": "6", "north": "58",
    }.items():  # fmt: skip
        page.fill(f"#{name}", value)
    page.select_option("#qa", "good")
    expect(page.locator("#summary")).to_contain_text("pixels of 0.1 degree")


def _wrong(page: Page) -> None:
    _fill(page)
    page.fill("#north", "95")
    page.fill("#end", "2011-01-31")
    page.fill("#notify", "nobody@")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#problem")).to_be_visible()


def _opened(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


def _all_open(page: Page) -> None:
    _fill(page)
    _opened(page)


def _document(page: Page) -> None:
    page.get_by_text("Load a request document").click()
    page.fill("#document", "regoin: {bbox: [1, 2, 3, 4]}\nproducts: []")
    page.get_by_role("button", name="Fill the form from it").click()
    expect(page.locator("#error-document")).to_contain_text("Did you mean region?")


def _view_layer(page: Page) -> None:
    _fill(page)
    map_ready(page)
    page.get_by_label("See a layer on the map").check()
    expect(page.locator("[data-layer-view][data-shown*='2012-03-05'][data-loaded]")).to_be_visible()
    expect(page.locator("[data-view=legend] .behind").first).to_be_visible()


def _draw_region(page: Page) -> None:
    map_ready(page)
    page.get_by_role("radio", name="Polygon").check()
    page.fill("#geojson", POLYGON)
    page.locator("#geojson").blur()
    expect(page.locator("[data-region-map][data-shape='1']")).to_be_attached()


def _sites(page: Page) -> None:
    page.get_by_role("radio", name="Sites").check()
    page.fill("#sites", _SITES)
    expect(page.locator("[data-region-map][data-shape='2']")).to_be_attached()


def _place(page: Page) -> None:
    page.get_by_role("radio", name="Place").check()
    page.fill("#place", "Netherlands")
    page.locator("#place").blur()
    expect(page.locator("[data-region-map][data-shape='1']")).to_be_attached()


def _parameters(page: Page) -> None:
    _fill(page)
    page.select_option("#package", "anomaly")
    expect(page.locator("[name^=parameter-]").first).to_be_visible()


def _preview(page: Page) -> None:
    _fill(page)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview")).to_contain_text("Asking the archive")


def _counted(page: Page) -> None:
    _fill(page)
    page.fill("#title", "Counted")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#preview-counts")).to_contain_text("32, 123 MB to fetch")


def _ask_for_a_link(address: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.fill("#address", address)
        page.locator("form").evaluate("form => { form.noValidate = true; }")
        page.get_by_role("button", name="Send me a link").click()
        expect(page.locator("main [role=status], main .error:not(:empty)")).to_be_visible()

    return act


def _too_many(page: Page) -> None:
    """Call as from another machine: those of this one have no limit."""

    def forwarded(route: Route) -> None:
        named = {"x-forwarded-for": "203.0.113.7"}
        more = named if route.request.is_navigation_request() else {}
        route.continue_(headers={**route.request.headers, **more})

    page.route("**/*", forwarded)

    def refused() -> bool:
        answer = page.reload()
        return answer is not None and answer.status == 429

    until(refused, what="too many calls")


def _viewed(page: Page) -> None:
    expect(page.locator("[data-layer-view][data-shown][data-loaded]")).to_be_visible()
    expect(page.locator('[data-view="said"]')).to_contain_text("have a value")


def _part(name: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        open_part(page, name)
        _opened(page)

    return act


def _map(page: Page) -> None:
    expect(page.locator("#legend")).to_contain_text("m² m⁻²")
    expect(page.locator("[data-results-map][data-lines]")).to_be_attached()
    expect(page.locator("#statistics")).to_contain_text("Statistics, ")


def _series(page: Page) -> None:
    _map(page)
    page.fill("#lon", "-6")
    page.fill("#lat", "56")
    page.get_by_role("button", name="Read the values").click()
    expect(page.locator("#point")).to_contain_text("dates have a value here")


def _compare(page: Page) -> None:
    _map(page)
    page.select_option("#other", label="MCD15A2.005 Lai_1km")
    expect(page.locator("#other-legend")).to_contain_text("Lai")


def _draw_polygon(page: Page) -> None:
    _map(page)
    page.locator("[data-polygon=draw]").click()
    box = page.locator("#result-map").bounding_box()
    assert box is not None
    for x, y in ((0.3, 0.3), (0.6, 0.35), (0.5, 0.6), (0.3, 0.3)):
        at = Position(x=x * box["width"], y=y * box["height"])
        page.locator("#result-map").click(position=at)
    expect(page.locator("#polygons-found")).to_contain_text("Polygon 1")


def _refused_package(page: Page) -> None:
    page.set_input_files("#file", files=[_file("own.zip", b"no archive")])
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".error, .notice.bad").first).to_be_visible()


def _refused_raster(page: Page) -> None:
    page.fill("#name", "hills")
    page.set_input_files("#file", files=[_file("dem.tif", b"no raster")])
    page.get_by_role("button", name="Upload").click()
    expect(page.locator(".error, .notice.bad").first).to_be_visible()


def _file(name: str, content: bytes) -> FilePayload:
    return FilePayload(name=name, mimeType="application/octet-stream", buffer=content)


def _token(page: Page) -> None:
    page.get_by_label("What it is for").fill("laptop")
    page.get_by_role("button", name="Make a token").click()
    page.wait_for_load_state("networkidle")


REQUESTS = ("submitted", "planning", "running", "paused", "held", "rehearsal", "complete", "gaps",
            "failed", "cancelling", "cancelled", "refused", "sites", "story")  # fmt: skip

STATES: dict[str, tuple[State, ...]] = {
    "form": (
        State(name="empty", path="/new"),
        State(name="search", path="/new", act=_search),
        State(name="filled", path="/new", act=_fill),
        State(name="errors", path="/new", act=_wrong),
        State(name="all-open", path="/new", act=_all_open),
        State(name="document", path="/new", act=_document),
        State(name="layer-view", path="/new", act=_view_layer),
        State(name="polygon", path="/new", act=_draw_region),
        State(name="sites", path="/new", act=_sites),
        State(name="place", path="/new", act=_place),
        State(name="parameters", path="/new", act=_parameters),
        State(name="preview", path="/new", act=_preview),
        State(name="preview-counted", path="/new", act=_counted),
        State(name="again", path="/new?again={gaps}"),
    ),
    "requests": (
        State(name="list", path="/"),
        State(name="list-of-everybody", path="/?everybody=true"),
        State(name="list-of-a-label", path="/?label=thesis"),
        State(name="list-of-a-newcomer", path="/", who="newcomer"),
        *(State(name=name, path=f"/requests/{{{name}}}", who="scientist") for name in REQUESTS),
    ),
    "parts": (
        *(
            State(name=name.lower(), path="/requests/{gaps}", who="scientist", act=_part(name))
            for name in ("Failures", "Files", "Document", "Sharing")
        ),
        State(name="runs", path="/requests/{story}/runs", who="scientist"),
        State(name="task", path="/tasks/{task}", who="scientist"),
        State(name="file", path=f"/requests/{{gaps}}/view/{LAYER}.2012-01-01.tif"),
        State(name="by-a-link", path="{link}", who="guest"),
    ),
    "map": (
        State(name="map", path="/requests/{gaps}/map", act=_map),
        State(name="series", path="/requests/{gaps}/map", act=_series),
        State(name="compare", path="/requests/{gaps}/map", act=_compare),
        State(name="polygon", path="/requests/{gaps}/map", act=_draw_polygon),
    ),
    "viewer": (State(name="folder", path="{viewer}", who="nobody", act=_viewed),),
    "uploads": (
        State(name="packages", path="/packages"),
        State(name="package-refused", path="/packages", act=_refused_package),
        State(name="package", path="/packages/{package}", who="scientist"),
        State(name="package-shipped", path="/packages/{shipped}"),
        State(name="package-link", path="/packages/open?link=abc"),
        State(name="rasters", path="/rasters"),
        State(name="rasters-refused", path="/rasters", act=_refused_raster),
    ),
    "account": (
        State(name="groups", path="/groups", who="scientist"),
        State(name="tokens", path="/tokens", who="scientist"),
        State(name="token-made", path="/tokens", who="scientist", act=_token),
        State(name="sign-in", path="/sign-in", who="nobody"),
        State(name="sign-in-by-mail", path="{strict}/sign-in", who="nobody"),
        State(
            name="sign-in-wrong", path="{strict}/sign-in", who="nobody", act=_ask_for_a_link("ada")
        ),
        State(name="sign-in-sent", path="{strict}/sign-in", who="nobody", act=_ask_for_a_link(ADA)),
        State(name="not-signed-in", path="/requests/{gaps}", who="nobody"),
        State(name="docs", path="/docs", who="nobody"),
        State(name="error-404", path="/nowhere"),
        State(name="error-403", path="/operations", who="scientist"),
        State(name="error-405", path="/requests/{gaps}/cancel"),
        State(name="error-429", path="{strict}/sign-in", who="nobody", act=_too_many),
        State(name="error-503", path="{silent}/requests/one", who="scientist"),
        State(name="error-410", path="/requests/{lost}/view/L/lost.tif"),
    ),
    "operations": (
        *(
            State(name=name or "now", path=f"/operations/{name}".rstrip("/"))
            for name in ("", "executions", "attempts", "costs", "kills", "actions")
        ),
        State(name="act", path="/operations/act?action=pause+phase&subject=collection"),
        State(name="retry", path="/operations/retry?category=bad+image+format"),
    ),
}
"""All pages by their part of the portal, each in its states."""


@contextmanager
def browsing(
    browser: Browser, world: World, theme: Theme, width: int, *, by_finger: bool = False
) -> Iterator[Callable[[State], Page]]:
    """Yield what opens a state and returns its page; who opens it keeps one browser."""
    contexts: dict[Who, BrowserContext] = {}

    def opened(state: State) -> Page:
        if state.who not in contexts:
            made = browser.new_context(
                viewport=ViewportSize(width=width, height=900),
                color_scheme=theme,
                has_touch=by_finger,
            )
            made.set_default_timeout(30_000)
            contexts[state.who] = made
            if state.who not in ("guest", "nobody"):
                owner = "new@example.org" if state.who == "newcomer" else ADA
                role = "operator" if state.who == "operator" else "scientist"
                first = made.new_page()
                first.goto(world.portal.link(owner, role))
                first.close()
        page = contexts[state.who].new_page()
        page.goto(world.at(state.path))
        if state.act is not None:
            state.act(page)
        page.wait_for_load_state("networkidle")
        return page

    try:
        yield opened
    finally:
        for one in contexts.values():
            one.close()
