"""The guide's table of successors is that of the records' files."""

from collections.abc import Iterator
from pathlib import Path

from reprojection.records import records

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "from-modis-to-viirs.md"
BEGIN, END = "<!-- records -->\n", "<!-- end of records -->\n"


def table() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| record | layers | products, collection | `qa` |"
    yield "|---|---|---|---|"
    for one in sorted(records().values(), key=lambda one: one.name):
        members = ", ".join(f"{m.product} {m.collection}" for m in one.members)
        rules = sorted({word for layer in one.layers for word in one.rules(layer)})
        yield (
            f"| `{one.name}`: {one.title[0].lower()}{one.title[1:]} "
            f"| {', '.join(f'`{layer}`' for layer in one.layers)} | {members} "
            f"| {', '.join(rules) or 'none that all have'} |"
        )


def test_the_table_of_successors_is_that_of_the_files() -> None:
    text = GUIDE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    there, _, after = rest.partition(END)
    made = f"\n{chr(10).join(table())}\n\n"
    assert before
    assert after
    assert there == made, f"put this into {GUIDE.name}:\n{made}"
