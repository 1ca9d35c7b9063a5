"""A mail's text as HTML: the same words, with headings, lists and links.

The text is the one place where a mail's content is written; `mail_text` and the portal's sign-in
mail lay it out in paragraphs, in lists under a line that ends with a colon, and in links, each on a
line of its own.
"""

import re
from dataclasses import dataclass, field
from html import escape

_LINK = re.compile(r"https?://\S+")
_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 1rem auto }}
body {{ overflow-wrap: anywhere }}
h2 {{ font-size: 1rem; margin: 1.5rem 0 .25rem }}
ul {{ margin: 0; padding-left: 1.25rem }}
li {{ margin: .25rem 0 }}
img {{ max-width: 100%; height: auto }}
</style></head><body>
{body}
</body></html>
"""
_PICTURE = '<p><img src="cid:{cid}" alt="{alt}"><br><small>{alt}</small></p>'


@dataclass(frozen=True, kw_only=True)
class _Item:
    said: list[str]
    examples: list[str] = field(default_factory=list)
    then: list[str] = field(default_factory=list)  # after the examples

    def html(self) -> str:
        examples = "".join(f"<li>{escape(one)}</li>" for one in self.examples)
        nested = f"<ul>{examples}</ul>" if examples else ""
        return f"{escape(' '.join(self.said))}{nested}{escape(' '.join(self.then))}"


def to_html(text: str, picture: str = "", alt: str = "") -> str:
    """Return a mail's text as an HTML document.

    `picture` is the Content-ID of a picture that is sent with it, shown after the first paragraph;
    `alt` says what it shows.
    """
    first, *others = (block for block in re.split(r"\n\n+", text.strip("\n")) if block.strip())
    parts = [_block(first)]
    if picture:
        parts.append(_PICTURE.format(cid=escape(picture), alt=escape(alt)))
    return _PAGE.format(body="\n".join([*parts, *map(_block, others)]))


def _block(block: str) -> str:
    head, *lines = block.split("\n")
    is_list = head.endswith(":") and lines and all(line.startswith("  ") for line in lines)
    if is_list and not _LINK.fullmatch(lines[0].strip()):
        items = "\n".join(f"<li>{item.html()}</li>" for item in _items(lines))
        return f"<h2>{escape(head.removesuffix(':'))}</h2>\n<ul>\n{items}\n</ul>"
    return f"<p>{_lines(block)}</p>"


def _items(lines: list[str]) -> list[_Item]:
    """Part a list into its items.

    An item begins two spaces into the line and an example with "    - "; an example goes on further
    in, the item before and after its examples four spaces in.
    """
    items: list[_Item] = []
    for line in lines:
        deep = len(line) - len(line.lstrip())
        text = " ".join(line.split())
        if deep == 2 or not items:
            items.append(_Item(said=[text]))
        elif line.startswith("    - "):
            items[-1].examples.append(text.removeprefix("- "))
        elif deep > 4 and items[-1].examples:
            items[-1].examples[-1] += f" {text}"
        else:
            (items[-1].then if items[-1].examples else items[-1].said).append(text)
    return items


def _lines(block: str) -> str:
    """Return a paragraph's lines; a link stands on its own, by its address without its token."""
    said = []
    for line in block.split("\n"):
        text = line.strip()
        if _LINK.fullmatch(text):
            shown = escape(text.partition("?")[0])
            said.append(f'<br><a href="{escape(text)}">{shown}</a><br>')
        else:
            said.append(escape(text))
    return " ".join(said).removesuffix("<br>")
