"""The lists of proofs and measurements name modules and files that are there."""

import importlib.util
from pathlib import Path

import pytest

from bench.__main__ import MEASUREMENTS
from tests import proofs
from tests.proofs import PROOFS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", PROOFS)
def test_a_proof_names_what_is_there(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for need in PROOFS[name].needs:
        assert f"$(STAMP)/{need}:" in makefile
    for command in PROOFS[name].commands:
        module = command[command.index("-m") + 1] if "-m" in command else "sys"
        assert importlib.util.find_spec(module), module
        for word in command:
            assert not word.endswith((".py", ".sh")) or (ROOT / word).is_file(), word


@pytest.mark.parametrize("module", [m for one in MEASUREMENTS.values() for m in one.modules])
def test_a_measurement_names_a_module(module: str) -> None:
    assert importlib.util.find_spec(module)


def test_the_engine_may_have_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = tmp_path / "given"
    engine = tmp_path / "engine"
    engine.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{given}\n')
    engine.chmod(0o755)
    monkeypatch.setenv("SWATHMILL_TEST_ENGINE", f"{engine} --runtime runc")
    monkeypatch.setenv("SWATHMILL_TEST_BUILD", "--network host")
    assert proofs._make_image() == 0
    words = ["--runtime", "runc", "build", "--network", "host"]
    assert given.read_text().split()[: len(words)] == words
