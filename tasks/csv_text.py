"""Cells of CSV that a spreadsheet takes as what they are.

A spreadsheet runs a text that begins like a formula. Such a text gets an apostrophe before it,
which spreadsheets do not show (OWASP, "CSV Injection"). Numbers stay as they are. Files for
programs (Parquet, JSON) hold all texts unchanged.
"""

import re

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
# Numbers, and offsets from UTC.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]\d{2}:\d{2}")


def cell(value: object) -> object:
    """Return what to write for a value: a text that would run gets an apostrophe before it."""
    return text_cell(value) if isinstance(value, str) else value


def text_cell(text: str) -> str:
    """Return what to write for a text."""
    runs = text.lstrip(" ").startswith(_FORMULA) and not _NUMBER.fullmatch(text)
    return f"'{text}" if runs else text
