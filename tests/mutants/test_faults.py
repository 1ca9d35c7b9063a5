"""The listed faults fit the code and the documentation, and a sample of them is seen."""

import re
import subprocess
import sys

import pytest

from tests.mutants.faults import ROOT, load_faults

FAULTS = load_faults()


def test_each_fault_fits_the_code_and_says_who_sees_it() -> None:
    assert [text for fault in FAULTS if (text := fault.stale())] == []
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) > 200
    for fault in FAULTS:
        assert bool(fault.test) is not bool(fault.equivalent), fault.what
        assert not fault.test or (ROOT / fault.test.partition("::")[0]).is_file(), fault.what


def test_the_page_of_what_enforces_what_names_listed_faults() -> None:
    page = re.sub(r"\s+", " ", (ROOT / "docs/invariants.md").read_text("utf-8"))
    named = set(re.findall("“(.+?)”", page))
    assert len(named) > 40
    assert named - {fault.what for fault in FAULTS} == set()


@pytest.mark.slow
def test_a_sample_of_the_faults_is_seen() -> None:
    """`make mutants` tries all."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.run", "--every", "12"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
