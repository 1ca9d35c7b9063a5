"""The codec of rows: what is stored of a value, and what rows of other builds become."""

from dataclasses import dataclass, field

import pytest

from tasks.bag.model import Phase, TaskOutcome
from tasks.storage import schema
from tasks.storage.codec import BITS, Codec, Form, cut, in_json, up_to_a_word
from tasks.storage.schema import SCHEMA, OtherSchemaError
from tasks.storage.store import Entity, Row


@dataclass(frozen=True, kw_only=True)
class Thing:
    key: str
    phase: Phase
    outcome: TaskOutcome | None = None
    bits: int = 0
    seconds: float = 0.0
    text: str = ""
    sparse: bool = False
    counts: dict[Phase, int] = field(default_factory=dict)
    etag: str = field(default="", compare=False)


def row_key(row: Row) -> str:
    return row.row


THING = Codec(
    Thing,
    "thing",
    {
        "bits": BITS,
        "text": cut(3),
        "sparse": Form(sparse=True),
        "counts": in_json(dict[Phase, int]),
    },
    apart={"key": row_key},
)


def row(entity: Entity) -> Row:
    return Row(partition="p", row="k", entity=entity, etag="e")


def test_a_value_is_stored_in_plain_types() -> None:
    thing = Thing(key="k", phase=Phase.COLLECTION, outcome=TaskOutcome.GAP, bits=2**70, text="long")
    stored = THING.dump(thing)
    assert stored == {
        "schema": SCHEMA,
        "phase": "collection",
        "outcome": "gap",
        "bits": "400000000000000000",
        "text": "lon",
    }
    assert {type(value) for value in stored.values()} == {int, str}
    assert THING.dump(Thing(key="k", phase=Phase.REDUCTION, sparse=True))["sparse"] is True


def test_the_build_before_gets_rows_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema._Written, "number", schema.BRIEF_ROWS - 1)
    thing = Thing(key="k", phase=Phase.COLLECTION)
    assert THING.dump(thing) == {
        "schema": schema.BRIEF_ROWS - 1,
        "phase": "collection",
        "outcome": "",
        "bits": "0",
        "seconds": 0.0,
        "text": "",
        "counts": "{}",
    }


def test_what_a_row_key_says_is_stored_for_the_build_before_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec = Codec(Thing, "thing", {"counts": in_json(dict[Phase, int])}, named={"key": row_key})
    thing = Thing(key="k", phase=Phase.COLLECTION)
    brief = codec.dump(thing)
    assert brief == {"schema": SCHEMA, "phase": "collection"}
    monkeypatch.setattr(schema._Written, "number", schema.BRIEF_ROWS - 1)
    full = codec.dump(thing)
    assert full["key"] == "k"
    assert codec.load(row(brief)) == codec.load(row(full)) == thing


def test_a_row_comes_back_with_its_name_and_etag() -> None:
    thing = Thing(key="k", phase=Phase.REDUCTION, counts={Phase.COLLECTION: 2}, sparse=True)
    found = THING.load(row(THING.dump(thing)))
    assert found == thing
    assert (found.etag, type(found.phase)) == ("e", Phase)


def test_what_a_row_lacks_has_its_default_and_what_is_unknown_is_left_out() -> None:
    found = THING.load(row({"schema": SCHEMA, "phase": "reduction", "seconds": 3, "other": 1}))
    assert found == Thing(key="k", phase=Phase.REDUCTION, seconds=3.0)
    assert type(found.seconds) is float


@pytest.mark.parametrize("entity", [{"schema": SCHEMA}, {"schema": SCHEMA, "phase": "another"}])
def test_a_row_without_what_it_must_have_is_refused(entity: Entity) -> None:
    with pytest.raises(KeyError):
        THING.load(row(entity))


def test_a_row_of_a_newer_build_is_refused() -> None:
    with pytest.raises(OtherSchemaError):
        THING.load(row({"schema": SCHEMA + 1, "phase": "reduction"}))


def test_a_class_that_changes_itself_when_it_is_made_has_no_codec() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Checked:
        name: str

        def __post_init__(self) -> None:
            raise AssertionError

    with pytest.raises(TypeError, match="Checked has a __post_init__"):
        Codec(Checked, "checked")


def test_a_long_note_ends_after_a_word() -> None:
    text = "one two three"
    assert [up_to_a_word(text, most) for most in (13, 12, 9, 8, 5)] == [
        text,
        "one two…",
        "one two…",
        "one…",
        "one…",
    ]
    assert up_to_a_word("unbroken", 5) == "unbr…"
