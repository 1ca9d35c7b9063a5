"""How long a page takes to show its main content, while all slots are at work.

    python -m bench.portal.paint [--loads N] [--archive FOLDER]

Chromium opens pages of `swathmill up`, each with an empty cache: first on the idle stack, then
while requests of leaf area keep a slot for each core at work. The time is that of the largest
element drawn (Largest Contentful Paint, W3C), in milliseconds since the page was asked for.
Chromium takes its processor time from the same cores. 1 when a median is over a second.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bench.request import granules
from bench.request.cases import cases, on_a_new_grid
from bench.request.ours import stack
from portal.serving import tokens
from portal.serving.identity import COOKIE
from processes.parents import become_subreaper
from swathmill.access import LOCAL_OWNER
from swathmill.stack.folder import DataFolder

GOAL_MS = 1000.0
BESIDE = 4  # requests at work side by side
_OBSERVE = """
new PerformanceObserver((found) => {
  for (const one of found.getEntries()) window.largestPaint = one.startTime;
}).observe({type: 'largest-contentful-paint', buffered: true});
"""


def paint_ms(browser: Browser, url: str, session: str) -> float:
    """Open a page with an empty cache; return when its largest element was drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        context.add_cookies([{"name": COOKIE, "value": session, "url": url}])
        page = context.new_page()
        page.add_init_script(_OBSERVE)
        page.goto(url, wait_until="load")
        page.wait_for_timeout(1000)  # larger elements may be drawn after the page is loaded
        return float(page.evaluate("window.largestPaint"))
    finally:
        context.close()


def paints(
    browser: Browser, portal: str, session: str, pages: Mapping[str, str], loads: int
) -> dict[str, list[float]]:
    """Open each page so many times, in turn."""
    found: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(loads):
        for name, path in pages.items():
            found[name].append(paint_ms(browser, portal + path, session))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", type=int, default=7)
    parser.add_argument("--archive", type=Path, help="leaf area; synthetic granules otherwise")
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("there is no chromium on PATH: install it")
    case = cases()["Q1"]
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="swathmill-paint-") as name, sync_playwright() as play:
        folder = Path(name)
        archive = folder / "archive"
        archive.mkdir()
        granules.leaf_area(archive, options.archive)
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with stack(archive, folder) as running:
            running.take(case.warm_up, folder / "warm-up")
            client = running.client
            (done,) = client.requests()
            secret = DataFolder(path=folder / "data").secrets().signing_key
            session = tokens.issue(secret, LOCAL_OWNER, "operator", use=tokens.Use.SESSION)
            pages = {
                "requests": "/",
                "new request": "/new",
                "a request that has ended": f"/requests/{done.id}",
                "its map": f"/requests/{done.id}/map",
                "operations": "/operations",
                "executions": "/operations/executions",
            }
            idle = paints(browser, client.url, session, pages, options.loads)
            busy: dict[str, list[float]] = {name: [] for name in pages}
            for turn in range(options.loads):
                jobs = [
                    client.submit(on_a_new_grid(case.request, turn * BESIDE + number))
                    for number in range(BESIDE)
                ]
                now = pages | {"a request that runs": f"/requests/{jobs[0].id}"}
                for name, times in paints(browser, client.url, session, now, 1).items():
                    busy.setdefault(name, []).extend(times)
                if all(client.status(job.id).state.ended for job in jobs):
                    raise RuntimeError("the requests ended while pages were opened")
                for job in jobs:
                    job.watch()
    sys.stdout.write("| page | idle | at work: median | most |\n|---|--:|--:|--:|\n")
    for name, times in busy.items():
        before = f"{statistics.median(idle[name]):.0f}" if name in idle else ""
        sys.stdout.write(
            f"| {name} | {before} | {statistics.median(times):.0f} | {max(times):.0f} |\n"
        )
    return int(any(statistics.median(times) > GOAL_MS for times in busy.values()))


if __name__ == "__main__":
    sys.exit(main())
