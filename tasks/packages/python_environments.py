"""Resolve a package's Python dependencies, once, when it is uploaded; never at run time.

`pip` chooses versions, tells their hashes, and unpacks wheels into a folder. Nothing is built and
nothing of a wheel is run: packages without a wheel are refused. The folder becomes an archive
without times or owners, so that equal environments have equal digests. It is put on `PYTHONPATH`,
before Swathmill's own packages.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TypedDict
from urllib.parse import urlsplit

import structlog
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tasks.packages.package_uploads import Upload
from tasks.packages.packages import (
    MOST_ENVIRONMENT_BYTES,
    MOST_ENVIRONMENT_FILES,
    PackageError,
    write_archive,
)
from tasks.packages.python_dependencies import ENVIRONMENT, Environment, Needs
from tasks.settings import Settings
from tasks.storage.blobs import StoredBlob, file_digest

log = structlog.get_logger("packages")

SECONDS = 120.0
"""How long an upload waits for each of three steps: to choose, to unpack, to compile."""
_LOOK = 0.2
_TOLD = 1500  # characters of what pip says
_LINE = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_SECRET = re.compile(r"//[^/@\s]+@")
# What of the server's environment pip needs to reach a registry.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PASSED = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", *_PROXIES, *(name.lower() for name in _PROXIES)}
)
_SITE = "site"
_SKIPPED = frozenset({"bin"})  # scripts name this machine's Python


class _Metadata(TypedDict):
    name: str
    version: str


class _Archive(TypedDict):
    hashes: dict[str, str]


class _Download(TypedDict):
    archive_info: _Archive


class _Installed(TypedDict):
    """What pip reports of a package that it chose."""

    metadata: _Metadata
    download_info: _Download


def this_python() -> str:
    """Return the version of Python that environments made here are for."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def this_platform() -> str:
    """Return the kind of machine that environments made here are for."""
    return f"{platform.system()}-{platform.machine()}".lower()


def resolve(
    upload: Upload, archive: Path, folder: Path, settings: Settings, cache: Path | None = None
) -> tuple[Upload, Path]:
    """Make the environment of an upload that needs one; add its description to the archive.

    `folder` takes what is made. `cache` keeps wheels between calls; by default nothing is kept.

    Returns:
        The upload as it is now, and its environment's archive.

    Raises:
        PackageError: the dependencies cannot be had; says what pip said.
    """
    needs = upload.needs
    if needs is None:
        raise ValueError(f"{upload.package.name} declares no Python dependencies")
    start = time.monotonic()
    _check(needs, settings)
    folder.mkdir()
    lock = _lock(needs, folder, settings, cache)
    target = folder / _SITE
    _install(lock, target, folder, settings, cache)
    made = folder / "environment.tar"
    with made.open("xb") as out:
        write_archive(dict(_files(target)), out)
    text = lock.read_text("utf-8")
    said = Environment(
        sha256=file_digest(made).sha256,
        python=this_python(),
        platform=this_platform(),
        packages=tuple(f"{name}=={version}" for name, version in _LINE.findall(text)),
        lock=text,
    )
    added = _add(archive, said.model_dump_json(indent=1) + "\n")
    log.info(
        "package's dependencies resolved",
        package=upload.package.name,
        packages=len(said.packages),
        seconds=round(time.monotonic() - start, 1),
    )
    return replace(upload, digest=added.sha256, size=added.size, environment=said), made


def _check(needs: Needs, settings: Settings) -> None:
    if not settings.python_index:
        raise _refused(
            "this service resolves no Python dependencies (SWATHMILL_PYTHON_INDEX is empty). Put "
            "the modules into the package's folder"
        )
    if needs.python and not SpecifierSet(needs.python).contains(platform.python_version()):
        raise _refused(
            f"{needs.said_in} takes Python {needs.python}, and reductions run in Python "
            f"{platform.python_version()}. Correct `requires-python`"
        )


def _lock(needs: Needs, folder: Path, settings: Settings, cache: Path | None) -> Path:
    """Write the list of exact versions with hashes."""
    wanted, lock, chosen = (folder / name for name in ("wanted.txt", "lock.txt", "chosen.json"))
    lines = "\n".join(needs.requirements) + "\n"
    if needs.locked:
        lock.write_text(lines, "utf-8")
        return lock
    wanted.write_text(lines, "utf-8")
    own = ["--requirement", str(wanted), "--dry-run", "--ignore-installed", "--report", str(chosen)]
    _pip(own, folder, settings, cache)
    lock.write_text(_lock_of(json.loads(chosen.read_bytes())), "utf-8")
    return lock


def _lock_of(report: dict[str, list[_Installed]]) -> str:
    """Return a lock of what pip chose (its installation report, version 1)."""
    lines = []
    for one in report["install"]:
        name = canonicalize_name(one["metadata"]["name"])
        sha256 = one["download_info"]["archive_info"].get("hashes", {}).get("sha256")
        if sha256 is None:
            raise _refused(f"the registry tells no SHA-256 of {name}")
        lines.append(f"{name}=={one['metadata']['version']} \\\n    --hash=sha256:{sha256}\n")
    return "".join(sorted(lines))


def _install(
    lock: Path, target: Path, folder: Path, settings: Settings, cache: Path | None
) -> None:
    """Unpack the wheels of a lock, and compile them without running them.

    The compiler works in a process of its own, which a hostile source may crash.
    """
    own = ["--requirement", str(lock), "--require-hashes", "--target", str(target), "--no-compile"]
    _pip(own, folder, settings, cache)
    target.mkdir(exist_ok=True)
    # By content, not by time, so that a file is used wherever and whenever it is unpacked; and
    # with the same hashes, so that the same source makes the same file.
    mode = ("--invalidation-mode", "unchecked-hash", "-qq", "-s", str(target), str(target))
    _run([sys.executable, "-S", "-m", "compileall", *mode], {"PYTHONHASHSEED": "0"}, folder)
    _check_size(folder)


def _pip(command: list[str], folder: Path, settings: Settings, cache: Path | None) -> None:
    """Have pip choose or install; raise PackageError with its words where it fails."""
    kept, index, temporary = cache or folder / "cache", settings.python_index, folder / "temporary"
    temporary.mkdir(exist_ok=True)
    words = [
        *(sys.executable, "-P", "-m", "pip", "install", *command),
        *("--only-binary", ":all:", "--isolated", "--no-input", "--root-user-action", "ignore"),
        *("-qq", "--no-color", "--disable-pip-version-check", "--cache-dir", str(kept)),
        *(() if index == "default" else _index(index)),
    ]
    own = {"PIP_CONFIG_FILE": os.devnull, "TMPDIR": str(temporary)}
    passed = {name: value for name, value in os.environ.items() if name in _PASSED}
    code, text = _run(words, passed | own, folder)
    if code:
        raise _refused(_SECRET.sub("//", text.replace(str(folder), "").strip())[-_TOLD:])


def _index(address: str) -> tuple[str, ...]:
    """Name a registry to pip, which asks one without TLS only where it is told to trust it."""
    host = urlsplit(address)
    trusted = ("--trusted-host", host.netloc.rpartition("@")[2]) if host.scheme == "http" else ()
    return "--index-url", address, *trusted


def _run(words: list[str], environment: dict[str, str], folder: Path) -> tuple[int, str]:
    """Run a program with bounds of time and disk; return its exit code and what it printed."""
    (folder / "home").mkdir(exist_ok=True)
    own = {"PATH": "/usr/bin:/bin", "HOME": str(folder / "home")} | environment
    said = folder / "said.txt"
    with said.open("wb") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=own, cwd=folder
        )
        try:
            _wait(process, folder)
        finally:
            process.kill()
            process.wait()
    return process.returncode, said.read_text("utf-8", "replace")


def _wait(process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            process.wait(_LOOK)
        except subprocess.TimeoutExpired:
            _check_size(folder)
            if time.monotonic() > end:
                raise _refused(f"they were not there after {SECONDS:g} s. Try again") from None
        else:
            return


def _check_size(folder: Path) -> None:
    size, files = 0, 0
    for place, _, names in os.walk(folder):
        unpacked = Path(place).is_relative_to(folder / _SITE)
        for name in names:
            try:
                size += (Path(place) / name).lstat().st_size
            except FileNotFoundError:
                continue
            files += unpacked
    if (
        size > 3 * MOST_ENVIRONMENT_BYTES or files > MOST_ENVIRONMENT_FILES
    ):  # wheels and their cache
        raise _too_large()


def _too_large() -> PackageError:
    return _refused(
        f"they are larger than {MOST_ENVIRONMENT_BYTES >> 20} MiB or more than "
        f"{MOST_ENVIRONMENT_FILES:,} files when unpacked. Depend on less"
    )


def _files(target: Path) -> Iterator[tuple[PurePosixPath, Path]]:
    total = 0
    for path in sorted(target.rglob("*")):
        relative = PurePosixPath(path.relative_to(target).as_posix())
        if path.is_dir() or relative.parts[0] in _SKIPPED:
            continue
        if path.is_symlink() or not path.is_file():
            raise _refused(f"{relative} is not a plain file")
        total += path.stat().st_size
        if total > MOST_ENVIRONMENT_BYTES:
            raise _too_large()
        yield relative, path


def _add(archive: Path, text: str) -> StoredBlob:
    """Add the description of its environment to a package's archive; return what it is now."""
    unpacked = archive.with_name(f"{archive.name}.files")
    unpacked.mkdir()
    files: dict[PurePosixPath, Path] = {}
    with tarfile.open(archive, mode="r:") as tar:
        for number, member in enumerate(tar):
            content = tar.extractfile(member)
            if content is None:
                raise ValueError(f"{member.name} has no content")
            place = files[PurePosixPath(member.name)] = unpacked / str(number)
            with place.open("xb") as out:
                shutil.copyfileobj(content, out)
            place.chmod(member.mode)
    said = files[PurePosixPath(ENVIRONMENT)] = unpacked / ENVIRONMENT
    said.write_text(text, "utf-8")
    said.chmod(0o644)
    with archive.open("wb") as file:
        write_archive(files, file)
    shutil.rmtree(unpacked)
    return file_digest(archive)


def _refused(problem: str) -> PackageError:
    return PackageError(
        f"The package is refused: its Python dependencies cannot be resolved: {problem}."
    )
