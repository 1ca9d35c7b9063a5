"""Parse ODL, the text format of HDF-EOS's structure and inventory metadata.

Format: "HDF-EOS Library Users Guide", volume 1, appendix on structural metadata; the PDS Standards
Reference, chapter 12, describes ODL itself. Only what HDF-EOS writes is accepted: nested
`GROUP`/`OBJECT`, and `KEY = VALUE` with a string, a number, a bare word or a tuple.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from reprojection.errors import UnreadableGranuleError

Scalar = str | int | float
Value = Scalar | tuple[Scalar, ...]

MAX_DEPTH = 32  # real files nest 6 deep; keeps a hostile file from exhausting the stack
_KNOWN = 16  # texts: granules of a product have one and the same structure


@dataclass(kw_only=True)
class Node:
    """A `GROUP` or an `OBJECT`: its own values and the nodes inside it, in file order."""

    name: str
    values: dict[str, Value] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)

    def child(self, name: str) -> "Node | None":
        """Find the first direct child of that name."""
        return next((node for node in self.children if node.name == name), None)

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it, depth first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def find(self, name: str) -> "Node | None":
        """Find the first node of that name at any depth, ignoring case."""
        wanted = name.upper()
        return next((node for node in self.walk() if node.name.upper() == wanted), None)


@lru_cache(maxsize=_KNOWN)
def parse(text: str) -> Node:
    """Parse ODL text into a tree whose root has no name.

    The tree of a text seen lately is handed out again: callers must not change it. Text after a
    line `END`, and NUL padding, are ignored. Raises UnreadableGranuleError if groups
    do not nest, a tuple or string does not end, or nesting is deeper than MAX_DEPTH.
    """
    root = Node(name="")
    stack = [root]
    lines = iter(text.replace("\0", "\n").splitlines())
    for line in lines:
        before, equals, after = line.partition("=")
        key, raw = before.strip(), after.strip()
        if key == "END" and not equals:
            break
        # Most values are words, numbers and whole strings, in which nothing can be open.
        if "(" in raw or raw.count('"') % 2:
            raw = _rest(key, raw, lines)
        word = key.upper()
        if word in ("GROUP", "OBJECT") and equals:
            node = Node(name=_unquote(raw))
            stack[-1].children.append(node)
            stack.append(node)
            if len(stack) > MAX_DEPTH + 1:  # with the root
                raise UnreadableGranuleError(
                    f"metadata nest deeper than {MAX_DEPTH} groups at {node.name!r}: damaged file"
                )
        elif word in ("END_GROUP", "END_OBJECT"):
            if len(stack) == 1 or (raw and _unquote(raw) != stack[-1].name):
                raise UnreadableGranuleError(
                    f"metadata {key}={raw!r} closes a group that is not open: damaged file"
                )
            stack.pop()
        elif equals:
            stack[-1].values[key] = _value(raw)
    if len(stack) != 1:
        raise UnreadableGranuleError(
            f"metadata end inside group {stack[-1].name!r}: the file is truncated"
        )
    return root


def _rest(key: str, raw: str, lines: Iterator[str]) -> str:
    """Join a value's first line with the lines up to its end."""
    pieces = [raw]
    balance = _Balance()
    balance.feed(raw)
    while balance.open:
        following = next(lines, None)
        if following is None:
            raise UnreadableGranuleError(
                f"metadata value of {key!r} does not end: the file is truncated"
            )
        pieces.append(following.strip())
        balance.feed(pieces[-1])
    return " ".join(pieces)


class _Balance:
    """Tracks whether a value is inside quotes or parentheses after the text fed so far."""

    def __init__(self) -> None:
        self._quoted = False
        self._depth = 0

    def feed(self, text: str) -> None:
        for char in text:
            if char == '"':
                self._quoted = not self._quoted
            elif not self._quoted and char == "(":
                self._depth += 1
            elif not self._quoted and char == ")":
                self._depth -= 1

    @property
    def open(self) -> bool:
        return self._quoted or self._depth > 0


def _unquote(raw: str) -> str:
    if len(raw) >= 2 and raw[0] == raw[-1] == '"':
        return raw[1:-1]
    return raw


def _value(raw: str) -> Value:
    if raw.startswith("(") and raw.endswith(")"):
        return tuple([_scalar(item) for item in _items(raw[1:-1])])
    return _scalar(raw)


def _items(text: str) -> Iterator[str]:
    if '"' not in text:
        *items, last = (item.strip() for item in text.split(","))
        yield from items
        if last:
            yield last
        return
    item: list[str] = []
    quoted = False
    for char in text:
        if char == '"':
            quoted = not quoted
        if char == "," and not quoted:
            yield "".join(item).strip()
            item = []
        else:
            item.append(char)
    last = "".join(item).strip()
    if last:
        yield last


_NUMBER_LETTERS = "iInN"
"""The first letters of numbers that are words: inf, nan."""


def _scalar(raw: str) -> Scalar:
    if raw.startswith('"'):
        return _unquote(raw)
    if raw[:1].isalpha() and raw[0] not in _NUMBER_LETTERS:
        return raw
    for kind in (int, float):
        # int() would accept "1_000" and non-ASCII digits, which are not numbers in HDF-EOS files.
        if raw.isascii() and "_" not in raw:
            try:
                return kind(raw)
            except ValueError:
                continue
    return raw
