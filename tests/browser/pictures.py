"""Take pictures of all pages in all states: `python -m tests.browser.pictures FOLDER`.

In light and dark, 360 to 1600 pixels wide, each as PART/STATE.THEME-WIDTH.png, whole pages; and
for each theme and width a sheet with all of them, reduced, as `sheet-THEME-WIDTH.html`.
"""

import argparse
import html
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Error

from reprojection.sample.sample import write_sample_archive
from tests.browser.conftest import launched
from tests.browser.gallery import STATES, Theme, World, browsing, world

WIDTHS = (360, 768, 1280, 1600)
THEMES: tuple[Theme, ...] = ("light", "dark")
_SHEET = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body{{font:14px sans-serif}}figure{{display:inline-block;vertical-align:top;margin:8px}}
img{{width:{width}px;max-height:900px;object-fit:cover;object-position:top}}</style>{figures}"""


def main() -> None:
    """Take the pictures that the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="states whose PART/STATE contains this")
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--themes", nargs="*", choices=THEMES, default=THEMES)
    meant = parser.parse_args()
    with TemporaryDirectory() as scratch:
        archive = Path(scratch) / "archive"
        write_sample_archive(archive)
        with launched() as browser, world(Path(scratch), archive) as made:
            for theme in meant.themes:
                for width in meant.widths:
                    take(browser, made, theme, width, meant.folder, meant.only)


def take(
    browser: Browser, made: World, theme: Theme, width: int, folder: Path, only: str = ""
) -> None:
    """Take the pictures of one theme and width, and make their sheet."""
    taken: list[Path] = []
    with browsing(browser, made, theme, width) as opened:
        for part, states in STATES.items():
            for state in states:
                if only not in f"{part}/{state.name}":
                    continue
                path = folder / part / f"{state.name}.{theme}-{width}.png"
                try:
                    page = opened(state)
                except (AssertionError, Error) as error:
                    sys.stderr.write(f"not reached: {path}: {str(error).splitlines()[0]}\n")
                    continue
                page.screenshot(path=path, full_page=True)
                page.close()
                taken.append(path.relative_to(folder))
    figures = "".join(
        f'<figure><a href="{html.escape(str(one))}"><img loading="lazy" src="{one}"></a>'
        f"<figcaption>{html.escape(str(one.with_suffix('').with_suffix('')))}</figcaption></figure>"
        for one in taken
    )
    title = f"{theme}, {width} pixels"
    sheet = _SHEET.format(title=title, width=180 if width < 500 else 320, figures=figures)
    (folder / f"sheet-{theme}-{width}.html").write_text(sheet, "utf-8")


if __name__ == "__main__":
    main()
