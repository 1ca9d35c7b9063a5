"""A request has the same bytes from batches of one task and of many, on both storages."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.running import COMMAND, LIMIT

pytestmark = [pytest.mark.proof, pytest.mark.integration]

SAMPLE = Path(__file__).parents[2] / "examples" / "sample.yaml"
# Runs at the start of each process of the stack: it bounds batches, and records their sizes.
BOUND = """
import os
from service_manager.dispatch import dispatch

choose = dispatch.Dispatch.choose

def recorded(self, cache, now):
    self.turns = 0  # do not divide what is ready among the slots
    self.expected = lambda task_class: 0.01  # without history each task would go alone
    chosen = choose(self, cache, now)
    with open(os.environ["BATCHES"], "a") as out:
        out.writelines(f"{len(batch)}\\n" for batch in chosen)
    return chosen

dispatch.Dispatch.choose = recorded
dispatch._BATCH = int(os.environ["BATCH"])
"""


@dataclass(frozen=True)
class Made:
    """The checksums of a run's results by name, and the largest batch that was sent."""

    results: dict[str, str]
    largest: int


def run(folder: Path, archive: Path, storage: str, batch: int) -> Made:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BOUND)
    sizes, out = folder / "batches", folder / "out"
    more = {"PYTHONPATH": str(folder), "BATCH": str(batch), "BATCHES": str(sizes)}
    words = ["run", str(SAMPLE), "--archive", str(archive), "--out", str(out)]
    done = subprocess.run(
        [*COMMAND, *words, "--data", str(folder / "data"), "--storage", storage],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = json.loads((out / "summary.json").read_text())["files"]
    return Made(
        results={file["name"]: file["sha256"] for file in files},
        largest=max(int(size) for size in sizes.read_text().split()),
    )


def test_bytes_do_not_depend_on_batches_or_storage(tmp_path: Path, sample_archive: Path) -> None:
    alone = run(tmp_path / "alone", sample_archive, "embedded", 1)
    assert alone.largest == 1
    assert any(name.endswith(".tif") for name in alone.results)
    for storage, batch in (("embedded", 20), ("azurite", 1), ("azurite", 20)):
        made = run(tmp_path / f"{storage}-{batch}", sample_archive, storage, batch)
        assert (made.largest > 1) == (batch > 1)
        assert made.results == alone.results, f"batches of {batch} on {storage}"
