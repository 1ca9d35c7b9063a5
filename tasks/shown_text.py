"""Text of strangers as people are shown it: nothing in it acts on a terminal, a page or a reader.

Titles, names, messages, and what programs print come from outside. Control characters (C0, C1),
marks of direction, characters without width, private, unassigned and half code points are shown as
escapes, such as `\\x9b` or `\\u202e`. All else stays, in any script. This is done where text
leaves: on pages (`portal/serving/pages.py`), in mails, on terminals, in logs of attempts.
"""

import json
import unicodedata

_SPACES = "Zs"  # spaces of all widths, which Python does not count as printable


def shown(text: str) -> str:
    """Return a text in which lines and tabs are kept and all else that cannot be seen is escaped.

    The ends of lines are those of Unix; those of Windows are made like them.
    """
    if text.isprintable():
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(_escaped(part) for part in line.split("\t")) for line in lines)


def in_one_line(text: str) -> str:
    """Return a text as one line: ends of lines, tabs and runs of spaces are one space."""
    return shown(" ".join(text.split()))


def shown_in_json(text: str) -> str:
    """Return JSON of the same values in which what cannot be seen is written as JSON's escapes."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or _is_seen(c) else json.dumps(c)[1:-1] for c in text)


def _is_seen(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == _SPACES


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(map(_one, text))


def _one(character: str) -> str:
    if _is_seen(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else ascii(character)[1:-1]
