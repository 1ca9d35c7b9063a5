"""A package gets stored files as inputs, and cannot change what is stored."""

from pathlib import Path

import pytest

from tasks.bag.model import ArtifactFile
from tasks.bag.spec import GroupSpec, ReduceSpec
from tasks.packages.packages import pack
from tasks.storage.blobs import ARTIFACTS
from tests.worker.mill import Mill
from worker.phases.group import MANIFEST, Manifest, ManifestBand
from worker.sandbox import sandbox
from worker.sandbox.sandbox import Tier

HARM = """
import contextlib, os, pathlib, sys
for path in pathlib.Path(sys.argv[1]).iterdir():
    with contextlib.suppress(OSError):
        path.chmod(0o666)
    with contextlib.suppress(OSError):
        path.write_text("harm")
    with contextlib.suppress(OSError):
        os.utime(path, (0, 0))
pathlib.Path(sys.argv[2], "out.txt").write_text("made")
"""


@pytest.mark.parametrize("tier", ["bubblewrap", "limits"])
def test_a_package_cannot_change_what_is_stored(tmp_path: Path, tier: Tier) -> None:
    if tier == "bubblewrap" and (problem := sandbox.probe_bubblewrap()):
        pytest.skip(problem)
    package = tmp_path / "package"
    package.mkdir()
    (package / "package.yaml").write_text(
        "name: own\ncommand: [python, run.py]\noutputs: [out.txt]\n"
    )
    (package / "run.py").write_text(HARM)
    archive = pack(package)
    mill = Mill(tmp_path / "mill", tmp_path, files=True, sandbox=tier)
    mill.world.put_package(archive)
    band = ManifestBand(
        file="a.tif",
        band=1,
        product="p",
        collection="5",
        layer="a",
        date="2012-01-01",
        weight=1.0,
    )
    manifest = Manifest(group="g", cell="c", window="all", grid=None, bands=(band,))
    contents = {MANIFEST: manifest.model_dump_json().encode(), "a.tif": b"pixels"}
    files = []
    for name, data in contents.items():
        stored = mill.world.runtime.blobs.put_bytes(ARTIFACTS, f"4f/claim/{name}", data)
        files.append(
            ArtifactFile(
                name=name,
                blob=f"{ARTIFACTS}/4f/claim/{name}",
                size=stored.size,
                sha256=stored.sha256,
            )
        )
    group = mill.world.done(
        GroupSpec(group="g", cell="c", window="all", grid=None, bands=()), files
    )
    kept = sorted((tmp_path / "mill" / "blobs" / ARTIFACTS).rglob("*.*"))
    before = [(path.stat().st_mode, path.stat().st_mtime_ns) for path in kept]
    (out,) = mill.make(
        ReduceSpec(inputs=(group,), package="own", digest=archive.digest, outputs=("out.txt",))
    )
    assert mill.fetch(out).read_text() == "made"
    assert [path.read_bytes() for path in kept] == [b"pixels", contents[MANIFEST]]
    assert [(path.stat().st_mode, path.stat().st_mtime_ns) for path in kept] == before
