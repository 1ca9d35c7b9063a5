"""Answers of readers are plain values: each kind comes back as it was, and no text runs."""

import builtins
import json
import math
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pytest

from modis.collection import Collection
from processes.plain_answers import BadAnswerError, dump, load
from reprojection.catalogue.layers import LayerKind
from reprojection.catalogue.user_raster import RasterLayer
from reprojection.errors import PointingFileError, UnknownLayerError
from reprojection.explain.origins import PixelOrigin, Quality
from reprojection.read.granule_layer import Found
from reprojection.read.qa import Reason

ORIGIN = PixelOrigin(
    granule="a",
    row=1,
    column=2,
    stored=3.5,
    reason="",
    quality=(Quality(layer="q", stored=3, fields=()),),
)
VALUES = [
    None,
    True,
    2**70,
    -0.5,
    math.inf,
    "a\udcff\u202e",
    b"\x00\xff",
    [1, (2, {3}), frozenset("a")],
    {1: "one", ("a", 1): [None], Path("/a"): date(2012, 3, 1)},
    datetime(2012, 3, 1, 4, 5, 6, 7, UTC),
    datetime(2012, 3, 1, 4, 5),
    Collection("061"),
    LayerKind.CLASS,
    Reason(1),
    ORIGIN,
    RasterLayer(name="a", dtype="u1", kind=LayerKind.CLASS, classes={1: "water"}),
    ("tuple", [1]),
    ["tuple", [1]],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    found = load(dump(value))
    assert found == value
    assert type(found) is type(value)


def test_numbers_of_numpy_come_back_as_pythons() -> None:
    found = load(
        dump([np.float64(1.5), np.int16(3), np.bool_(True), np.float32(0.25), np.str_("a")])
    )
    assert found == [1.5, 3, True, 0.25, "a"]
    assert isinstance(found, list)
    assert [type(one) for one in found] == [float, int, bool, float, str]


@pytest.mark.parametrize(
    "error",
    [
        UnknownLayerError("a", ["b", "c"], "d"),
        PointingFileError("a.hdf", "layer b"),
        FileNotFoundError(2, "No such file", "a"),
        ValueError("a", 1),
        KeyError("a"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_back_as_it_was(error: Exception) -> None:
    found = load(dump(error))
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert isinstance(found, Exception)
    assert {**vars(found)} == {**vars(error)}


def test_an_error_of_others_comes_back_as_the_next_that_python_has() -> None:
    class OwnError(MemoryError):
        pass

    found = load(dump(OwnError("much", object)))
    assert type(found) is MemoryError
    assert "much" in str(found)


def test_what_is_no_plain_value_is_not_written() -> None:
    with pytest.raises(TypeError, match="function is not written"):
        dump([dump])


def hostile(*said: object) -> bytes:
    return json.dumps(said).encode()


HOSTILE = {
    "a function": hostile("record", "os", "system", {"command": "id"}),
    "a function as an error": hostile("error", "builtins", "eval", ["1"], {}),
    "a class of another": hostile("error", "subprocess", "CalledProcessError", [1, "a"], {}),
    "an end of the process": hostile("error", "builtins", "SystemExit", [3], {}),
    "a stop": hostile("error", "builtins", "KeyboardInterrupt", [], {}),
    "a class as a record": hostile("record", "pathlib", "Path", {}),
    "what a module of ours imports": hostile("record", "processes.plain_answers", "Path", {}),
    "a function of ours": hostile("record", "reprojection.isolation", "run_in_fork", {}),
    "a class of ours that is no record": hostile(
        "record", "reprojection.isolation", "ReadingProcess", {}
    ),
    "a class of ours as a text": hostile("text", "reprojection.isolation", "ReadingProcess", "a"),
    "a command": hostile("record", "swathmill.__main__", "main", {}),
    "other fields": hostile(
        "record", "reprojection.explain.origins", "Quality", {"layer": "a", "__class__": "b"}
    ),
    "fewer fields": hostile("record", "reprojection.explain.origins", "Quality", {"layer": "a"}),
    "no such module": hostile("enum", "reprojection.nothing", "A", 1),
    "no such name": hostile("enum", "reprojection.errors", "A", 1),
    "no member": hostile("enum", "reprojection.catalogue.layers", "LayerKind", "a"),
    "a model that breaks its rules": hostile(
        "model", "reprojection.catalogue.user_raster", "RasterLayer", {"name": 1}
    ),
    "no kind": b"[]",
    "no text": b"\x80\x04",
    "an unknown kind": hostile("call", "reprojection.errors", "GridError", []),
    "deep": b"[" * 100_000,
    "deep of a kind": b'["list",[' * 20_000 + b"]]" * 20_000,
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_such_value_is_refused(said: bytes) -> None:
    with pytest.raises(BadAnswerError):
        load(said)


def test_nothing_is_imported_that_is_not_ours() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(BadAnswerError):
        load(hostile("record", "antigravity", "webbrowser", {}))
    assert "antigravity" not in sys.modules


def test_nothing_is_imported_that_acts_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module uses all libraries, and freezes what is in memory."""
    monkeypatch.delitem(sys.modules, "worker.slots.frozen", raising=False)
    with pytest.raises(BadAnswerError):
        load(hostile("record", "worker.slots.frozen", "A", {}))
    assert "worker.slots.frozen" not in sys.modules


def test_a_record_is_made_without_its_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise AssertionError

    said = dump((ORIGIN, UnknownLayerError("a", [])))
    for one in (PixelOrigin, Quality, UnknownLayerError):
        monkeypatch.setattr(one, "__init__", stop)
    assert isinstance(load(said), tuple)
    assert builtins.eval is eval


def test_a_named_tuple_comes_back_as_it_was() -> None:
    value = Found(*range(len(Found._fields)))
    found = load(dump(value))
    assert found == value
    assert type(found) is Found
