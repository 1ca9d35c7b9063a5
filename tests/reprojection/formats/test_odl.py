"""The ODL parser: what is written is read, and damage is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprojection.errors import UnreadableGranuleError
from reprojection.formats import odl

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: name.upper() not in {"GROUP", "OBJECT", "END", "END_GROUP", "END_OBJECT"}
)
TEXTS = st.text(
    st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"'), max_size=20
)
SCALARS = st.one_of(
    TEXTS, st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, min_size=1, max_size=4).map(tuple))


@st.composite
def nodes(draw: st.DrawFn, depth: int = 3) -> odl.Node:
    node = odl.Node(name=draw(NAMES))
    node.values = draw(st.dictionaries(NAMES, VALUES, max_size=3))
    if depth:
        node.children = draw(st.lists(nodes(depth=depth - 1), max_size=2))
    return node


def spell(value: odl.Value) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(spell, value))})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def write(node: odl.Node, depth: int = 0) -> list[str]:
    pad = "\t" * depth
    lines = [f"{pad}GROUP={node.name}"]
    lines += [f"{pad}{key} = {spell(value)}" for key, value in node.values.items()]
    for child in node.children:
        lines += write(child, depth + 1)
    return [*lines, f"{pad}END_GROUP={node.name}"]


@pytest.mark.slow
@given(nodes())
def test_what_is_written_is_read(node: odl.Node) -> None:
    text = "\n".join([*write(node), "END", "text after the end, ("])
    assert odl.parse(text).children == [node]


@pytest.mark.slow
@given(nodes(), st.data())
def test_a_cut_text_is_read_or_named_damaged(node: odl.Node, data: st.DataObject) -> None:
    text = "\n".join(write(node))
    cut = data.draw(st.integers(0, len(text) - 1))
    try:
        children = odl.parse(text[:cut]).children
    except UnreadableGranuleError:
        return
    # Only a cut before the first group or after the last leaves nothing open.
    assert [child.name for child in children] in ([], [node.name])


@given(st.text(max_size=400))
def test_any_text_is_read_or_named_damaged(text: str) -> None:
    try:
        odl.parse(text)
    except UnreadableGranuleError:
        return


def test_values_may_span_lines_and_hold_commas_and_brackets() -> None:
    root = odl.parse('A = ("one, (1)",\n     "two", 3,\n     4.5)\nB = "runs\non"\nC=DFNT_INT16\n')
    assert root.values == {"A": ("one, (1)", "two", 3, 4.5), "B": "runs on", "C": "DFNT_INT16"}


def test_padding_is_ignored() -> None:
    assert odl.parse("GROUP=A\nEND_GROUP=A\nEND\n" + "\0" * 500).children[0].name == "A"


@pytest.mark.parametrize(
    "text",
    ["GROUP=A\nEND_GROUP=B", "END_GROUP=A", "GROUP=A", 'A="open', "A=(1,2", "GROUP=A\n" * 40],
)
def test_damage_is_named(text: str) -> None:
    with pytest.raises(UnreadableGranuleError):
        odl.parse(text)


def test_groups_nest_so_many_levels() -> None:
    def nested(levels: int) -> str:
        begun = "".join(f"GROUP=G{n}\n" for n in range(levels))
        return begun + "".join(f"END_GROUP=G{n}\n" for n in reversed(range(levels)))

    assert odl.MAX_DEPTH == 32
    assert odl.parse(nested(32)).children
    with pytest.raises(UnreadableGranuleError, match="nest deeper than 32 groups at 'G32'"):
        odl.parse(nested(33))
