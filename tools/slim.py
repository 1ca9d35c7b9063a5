"""Take out of an environment what the image of a role does without: `slim.py ROLE SITE_PACKAGES`.

`infra/roles.txt` names the packages. Of those that stay it takes out their own tests, sources and
headers for compilers, stubs for type checkers, parts of Arrow that nothing here opens (Flight, its
own S3, copies of a library for linkers), of botocore all services but S3 and the one that gives its
keys, and of Pygments all languages but Python, which errors are shown in. pyproj reads the newer
database of GDAL's PROJ in place of its own. Where `strip` is, as in the stage of the image that
builds, compiled code loses its symbols for debuggers.
"""

import contextlib
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from os.path import normpath
from pathlib import Path

ROLES = Path(__file__).parents[1] / "infra" / "roles.txt"
_PARTS = (
    *("pyarrow/include", "pyarrow/src", "pyarrow/_flight.*", "pyarrow/libarrow_flight.*"),
    *("pyarrow/libarrow_python_flight.*", "pyarrow/_s3fs.*", "pyarrow/libarrow_s3.*"),
    # Python loads `.so.2600`; wheels hold no links, so these are whole copies of it.
    *("pyarrow/libarrow_python*.so", "pyarrow/libarrow_python*.so.*.*.*"),
    *("numpy/_core/include", "numpy/f2py", "numpy/_core/_simd.*", "numpy/_core/_*_tests.*"),
    "numpy/distutils",
    # 6 MB, which save a second of an upload that needs pip.
    *("pip/_vendor/distlib/*.exe", "pip/**/__pycache__"),
)
_LANGUAGES = frozenset(("__init__", "_mapping", "python"))
_PAGE = 4096
_SUFFIXES = frozenset((".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"))
_SERVICES = ("s3", "sts", "sso", "sso-oidc")


def left_out(role: str) -> tuple[str, ...]:
    """Return the packages that a role's image leaves out. Raises KeyError for no role."""
    lines = (line.partition(": ") for line in ROLES.read_text("utf-8").splitlines())
    return tuple({role: names for role, _, names in lines}[role].split())


def remove_package(name: str, site: Path) -> None:
    """Remove a package's files from an environment, if it is there."""
    root = site.parents[2]  # programs lie in its folder `bin`
    for found in metadata.distributions(name=name, path=[str(site)]):
        files = [Path(normpath(str(found.locate_file(one)))) for one in found.files or ()]
        for path in (one for one in files if root in one.parents):
            path.unlink(missing_ok=True)
        for folder in sorted({parent for path in files for parent in path.parents}, reverse=True):
            if site in folder.parents and folder.is_dir():
                shutil.rmtree(folder / "__pycache__", ignore_errors=True)
                if not any(folder.iterdir()):
                    folder.rmdir()


def parts(site: Path) -> Iterator[Path]:
    """Yield files and folders of packages that stay which nothing here opens."""
    for pattern in _PARTS:
        yield from site.glob(pattern)
    yield from (path for path in site.glob("**/tests") if path.is_dir())
    yield from (path for path in site.glob("**/*.*") if path.suffix in _SUFFIXES)
    for service in site.glob("botocore/data/*/"):
        if service.name not in _SERVICES:
            yield service

    for language in site.glob("pygments/lexers/**/*.py*"):
        if language.name.partition(".")[0] not in _LANGUAGES:
            yield language


def share_database(site: Path) -> None:
    """Have pyproj read the database of rasterio's PROJ, unless its own is of a newer layout.

    A database that a newer PROJ wrote is read by an older one while its layout's major version is
    the same: https://proj.org/en/stable/resource_files.html.
    """
    own, other = (
        site / folder / "proj.db" for folder in ("pyproj/proj_dir/share/proj", "rasterio/proj_data")
    )
    if own.is_file() and other.is_file():
        (major, minor), (major_of_other, minor_of_other) = layout(own), layout(other)
        if major == major_of_other and minor <= minor_of_other:
            own.unlink()
            own.symlink_to(Path("../../../../rasterio/proj_data/proj.db"))


def layout(database: Path) -> tuple[int, int]:
    """Return the version of the layout of a database of PROJ."""
    with contextlib.closing(sqlite3.connect(database)) as opened:
        known = dict(opened.execute("SELECT key, value FROM metadata"))
    major, minor = (known[f"DATABASE.LAYOUT.VERSION.{one}"] for one in ("MAJOR", "MINOR"))
    return int(major), int(minor)


def strip_symbols(site: Path) -> None:
    """Take symbols for debuggers out of compiled code, if `strip` is here.

    Files are replaced, not written: other environments may have links to them. Of some libraries
    that were patched for their wheels `strip` makes what cannot be loaded; these stay as they are.
    """
    program = shutil.which("strip")
    compiled = [path for path in site.glob("**/*.so*") if path.is_file()] if program else []
    for path in compiled:
        new = path.with_name(f"{path.name}.stripped")
        done = subprocess.run([str(program), "--strip-unneeded", "-o", new, path], check=False)
        if done.returncode == 0 and can_be_loaded(new):
            new.replace(path)
        else:
            new.unlink(missing_ok=True)


def can_be_loaded(library: Path) -> bool:
    """Tell whether each segment of an ELF file of 64 bits that is loaded begins as its page does.

    See elf(5): the program headers, of type PT_LOAD.
    """
    content = library.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return False
    (first,) = struct.unpack_from("<Q", content, 32)
    length, number = struct.unpack_from("<HH", content, 54)
    for place in range(first, first + length * number, length):
        kind, _, offset, address = struct.unpack_from("<IIQQ", content, place)
        if kind == 1 and (address - offset) % _PAGE:
            return False
    return True


def slim(role: str, site: Path) -> None:
    """Take out of an environment what a role does without."""
    for name in left_out(role):
        remove_package(name, site)
    for path in [*parts(site)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    share_database(site)
    strip_symbols(site)


if __name__ == "__main__":
    slim(sys.argv[1], Path(sys.argv[2]).resolve())
