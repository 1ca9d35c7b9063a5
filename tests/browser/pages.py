"""Pages of a test on which no error may come up: not in scripts, not by the policy."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, ViewportSize

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
