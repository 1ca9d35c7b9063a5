"""Pages of a test on which no error may come up: not in scripts, not by the policy."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, ViewportSize, expect

REPLACED = ("htmx:afterRequest", "htmx:sendAbort", "undefined")
"""What htmx says when a check of a form takes the place of an earlier one."""


@contextmanager
def faultless_page(
    context: BrowserContext, *, width: int = 1280, refusals: bool = False
) -> Iterator[Page]:
    """Open a page on which nobody is signed in; `refusals`: a form may be refused (422).

    What comes up while the page closes does not count: it ends requests that are under way.

    Raises:
        AssertionError: the page complained.
    """
    context.clear_cookies()
    page = context.new_page()
    page.set_viewport_size(ViewportSize(width=width, height=900))
    page.set_default_timeout(60_000)
    complaints: list[str] = []

    def hear(said: ConsoleMessage) -> None:
        refused = refusals and "422" in said.text
        if said.type == "error" and said.text not in REPLACED and not refused:
            complaints.append(said.text)

    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", hear)
    yield page
    heard = list(complaints)
    page.close()
    assert heard == []


UNREADABLE = """() => {
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("main *, header *, footer *")) {
    const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || node.closest("svg") || !node.offsetParent) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(ground(node))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) bad.push(`${node.tagName} ${node.className} ${contrast.toFixed(2)}`);
  }
  return [...new Set(bad)];
}"""


TWICE = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return [...new Set(ids.filter((one, at) => ids.indexOf(one) !== at))];
}"""
AXE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(" ")}`);
}"""


# What is operated by itself is 44 pixels high and 24 wide; a link among other words is as the words
# are (WCAG 2.2, 2.5.8 with its exception for what stands in a sentence, and 2.5.5 for heights).
# What a chart links to is in the table beside it, too.
SMALL = """() => {
  const OWN = "a[href], button, select, textarea, summary, [role=button], input:not([type=hidden])";
  const seen = (node) => !node.disabled && !node.closest(".visually-hidden, .skip, [inert], svg")
    && node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const said = (node) => node.textContent.trim().replace(/\\s+/g, " ");
  const among = (node) => {
    let block = node.parentElement;
    while (getComputedStyle(block).display === "inline") block = block.parentElement;
    let words = said(block).length;
    for (const link of block.querySelectorAll("a")) words -= said(link).length;
    return getComputedStyle(node).display === "inline" && words > 3;
  };
  const small = [];
  for (const node of [...document.querySelectorAll(OWN)].filter(seen)) {
    const ticks = node.matches("[type=checkbox], [type=radio]") && node.labels[0];
    const { width, height } = (ticks || node).getBoundingClientRect();
    if (width <= 1 || height <= 1 || (height > 43.5 && width >= 24) || among(node)) continue;
    const text = node.getAttribute("aria-label") ?? (said(node) || node.id);
    const size = `${Math.round(width)} x ${Math.round(height)} pixels`;
    small.push(`${node.tagName} ${text.trim().slice(0, 30)} is ${size}`);
  }
  return small;
}"""


# Numbers of a chart's lines are beside what it draws, and no text of it lies on another.
OVERLAID = """() => {
  const found = [];
  const lies = (one, other) => one.left < other.right - 1 && other.left < one.right - 1
    && one.top < other.bottom - 1 && other.top < one.bottom - 1;
  const text = (node) => node.textContent.trim();
  for (const chart of document.querySelectorAll("svg.drawn-chart")) {
    if (!chart.checkVisibility()) continue;
    const boxes = (what) => [...chart.querySelectorAll(what)]
      .filter((node) => getComputedStyle(node).display !== "none")
      .map((node) => [node, node.getBoundingClientRect()]);
    const texts = boxes("text");
    const marks = boxes(".part, circle");
    for (const [at, [one, box]] of texts.entries()) {
      const others = texts.slice(at + 1).filter(([, other]) => lies(box, other));
      found.push(...others.map(([other]) => `${text(one)} lies on ${text(other)}`));
      if (one.matches(".at-value") && marks.some(([, mark]) => lies(box, mark))) {
        found.push(`${text(one)} lies on what the chart draws`);
      }
    }
  }
  return [...new Set(found)].map((one) => `in a chart, ${one}`);
}"""


# A word of a table, a list, a heading or a label is in one line; ids and checksums may
# break anywhere.
BROKEN = r"""() => {
  const found = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const at = node.parentElement;
    if (!at.closest("td, th, label, h1, h2, h3, li")) continue;
    if (at.closest(".mono, .visually-hidden, pre")) continue;
    if (!at.checkVisibility()) continue;
    // The words of a label with a day beside them are together.
    const words = at.matches("label:has(> .day)") ? /\S.*\S/gu : /[\p{L}\d]{2,}/gu;
    for (const word of node.data.matchAll(words)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const boxes = [...range.getClientRects()].filter((box) => box.width > 1);
      if (new Set(boxes.map((box) => Math.round(box.top))).size > 1) found.push(word[0]);
    }
  }
  return [...new Set(found)].map((one) => `${one} is broken`);
}"""


def small_targets(page: Page) -> list[str]:
    """Say what of a page is too small for a finger that operates it."""
    return [f"{page.url}: {one}" for one in page.evaluate(SMALL)]


def misfits(page: Page) -> list[str]:
    """Say what of a page is wider than its window, hard to read, on another, or has its name."""
    over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    wide = [f"{over} pixels wider than its window"] if over > 0 else []
    twice = [f"two have the id {one}" for one in page.evaluate(TWICE)]
    looked = (UNREADABLE, OVERLAID, BROKEN)
    every = [*wide, *twice, *(one for what in looked for one in page.evaluate(what))]
    return [f"{page.url}: {one}" for one in every]


def faults(page: Page) -> list[str]:
    """Say what axe finds on the page as it is now (WCAG 2.0 to 2.2, best practice), and misfits."""
    assert AXE.is_file(), "no node_modules/axe-core: run make setup"
    page.evaluate(AXE.read_text(encoding="utf-8"))
    return [*(f"{page.url}: {one}" for one in page.evaluate(RUN)), *misfits(page)]


def map_ready(page: Page) -> None:
    """Wait for the map of the form: before its first frame it hears no mouse."""
    expect(page.locator("[data-region-map][data-ready][data-resolution]")).to_be_attached()


def open_part(page: Page, name: str) -> None:
    """Open a part of a request's page."""
    page.get_by_role("navigation", name="Parts of the request").get_by_role(
        "link", name=name
    ).click()
