"""The image of a role has all that its program imports, and what it leaves out is known."""

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.counts.counting import PYTHON
from tests.infra.roles import LEFT_OUT, PROGRAMS, ROOT, left_out, locked, reached, text, tops_of
from tools import slim

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != PYTHON, reason="the images have the oldest Python"
)

# Imports each module with the packages that are left out as if they were not there.
WITHOUT = """
import importlib, json, sys
gone, modules = json.loads(sys.stdin.read())
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(f"left out: {name}", name=name)
sys.meta_path.insert(0, Gone())
for module in modules:
    importlib.import_module(module)
"""


def test_the_file_says_what_the_programs_do_not_import() -> None:
    """`python -m tests.infra.roles` writes it anew."""
    assert LEFT_OUT.read_text("utf-8") == text()


@pytest.mark.parametrize("role", PROGRAMS)
def test_each_module_of_a_role_is_imported_without_what_is_left_out(role: str) -> None:
    modules = sorted(one for one in reached(PROGRAMS[role]) if not one.endswith("__main__"))
    gone = sorted(tops_of(left_out(role)))
    assert {"pandas", "sqlalchemy", "dask"} <= {*gone}
    assert len(modules) > 200
    subprocess.run(
        [sys.executable, "-c", WITHOUT],
        input=json.dumps([gone, modules]),
        text=True,
        cwd=ROOT,
        check=True,
        timeout=600,
    )


def test_what_packages_of_others_may_import_is_where_they_run() -> None:
    """docs/reductions.md names them; a worker without a pool has the image of all."""
    kept = locked() - {*left_out("runner")}
    assert {"numpy", "scipy", "rasterio", "pyproj", "shapely", "h5py", "netcdf4"} <= kept


def test_shipped_packages_run_where_workers_do() -> None:
    kept = locked() - {*left_out("worker")}
    assert {"numpy", "rasterio", "pyproj", "shapely", "exactextract", "pyarrow", "netcdf4"} <= kept
    assert "scipy" not in kept  # 100 MB, for two functions (worker/packages/series/shared)


@pytest.mark.parametrize("role", PROGRAMS)
def test_the_recipe_takes_out_what_the_file_names(role: str) -> None:
    recipe = (ROOT / "infra/Containerfile").read_text("utf-8")
    assert f"slim.py {role} /app/.venv/lib/python3.11/site-packages" in recipe
    assert f"FROM base AS {role}\nCOPY --from={role}-files /app /app\n" in recipe
    assert [*slim.left_out(role)] == left_out(role)


def write(path: Path, content: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def install(site: Path, name: str, *files: str) -> None:
    about = f"{name}-1.dist-info"
    for file in files:
        write(site / file)
    write(site / about / "METADATA", f"Name: {name}\nVersion: 1\n")
    outside = ("../../../bin/program", "../../../../elsewhere")
    record = [*files, f"{about}/METADATA", f"{about}/RECORD", *outside]
    write(site / about / "RECORD", "".join(f"{one},,\n" for one in record))


def test_a_package_goes_with_its_bytecode_and_others_stay(tmp_path: Path) -> None:
    root = tmp_path / "venv"
    site = root / "lib" / "python3.11" / "site-packages"
    install(site, "pandas", "pandas/__init__.py", "pandas/core/a.py")
    install(site, "numpy", "numpy/__init__.py", "numpy/tests/test_a.py", "numpy/testing/a.py")
    install(site, "pip", "pip/__init__.py", "pip/_vendor/distlib/t64.exe")
    write(site / "pandas/core/__pycache__/a.pyc")
    write(root / "bin" / "program")
    write(tmp_path / "elsewhere")
    for service in ("s3", "ec2"):
        write(site / "botocore/data" / service / "service-2.json.gz")
    write(site / "botocore/data/endpoints.json")
    slim.slim("worker", site)
    assert not (site / "pandas").exists()
    assert {one.metadata["Name"] for one in metadata.distributions(path=[str(site)])} == {"numpy"}
    assert sorted(path.name for path in (site / "numpy").iterdir()) == ["__init__.py", "testing"]
    assert sorted(path.name for path in (site / "botocore/data").iterdir()) == [
        "endpoints.json",
        "s3",
    ]
    assert not (root / "bin" / "program").exists()
    assert (tmp_path / "elsewhere").exists()  # nothing outside the environment is touched


def linked(to: Path, *folders: str) -> Path:
    """Link folders of this environment's packages into another; return where they are here."""
    here = Path(str(metadata.distribution("numpy").locate_file("")))
    for folder in folders:
        if (here / folder).exists():
            shutil.copytree(here / folder, to / folder, copy_function=os.link)
    return here


def run_with(site: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that finds its packages in an environment first."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_portal_has_pip_for_uploads_and_nobody_else(tmp_path: Path) -> None:
    for role in PROGRAMS:
        site = tmp_path / role / "lib" / "python3.11" / "site-packages"
        install(site, "pip", "pip/__init__.py", "pip/_vendor/distlib/t64.exe")
        write(site / "pip/_internal/__pycache__/a.pyc")
        slim.slim(role, site)
        assert (site / "pip/__init__.py").exists() == (role == "portal")
        assert not [*site.glob("pip/**/*.pyc")]
        assert not [*site.glob("**/*.exe")]


DRAWN = """
from rich.console import Console
from rich.markdown import Markdown
from rich.syntax import Syntax
import pygments, rich.traceback, typer.rich_utils
Console().print(Syntax("x = 1", "python"), Markdown("**two**"))
print(pygments.__file__)
"""


def test_errors_are_shown_with_one_language_of_pygments(tmp_path: Path) -> None:
    linked(tmp_path, "pygments")
    slim.slim("portal", tmp_path)
    assert {path.name for path in tmp_path.glob("pygments/lexers/*.py")} == {
        "__init__.py",
        "_mapping.py",
        "python.py",
    }
    told = run_with(tmp_path, DRAWN)
    assert told.stdout.split() == ["x", "=", "1", "two", str(tmp_path / "pygments/__init__.py")]


PROJECTED = """
import pyproj, rasterio
from rasterio.warp import transform
from pyproj.database import get_database_metadata
for code in ("EPSG:4326", "EPSG:32630", "EPSG:3035", "EPSG:27700", "EPSG:3857", "ESRI:54012"):
    to = pyproj.Transformer.from_crs("EPSG:4326", code, always_xy=True).transform(-2.0, 53.0)
    there = [one[0] for one in transform("EPSG:4326", code, [-2.0], [53.0])]
    assert max(abs(a - b) for a, b in zip(to, there)) < 2, code
assert len(pyproj.database.query_crs_info("EPSG")) > 5000
print(get_database_metadata("PROJ.VERSION"), pyproj.__file__)
"""


def test_projections_come_from_one_database(tmp_path: Path) -> None:
    """A pyproj whose PROJ is newer than GDAL's keeps its own."""
    linked(tmp_path, "pyproj", "pyproj.libs", "rasterio", "rasterio.libs", "numpy", "numpy.libs")
    before = tmp_path / "rasterio/proj_data/proj.db"
    own = tmp_path / "pyproj/proj_dir/share/proj/proj.db"
    newer = slim.layout(before) >= slim.layout(own)
    slim.slim("manager", tmp_path)
    assert own.is_symlink() == newer
    assert own.resolve() == (before.resolve() if newer else own)
    told = run_with(tmp_path, PROJECTED)
    assert told.stdout.split()[1:] == [str(tmp_path / "pyproj/__init__.py")], told.stderr


@pytest.mark.parametrize(
    ("own", "other", "shared"),
    [
        ((1, 4), (1, 6), True),
        ((1, 6), (1, 6), True),
        ((1, 7), (1, 6), False),
        ((1, 4), (2, 0), False),
        ((2, 0), (1, 6), False),
    ],
)
def test_an_older_database_is_not_taken(
    tmp_path: Path, own: tuple[int, int], other: tuple[int, int], shared: bool
) -> None:
    places = ("pyproj/proj_dir/share/proj/proj.db", "rasterio/proj_data/proj.db")
    for place, version in zip(places, (own, other), strict=True):
        write(tmp_path / place)
        with contextlib.closing(sqlite3.connect(tmp_path / place)) as made:
            made.execute("CREATE TABLE metadata (key TEXT, value TEXT)")
            for name, number in zip(("MAJOR", "MINOR"), version, strict=True):
                made.execute(
                    "INSERT INTO metadata VALUES (?, ?)",
                    (f"DATABASE.LAYOUT.VERSION.{name}", str(number)),
                )
            made.commit()
    slim.share_database(tmp_path)
    assert slim.layout(tmp_path / places[0]) == (other if shared else own)
    assert (tmp_path / places[0]).is_symlink() == shared


ARROW = ("", ".csv", ".compute", ".parquet")


def test_what_is_taken_out_of_a_package_that_stays_is_not_missed(tmp_path: Path) -> None:
    """Arrow's libraries need one another; numpy's were patched, and `strip` may spoil them."""
    here = linked(tmp_path, "pyarrow", "numpy", "numpy.libs")
    before = sorted((path, path.read_bytes()) for path in (here / "pyarrow").glob("_csv.*.so"))
    slim.slim("worker", tmp_path)
    named = "; ".join(["import numpy", *(f"import pyarrow{part}" for part in ARROW)])
    told = run_with(tmp_path, f"{named}; print(numpy.__file__, pyarrow.__file__)")
    own = [str(tmp_path / name / "__init__.py") for name in ("numpy", "pyarrow")]
    assert told.stdout.split() == own, told.stderr
    # Symbols are taken out of copies: the files may be links of another environment's.
    assert before == [(path, path.read_bytes()) for path, _ in before]
    if shutil.which("strip") is not None:
        after = [(tmp_path / "pyarrow" / path.name).stat().st_size for path, _ in before]
        assert sum(after) < sum(len(content) for _, content in before)


def test_no_role_is_no_role(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        slim.slim("cook", tmp_path)
