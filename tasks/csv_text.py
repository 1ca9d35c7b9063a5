"""Cells of CSV that a spreadsheet takes as what they are.

A spreadsheet runs a text that begins like a formula. Such a text gets an apostrophe before it,
which spreadsheets do not show (OWASP, "CSV Injection"). Numbers stay as they are. Files for
programs (Parquet, JSON) hold all texts unchanged.
"""

import re
import unicodedata

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_DROPPED = ("Zs", "Zl", "Zp", "Cc", "Cf")
# Numbers, and offsets from UTC.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]\d{2}:\d{2}")


def cell(value: object) -> object:
    """Return what to write for a value: a text that would run gets an apostrophe before it."""
    return text_cell(value) if isinstance(value, str) else value


def _begun(text: str) -> str:
    """Return a text without what is dropped before it: spaces, and what nobody sees."""
    for place, character in enumerate(text):
        if character in _FORMULA or unicodedata.category(character) not in _DROPPED:
            return text[place:]
    return ""


def text_cell(text: str) -> str:
    """Return what to write for a text."""
    runs = _begun(text).startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{text}" if runs else text


def text_of_cell(written: str) -> str:
    """Return the text that a cell stands for: what `text_cell` was given."""
    text = written.removeprefix("'")
    return text if text_cell(text) == written else written
