"""The notebooks of the documentation, run on the sample archive."""

import gc
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from reprojection.read import kept
from tasks.request.request_file import load_request
from tasks.request.resolved import resolve

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(ROOT.glob("docs/notebooks/*.ipynb"))


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    document = json.loads(notebook.read_text("utf-8"))
    assert document["nbformat"] == 4
    return list(document["cells"])


def run(notebook: Path, archive: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the cells of a notebook, one after another, as Jupyter does, in a folder of its own."""
    (folder / "archive").symlink_to(archive)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    with mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(cells_of(notebook)):
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{notebook.name}[{number}]", "exec")
                exec(code, names)
        plt.close("all")
    # What the datasets keep of their granules goes with them.
    names.clear()
    gc.collect()
    assert kept._STORE._keepings == []
    pictures = list(folder.glob("*.png"))
    assert pictures
    assert all(picture.stat().st_size > 5000 for picture in pictures)
    (document,) = folder.glob("*.yaml")
    request = load_request(document)
    assert request.title
    assert resolve(request).target.grid.width > 1


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_notebook_runs(
    notebook: Path, sample_archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(notebook, sample_archive, tmp_path, monkeypatch)


def test_notebooks_hold_no_outputs() -> None:
    assert len(NOTEBOOKS) == 5
    for notebook in NOTEBOOKS:
        for cell in cells_of(notebook):
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None
