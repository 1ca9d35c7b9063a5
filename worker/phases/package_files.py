"""The files of a package on this machine, unpacked once for all attempts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from socket import gethostname

from tasks.bag.categories import Category
from tasks.packages.packages import (
    SERIES,
    SHIPPED,
    Packages,
    blob_of,
    unpack,
    unpack_environment,
)
from tasks.packages.python_dependencies import Environment, environment_blob, read_environment
from tasks.packages.python_environments import this_platform, this_python
from tasks.service.classify import AttemptError
from tasks.storage.blobs import PACKAGES
from worker.files.unpacked import Unpacked
from worker.phases.context import Context

_GB = 10**9
_SHARE = 0.25  # of the bound of the cache, for unpacked packages


@lru_cache(maxsize=1)
def shipped_packages() -> Mapping[str, bytes]:
    """Return the archives of the packages that come with Swathmill, by their SHA-256.

    By this alone a package counts as ours, whatever its name: the same content does the same.
    """
    found = (package.archive() for package in Packages((SHIPPED, SERIES)).every())
    return {archive.digest: archive.data for archive in found if archive is not None}


@contextmanager
def unpacked(digest: str, context: Context) -> Iterator[tuple[Path, Path | None]]:
    """Yield the unpacked package and its Python dependencies, if it has any.

    All attempts share them; no tier lets a program change them.

    Raises:
        AttemptError: choice refused: the dependencies were resolved for another Python.
    """

    def unpack_to(folder: Path) -> None:
        ours = shipped_packages().get(digest)
        if ours is not None:
            unpack(ours, folder)
            return
        archive = context.scratch / blob_of(digest)
        try:
            context.blobs.get_file(PACKAGES, archive.name, archive, digest)
            unpack(archive, folder)
        finally:
            archive.unlink(missing_ok=True)

    place = context.settings.data_dir / "packages" / gethostname()
    bound = int(context.settings.cache_gb * _GB * _SHARE)
    packages = _packages(place, bound, context.sandbox == "bubblewrap")
    with packages.use(digest, unpack_to) as folder:
        environment = None if digest in shipped_packages() else read_environment(folder)
        if environment is None:
            yield folder, None
            return
        check_environment(environment)

        def unpack_dependencies(to: Path) -> None:
            archive = context.scratch / environment_blob(digest)
            try:
                context.blobs.get_file(PACKAGES, archive.name, archive, environment.sha256)
                unpack_environment(archive, to)
            finally:
                archive.unlink(missing_ok=True)

        with packages.use(environment.sha256, unpack_dependencies) as dependencies:
            yield folder, dependencies


def check_environment(environment: Environment) -> None:
    """Raise AttemptError if Python dependencies were resolved for another Python or machine."""
    made_for, here = (environment.python, environment.platform), (this_python(), this_platform())
    if made_for != here:
        raise AttemptError(
            Category.CHOICE_REFUSED,
            f"the package's Python dependencies were resolved for Python {' on '.join(made_for)}, "
            f"and this worker has {' on '.join(here)}: push it again with another version",
        )


@lru_cache(maxsize=4)
def _packages(folder: Path, bound: int, guarded: bool) -> Unpacked:
    """Return the unpacked packages, with what this process has seen of them."""
    return Unpacked(folder, bound, guarded=guarded)
