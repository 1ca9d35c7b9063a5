"""The text of a file that a person gives: UTF-8, or what its byte order mark says."""

import codecs
import re

_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_BEFORE_WORD = re.compile(rb"[^\s,;:\"'{}\[\]]*$")
_AFTER_WORD = re.compile(rb"^[^\s,;:\"'{}\[\]]*")
_MOST = 40  # bytes of a word on each side


class NotUtf8Error(ValueError):
    """A text is in another encoding; the message names line and word, and says what to do."""


def decoded(data: bytes) -> str:
    """Decode a text in UTF-8, or in UTF-16 or UTF-32 with a byte order mark; lines end with `\\n`.

    PowerShell and spreadsheets write UTF-16 with a mark.

    Raises:
        NotUtf8Error: it is in none of these, as a text in Windows-1252.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        if not encoding.startswith("utf-8"):
            raise NotUtf8Error(
                f"it begins as {encoding.upper()} and is not: byte {error.start:,} is part of no "
                "character; save it as UTF-8"
            ) from None
        if b"\0" in data:
            raise NotUtf8Error("it is no text; give one in UTF-8") from None
        line = data.count(b"\n", 0, error.start) + 1
        before = _BEFORE_WORD.search(data[max(0, error.start - _MOST) : error.start])
        after = _AFTER_WORD.search(data[error.start : error.start + _MOST])
        word = (before[0] if before else b"") + (after[0] if after else b"")
        raise NotUtf8Error(
            f"line {line} is not UTF-8, at {word.decode('cp1252', 'replace')!r} (as Windows-1252 "
            "has it); save it as UTF-8, which editors and spreadsheets offer when they save"
        ) from None
