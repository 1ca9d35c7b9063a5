"""What differs between a raster and the one made again, at the bounds of what is told."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from swathmill.commands.remake import differences


@pytest.mark.parametrize(("count", "last"), [(20, "line 19"), (22, "and 2 more")])
def test_the_first_differences_are_told_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch, count: int, last: str
) -> None:
    monkeypatch.setattr(differences, "read_raster", Mock())
    monkeypatch.setattr(differences, "_pixels", lambda *_: [f"line {n}" for n in range(count)])
    monkeypatch.setattr(differences, "_said", lambda *_: [])
    told = differences.differences(Path("a"), Path("b"))
    assert (told[differences._MOST - 1], told[-1]) == ("line 19", last)


def test_a_long_value_is_cut() -> None:
    fits = "x" * (differences._LONGEST - 2)  # and two quotes
    assert differences._short(fits) == repr(fits)
    assert differences._short(fits + "x") == f"'{fits}x..."
