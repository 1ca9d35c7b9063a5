"""Python dependencies of a package on a worker: mounted read-only, in each tier, for its Python."""

import shutil
from pathlib import Path

import pytest

from tasks.bag.categories import Category
from tasks.bag.spec import Input, ReduceSpec
from tasks.packages.package_uploads import repack
from tasks.packages.packages import blob_of
from tasks.packages.python_dependencies import environment_blob
from tasks.packages.python_environments import resolve
from tasks.settings import Settings
from tests.tasks.wheels import registry, write_wheel
from tests.worker.mill import Mill
from tests.worker.sandbox.test_shipped import group
from worker.phases import package_files
from worker.sandbox.messages import Failed
from worker.sandbox.sandbox import Tier, probe_bubblewrap

SCRIPT = """# /// script
# dependencies = ["parcel"]
# ///
import sys
import parcel
import numpy
try:
    open(parcel.__file__, "a")
except OSError:
    pass
else:
    sys.exit("it can be changed")
print(parcel.SIZE, parcel.__cached__)
open(sys.argv[2] + "/a.txt", "w").write(str(parcel.SIZE))
"""


@pytest.fixture
def digest(tmp_path: Path) -> str:
    """Resolve and pack a package; its two archives are in the folder `made`."""
    write_wheel(tmp_path / "registry", "parcel", "1.5", {"parcel.py": "SIZE = 42\n"})
    own = tmp_path / "own"
    own.mkdir()
    (own / "package.yaml").write_text("name: own\ncommand: [python, run.py]\noutputs: [a.txt]\n")
    (own / "run.py").write_text(SCRIPT)
    upload = Path(shutil.make_archive(str(tmp_path / "upload"), "tar", own))
    made = tmp_path / "made"
    (made / "files").mkdir(parents=True)
    found = repack(upload, made / "files", made / "archive.tar")
    with registry(tmp_path / "registry") as address:
        settings = Settings(python_index=address)
        found, _ = resolve(found, made / "archive.tar", made / "resolved", settings)
    return found.digest


def run(tmp_path: Path, digest: str, tier: Tier) -> object:
    mill = Mill(tmp_path, tmp_path, sandbox=tier)
    made = tmp_path / "made"
    blobs = mill.world.runtime.blobs
    blobs.put_file("packages", blob_of(digest), made / "archive.tar")
    blobs.put_file("packages", environment_blob(digest), made / "resolved" / "environment.tar")
    given: Input = group(mill)
    spec = ReduceSpec(inputs=(given,), package="own", digest=digest, outputs=("a.txt",))
    said = mill.attempt(spec)
    if isinstance(said, Failed):
        return said
    return mill.fetch(said.files[0]).read_text()


@pytest.mark.parametrize("tier", ["bubblewrap", "limits"])
def test_a_package_imports_what_it_depends_on(tmp_path: Path, digest: str, tier: Tier) -> None:
    if tier == "bubblewrap" and (problem := probe_bubblewrap()):
        pytest.skip(problem)
    assert run(tmp_path, digest, tier) == "42"


def test_dependencies_for_another_python_are_refused(
    tmp_path: Path, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_files, "this_python", lambda: "3.99")
    said = run(tmp_path, digest, "limits")
    assert isinstance(said, Failed)
    assert said.category is Category.CHOICE_REFUSED
    assert "push it again" in said.message
