"""Settings of the documentation's site, which `make docs` builds into build/docs."""

import re

import typer
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from typer.cli import get_docs_for_click

from swathmill.cli import application

project = "Swathmill"
copyright = "the Swathmill developers; Apache License 2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Links to headings of other pages work as they do where the sources are read.
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

# Docstrings name code in single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"exclude-members": "model_config"}
add_module_names = False
python_maximum_signature_line_length = 80

html_theme = "furo"
html_title = "Swathmill"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False

COMMANDS = "<!-- commands -->"
_FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^>]*>")


def setup(app: Sphinx) -> None:
    """Connect what is generated, and the check of what the pages fetch."""
    app.connect("source-read", _put_commands)
    app.connect("build-finished", _check_fetched)


def _put_commands(_: Sphinx, page: str, source: list[str]) -> None:
    """Put the commands into their page, as the command's own parser describes them."""
    if page != "command":
        return
    if COMMANDS not in source[0]:
        raise ExtensionError(f"docs/command.md has no line {COMMANDS}")
    command = typer.main.get_command(application())
    context = typer.Context(command, info_name="swathmill")
    text = get_docs_for_click(obj=command, ctx=context, name="swathmill")
    # Up to its list of commands the text repeats the page; the sections of the commands follow.
    source[0] = source[0].replace(COMMANDS, text[text.index("\n## ") :])


def _check_fetched(app: Sphinx, error: Exception | None) -> None:
    """Refuse pages that fetch a script, a style sheet or a picture from elsewhere."""
    for page in [] if error else sorted(app.outdir.glob("**/*.html")):
        if found := _FETCHED.search(page.read_text("utf-8")):
            raise ExtensionError(f"{page.name} fetches from elsewhere: {found[0]}")
