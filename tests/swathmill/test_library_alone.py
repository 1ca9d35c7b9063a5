"""What `pip install swathmill` brings is enough for functions, and for commands on granules."""

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from tools.library_files import library

ROOT = Path(__file__).parents[2]
# Has Python find no module that only the service brings.
ALONE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
COMMAND = "from swathmill.cli import main; sys.argv = ['swathmill', *sys.argv[1:]]; main()"


def alone(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    needed = library()
    absent = {
        module
        for module, packages in packages_distributions().items()
        if not {*map(str.lower, packages)} & {*needed, "swathmill"}
        and not {one.replace("_", "-").lower() for one in packages} & {*needed}
    }
    env = {name: text for name, text in os.environ.items() if not name.startswith("SWATHMILL_")}
    return subprocess.run(
        [sys.executable, "-c", f"ABSENT = {absent!r}\n{ALONE}\n{code}", *words],
        env={**env, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_every_public_name_is_there_but_for_those_of_xarray() -> None:
    names = "{*swathmill.__all__} - {'load', 'virtualize', 'VirtualStore'}"
    done = alone(f"import swathmill\nfor name in {names}: getattr(swathmill, name)")
    assert done.stderr == ""
    done = alone("import swathmill\nswathmill.load")
    assert "install swathmill[xarray]" in done.stderr


def test_commands_on_granules_work(sample_archive: Path, tmp_path: Path) -> None:
    granule = min(sample_archive.rglob("MCD15A2*.hdf"))
    out = tmp_path / "leaf.tif"
    target = ["--layer", "Lai_1km", "--crs", "EPSG:32631", "--resolution", "1000"]
    for words in (
        ["reproject", str(granule), *target, "--out", str(out)],
        ["archive", "check", str(sample_archive)],
    ):
        done = alone(COMMAND, *words)
        assert done.returncode == 0, done.stderr
    assert out.is_file()


def test_a_command_of_the_service_says_what_to_install() -> None:
    done = alone(COMMAND, "up")
    assert done.returncode == 2
    assert "pip install 'swathmill[service]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_names_all_commands_and_what_some_need() -> None:
    done = alone(COMMAND, "-h")
    assert done.returncode == 0
    assert "swathmill[service]" in done.stdout
    assert "inspect" in done.stdout


def test_the_library_needs_few_packages() -> None:
    assert len(library()) <= 40
