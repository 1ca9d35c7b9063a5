"""`swathmill doctor` says where strangers' files are read without confinement."""

import pytest

from swathmill.diagnosis import Verdict, reading_finding
from worker.sandbox import makers


def test_doctor_says_where_strangers_files_are_not_confined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(makers, "can_shut_in", lambda: True)
    assert reading_finding().verdict is Verdict.GOOD
    monkeypatch.setattr(makers, "can_shut_in", lambda: False)
    found = reading_finding()
    assert found.verdict is Verdict.NOTE
    for words in ("granules are read without", "Landlock", "uploads of rasters", "regions"):
        assert words in found.found
    assert "only from whom you trust" in found.remedy
