"""Uploaded packages: a zip or a tar of anybody's, checked and written again as a package's archive.

Nothing of an upload is unpacked under a name of its own. Its members are read one by one into files
named by numbers, within bounds of bytes and number, and no header is read beyond a bound either.
"""

import bz2
import gzip
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Self

from tasks.packages.package_reference import VERSION
from tasks.packages.packages import (
    MANIFEST,
    MAX_BYTES,
    MAX_FILES,
    SKIPPED,
    Package,
    PackageError,
    load_package,
    write_archive,
    wrong_path,
)
from tasks.packages.python_dependencies import (
    ENVIRONMENT,
    DeclarationError,
    Environment,
    Needs,
    declared,
)
from tasks.storage.blobs import file_digest

LONGEST_MANIFEST = 32 * 2**10  # bytes of package.yaml
_CHUNK = 2**20
_MOST_MEMBERS = 2 * MAX_FILES  # folders and skipped files, too
_LONGEST_HEADER = 2**20  # bytes of a tar header that is no file's content
_LONGEST_LIST = 16 * 2**20  # bytes of a zip's list of members
_MOST_TAR = MAX_BYTES + _MOST_MEMBERS * 2048
_UNIX = 3  # the system of a zip's member that has a mode
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_OF_SHELLS = tuple(f".{name}" for name in _SHELLS)
_LOOKED_AT = 2**16  # bytes of a script
_PROGRAMS = (b"#!", b"\x7fELF")  # how files begin that can be run
_END_OF_ZIP = b"PK\x05\x06"
_LONGEST_END = 22 + 0xFFFF  # bytes of a zip's last record, with its comment
_Packed = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile
_READABLE = 0o600
_RUNNABLE = 0o700


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A package as it will be kept: its manifest, and its archive's digest, bytes and files.

    `source` is the digest of what was uploaded. The archive has another one where it says which
    Python dependencies were resolved for what the package `needs`.
    """

    package: Package
    digest: str
    size: int
    files: int
    source: str
    needs: Needs | None = None
    environment: Environment | None = None


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A file of an upload: its name there, where its content is put, and whether it can be run."""

    name: str
    content: Path
    runs: bool


def repack(upload: Path, folder: Path, to: Path) -> Upload:
    """Write the archive of an uploaded package to `to`; `folder` is empty and takes its files.

    A zip, and a tar as it is or packed by gzip, bzip2 or xz are read. Where all files lie below one
    folder, that is the package's folder. The same files make the same archive, however they came.

    Raises:
        PackageError: it is damaged or too large, holds a link or a special file, climbs out of its
            folder, or is no package; says which member and why.
    """
    try:
        members = _within(_read(upload, folder))
        place = members.get(PurePosixPath(MANIFEST))
        if place is None:
            raise PackageError(f"it has no {MANIFEST}; add one, see docs/reductions.md")
        if place.content.stat().st_size > LONGEST_MANIFEST:
            raise PackageError(f"its {MANIFEST} is longer than {LONGEST_MANIFEST >> 10} KiB")
        members.pop(PurePosixPath(ENVIRONMENT), None)  # of a version that was downloaded
    except PackageError as error:
        raise PackageError(f"The package is refused: {error}.") from None
    package = _manifest(place.content, folder)
    _check_command(package, members)
    _check_lines(package, members)
    try:
        contents = {path: member.content for path, member in members.items()}
        needs = declared(package.command, contents)
    except DeclarationError as error:
        raise PackageError(f"The package is refused: {error}.") from None
    for member in members.values():
        member.content.chmod(_RUNNABLE if member.runs else _READABLE)
    with to.open("xb") as out:
        write_archive(contents, out)
    made = file_digest(to)
    return Upload(
        package=package,
        digest=made.sha256,
        size=made.size,
        files=len(members),
        source=made.sha256,
        needs=needs,
    )


def check_version(package: Package) -> None:
    """Refuse a version that a request could not name; raise PackageError."""
    if not re.fullmatch(VERSION, package.version):
        raise PackageError(
            f"The package is refused: its version {package.version!r} cannot be part of a name. "
            "Use letters, digits and . _ + - only."
        )


def _manifest(content: Path, folder: Path) -> Package:
    """Load the manifest under its own name, by which its errors call it."""
    own = folder / "manifest"
    own.mkdir()
    shutil.copyfile(content, own / MANIFEST)
    try:
        package = load_package(own)
    except PackageError as error:
        said = str(error).replace(f"{own}/", "")
        raise PackageError(f"The package is refused: {said}") from None
    check_version(package)
    return package


def _check_command(package: Package, members: Mapping[PurePosixPath, _Member]) -> None:
    """Refuse a package whose own program is not there or cannot be run."""
    program = package.command[0]
    if "/" not in program or program.startswith("/"):
        return
    member = members.get(PurePosixPath(program))
    if member is None:
        raise PackageError(
            f"The package is refused: its command runs {program}, which it does not hold. Build "
            "it, or correct `command` in package.yaml."
        )
    if not member.runs:
        raise PackageError(
            f"The package is refused: {program} is not executable: chmod +x {program}."
        )


def _check_lines(package: Package, members: Mapping[PurePosixPath, _Member]) -> None:
    """Refuse scripts with lines that end as on Windows, where no shell or kernel reads them.

    Those are scripts of a shell, and what the command runs by its first line, `#!...`.
    """
    program, *others = package.command
    scripts = {path for path in members if path.suffix in _OF_SHELLS}
    if PurePosixPath(program).name in _SHELLS:
        scripts |= {PurePosixPath(word) for word in others if PurePosixPath(word) in members}
    for path, member in sorted(members.items()):
        runs = path == PurePosixPath(program)
        if not runs and path not in scripts:
            continue
        with member.content.open("rb") as file:
            start = file.read(_LOOKED_AT)
        first = start.partition(b"\n")[0]
        named = first.startswith(b"#!") and first.endswith(b"\r")
        wrong = b"\r\n" in start if path in scripts else named
        if wrong:
            raise PackageError(
                f"The package is refused: the lines of {path} end with CR LF, as on Windows, and "
                "no shell runs it so. Write them with LF, by an editor or "
                f"`sed -i 's/\\r$//' {path}`."
            )


def _read(upload: Path, folder: Path) -> Iterator[_Member]:
    """Yield the files of an upload, each read into a file of the folder."""
    with upload.open("rb") as file:
        start = file.read(6)
    unpacking = _unpacking(start)
    if start.startswith((b"PK\x03\x04", _END_OF_ZIP)):
        yield from _read_zip(upload, folder)
    elif unpacking is None:
        yield from _read_tar(upload, folder)
    else:
        plain = folder / "plain"
        with _damage(), unpacking(upload) as packed, plain.open("xb") as out:
            _copy(packed, out, _MOST_TAR)
        yield from _read_tar(plain, folder)
        plain.unlink()


def _unpacking(start: bytes) -> Callable[[Path], _Packed] | None:
    """Return what unpacks a file that begins so; None for one that is not packed."""
    if start.startswith(b"\x1f\x8b"):
        return lambda path: gzip.open(path, "rb")
    if start.startswith(b"BZh"):
        return lambda path: bz2.open(path, "rb")
    return (lambda path: lzma.open(path, "rb")) if start.startswith(b"\xfd7zXZ") else None


class _BoundedHeader(tarfile.TarInfo):
    """A member's header; long names and further attributes are bounded before they are read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        plain = header.isreg() or header.isdir()
        if header.size < 0 or (not plain and header.size > _LONGEST_HEADER):
            raise PackageError(f"{header.name!r} has a header of {header.size:,} bytes")
        return header


def _read_tar(upload: Path, folder: Path) -> Iterator[_Member]:
    with _damage(), tarfile.open(upload, mode="r:", tarinfo=_BoundedHeader) as tar:
        left = MAX_BYTES
        for number, member in enumerate(tar):
            _check_number(number)
            if member.isdir():
                continue
            if member.size < 0:  # by an attribute: the library would read the same header for ever
                raise PackageError(f"{member.name!r} has a size of {member.size:,} bytes")
            if not member.isreg() or member.issparse():
                raise PackageError(f"{member.name!r} is {_kind(member)}; only plain files may be")
            content = tar.extractfile(member)
            if content is None:
                raise PackageError(f"{member.name!r} has no content")
            place = folder / str(number)
            with place.open("xb") as out:
                left -= _copy(content, out, left)
            yield _Member(name=member.name, content=place, runs=bool(member.mode & 0o100))


def _kind(member: tarfile.TarInfo) -> str:
    if member.issym() or member.islnk():
        return f"a link to {member.linkname!r}"
    if member.ischr() or member.isblk():
        return "a device"
    return "a pipe" if member.isfifo() else "no plain file"


def _read_zip(upload: Path, folder: Path) -> Iterator[_Member]:
    _check_list(upload)
    with _damage(), zipfile.ZipFile(upload) as archive:
        left = MAX_BYTES
        for number, member in enumerate(archive.infolist()):
            _check_number(number)
            mode = member.external_attr >> 16 if member.create_system == _UNIX else 0
            kind = stat.S_IFMT(mode)
            if member.is_dir():
                continue
            if stat.S_ISLNK(mode):
                raise PackageError(f"{member.filename!r} is a link; only plain files may be")
            if kind not in (0, stat.S_IFREG):
                raise PackageError(f"{member.filename!r} is a device or no plain file")
            if member.flag_bits & 1:
                raise PackageError(f"{member.filename!r} is encrypted")
            place = folder / str(number)
            with archive.open(member) as content, place.open("xb") as out:
                left -= _copy(content, out, left)
            runs = bool(mode & 0o100) if mode else _looks_like_program(place)
            yield _Member(name=member.filename, content=place, runs=runs)


def _check_list(upload: Path) -> None:
    """Refuse a zip with a long list of members: the library reads all of it at once."""
    with upload.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _LONGEST_END))
        end = file.read()
    at = end.rfind(_END_OF_ZIP)
    if at < 0 or len(end) - at < 22:
        raise PackageError("it is a damaged zip: it has no end; send it again")
    if int.from_bytes(end[at + 12 : at + 16], "little") > _LONGEST_LIST:
        raise PackageError(f"it has more than {MAX_FILES:,} files")


def _check_number(number: int) -> None:
    if number >= _MOST_MEMBERS:
        raise PackageError(f"it has more than {MAX_FILES:,} files")


def _looks_like_program(file: Path) -> bool:
    with file.open("rb") as content:
        return content.read(4).startswith(_PROGRAMS)


def _copy(content: IO[bytes] | _Packed, out: IO[bytes], most: int) -> int:
    """Copy a file of at most `most` bytes; return its size."""
    size = 0
    while part := content.read(_CHUNK):
        size += len(part)
        if size > most:
            raise PackageError(f"it is larger than {MAX_BYTES >> 20} MiB when unpacked")
        out.write(part)
    return size


@contextmanager
def _damage() -> Iterator[None]:
    """Tell of what cannot be read as of a damaged upload; a failure of the disk stays one."""
    try:
        yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        OSError,
    ) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise PackageError(f"it is neither a zip nor a tar, or damaged ({error})") from error


def _within(members: Iterator[_Member]) -> dict[PurePosixPath, _Member]:
    """Return the members by their paths in the package; raise PackageError for a wrong path."""
    found: dict[PurePosixPath, _Member] = {}
    for member in members:
        if wrong := wrong_path(member.name):
            raise PackageError(f"{member.name!r} {wrong}")
        if "\\" in member.name or any(ord(letter) < 32 for letter in member.name):
            raise PackageError(f"{member.name!r} has a character that no name may have")
        path = PurePosixPath(member.name)
        if path in found:
            raise PackageError(f"{member.name!r} is there twice")
        found[path] = member
    wanted = {path: one for path, one in found.items() if not SKIPPED.intersection(path.parts)}
    if len(wanted) > MAX_FILES:
        raise PackageError(f"it has more than {MAX_FILES:,} files")
    for path in wanted:
        if below := wanted.keys() & {*path.parents}:
            raise PackageError(f"{str(path)!r} lies below the file {str(below.pop())!r}")
    tops = {path.parts[0] for path in wanted}
    if PurePosixPath(MANIFEST) not in wanted and len(tops) == 1:
        return {path.relative_to(path.parts[0]): one for path, one in wanted.items()}
    return wanted
