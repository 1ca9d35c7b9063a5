"""Reduction packages: a folder with `package.yaml` and an executable, and its one archive.

A package's archive is a tar with sorted names and no times, owners or links, so that equal folders
have equal digests. It is the blob `packages/<digest>.tar`, put there when the package is uploaded
or, for a package in a folder, when a request is planned. A worker unpacks it.
"""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, Annotated, Literal, Protocol

import yaml
from pydantic import BeforeValidator, Field, ValidationError, field_validator

from modis.collection import versioned
from modis.yaml_text import load_yaml
from tasks.errors import SwathmillError
from tasks.network_hosts import ENDPOINT, MOST_HOSTS, read_endpoint
from tasks.packages.file_names import layer_name
from tasks.packages.package_reference import NAME, PackageReference
from tasks.packages.parameters import Declared
from tasks.packages.python_dependencies import DeclarationError, declared
from tasks.packages.requires import Requires, RequiresField
from tasks.plain_text import NotUtf8Error, decoded
from tasks.refusal_wording import NoGuide, nearest_names, refusal
from tasks.settings import Settings
from tasks.spec_parts import Band
from tasks.strict_model import StrictModel

MANIFEST = "package.yaml"
SHIPPED = Path(__file__).resolve().parents[2] / "worker" / "packages"
SERIES = SHIPPED / "series"  # shipped packages that have some files in common
_SHARED = "shared"  # the folder of those
MAX_BYTES = 512 * 2**20  # of a package's files together
MAX_FILES = 10_000
MOST_ENVIRONMENT_BYTES = 2**30  # of a package's Python dependencies, unpacked
MOST_ENVIRONMENT_FILES = 40_000
MOST_HALO = 256  # pixels: of a cell there are at least four times as many
OURS = "swathmill"
"""The owner of the packages that come with Swathmill."""
IN_FOLDER = "folder"
"""The owner of the packages of the folder that SWATHMILL_PACKAGES names."""

LayerKind = Literal["continuous", "class", "bitfield"]

_EXECUTABLE = 0o755
_PLAIN = 0o644
_CHUNK = 2**20
_LONGEST_NAME = 255  # bytes, as file systems have it
_LONGEST_PATH = 1024
SKIPPED = frozenset({"__pycache__", "__MACOSX", ".git", ".DS_Store"})
"""Files and folders of these names are left out of a package."""


class PackageError(SwathmillError):
    """A reduction package cannot be used: what is wrong with it, and what to do."""


class NoPackageError(PackageError):
    """No package is meant by a reference."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


CellMethod = Literal[
    "maximum",
    "maximum_absolute_value",
    "mean",
    "mean_absolute_value",
    "mean_of_upper_decile",
    "median",
    "mid_range",
    "minimum",
    "minimum_absolute_value",
    "mode",
    "point",
    "range",
    "root_mean_square",
    "standard_deviation",
    "sum",
    "sum_of_squares",
    "variance",
]
"""What statistics are called in CF-1.11, Appendix E."""


class Output(StrictModel):
    """One file the package writes into OUTPUT_DIR; `{layer}` stands for each layer's label.

    A `raster` is a GeoTIFF on the group's grid, which is mosaicked over the cells; a `file` is
    handed over as it is. `cell_method` says how a raster's values come of those of the window, by
    the names of CF (Appendix E): its cube has it as `cell_methods`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.{}-]{1,120}$")
    kind: Literal["raster", "file"]
    cell_method: CellMethod | Literal[""] = ""

    @field_validator("name")
    @classmethod
    def _one_place(cls, name: str) -> str:
        rest = name.replace("{layer}", "")
        if "{" in rest or "}" in rest or name.startswith("."):
            raise ValueError(
                f"{name!r}: only {{layer}} is filled in, and no name starts with a dot"
            )
        return name


def _output(value: object) -> object:
    """Convert a bare file name to an output: a raster when it ends like a GeoTIFF."""
    if isinstance(value, str):
        raster = value.lower().endswith((".tif", ".tiff"))
        return {"name": value, "kind": "raster" if raster else "file"}
    return value


class Resources(StrictModel):
    """What one run may use; beyond it the run is ended.

    `cores` are processors of the worker that no other run of a package has at the time.
    """

    cores: Annotated[int, Field(ge=1, le=256)] = 1
    memory_gb: Annotated[float, Field(gt=0, le=1024)] = 2.0
    timeout_seconds: Annotated[float, Field(gt=0, le=7 * 86400)] = 600.0
    processes: Annotated[int, Field(ge=1, le=4096)] = 64
    output_gb: Annotated[float, Field(gt=0, le=1024)] = 8.0

    @property
    def declares_disk(self) -> bool:
        """True if `output_gb` is the package's own number, not the default."""
        return "output_gb" in self.model_fields_set


class Inputs(StrictModel):
    """How a package gets its rasters.

    `format`: GeoTIFFs as stored; or flat files with ENVI headers, or NetCDF, in physical units.
    `halo`: so many pixels of the neighbouring cells around each cell, which are cut off the
    outputs. `region`: a mask of the request's region, too.
    """

    format: Literal["geotiff", "envi", "netcdf"] = "geotiff"
    halo: Annotated[int, Field(ge=0, le=MOST_HALO)] = 0
    region: bool = False


class Package(StrictModel):
    """Describe a package: its manifest.

    `command` is run in the package's folder as `command... INPUT_DIR OUTPUT_DIR`. `parameters` are
    those that the package accepts; with None the package declares none and accepts any.
    """

    name: str = Field(pattern=rf"^{NAME}$")
    version: str = Field("1", max_length=40)
    description: str = Field("", max_length=2000)
    command: tuple[str, ...] = Field(min_length=1, max_length=64)
    outputs: tuple[
        Annotated[Output, BeforeValidator(_output, json_schema_input_type=str | Output)], ...
    ] = Field(min_length=1, max_length=64)
    takes: tuple[LayerKind, ...] = Field(("continuous", "class", "bitfield"), min_length=1)
    """The kinds of layers it gets; others of a request are left out of its groups."""
    requires: RequiresField = Requires()
    """What a group must have for a run, unless the request's step says otherwise."""
    inputs: Inputs = Inputs()
    manifest: Literal[1] = 1
    """The version of `manifest.json` that it reads."""
    resources: Resources = Resources()
    network: tuple[Annotated[str, Field(pattern=ENDPOINT, max_length=260)], ...] = Field(
        (), max_length=MOST_HOSTS
    )
    """The hosts that it connects to, over HTTPS: HOST, or HOST:PORT."""
    parameters: dict[Annotated[str, Field(max_length=100)], Declared] | None = Field(
        None, max_length=64
    )
    checkpoint: bool = False
    """Whether a run goes on from what an earlier attempt left in `$SWATHMILL_CHECKPOINT`."""

    @field_validator("network")
    @classmethod
    def _names(cls, network: tuple[str, ...]) -> tuple[str, ...]:
        for one in network:
            read_endpoint(one)
        return network

    @field_validator("version", mode="before", json_schema_input_type=str | int | float)
    @classmethod
    def _as_text(cls, version: object) -> object:
        return str(version) if isinstance(version, int | float) else version

    def expand(self, labels: Iterable[str]) -> tuple[str, ...]:
        """Return the file names that one run must write for layers with these labels."""
        return tuple(name for name, _ in self.expand_outputs(labels))

    def expand_outputs(self, labels: Iterable[str]) -> tuple[tuple[str, Output], ...]:
        """As `expand`, each name with the output it comes from."""
        layers = tuple(labels)
        names: dict[str, Output] = {}
        for output in self.outputs:
            fills = layers if "{layer}" in output.name else ("",)
            for label in fills:
                names.setdefault(output.name.replace("{layer}", label), output)
        return tuple(names.items())


@dataclass(frozen=True, kw_only=True)
class PackageArchive:
    """A package as one deterministic tar; its blob is `packages/<digest>.tar`."""

    data: bytes
    digest: str  # SHA-256 of `data`, in hexadecimal

    @property
    def blob(self) -> str:
        """The blob's name within the container `packages`."""
        return blob_of(self.digest)


@dataclass(frozen=True, kw_only=True)
class FoundPackage:
    """A package that can be run: its manifest, and its folder or the digest of its stored archive.

    `owner` is `swathmill` for a shipped package, `folder` for one of the folder that
    SWATHMILL_PACKAGES names.
    """

    package: Package
    owner: str
    folder: Path | None = None
    digest: str = ""

    @property
    def name(self) -> str:
        """Owner, name and version, as a request may name it."""
        return f"{self.owner}/{self.package.name}@{self.package.version}"

    def archive(self) -> PackageArchive | None:
        """Pack a package in a folder; None for one that is stored.

        Raises:
            PackageError: it cannot be packed, or has to be uploaded for its Python dependencies.
        """
        if self.folder is None:
            return None
        archive = pack(self.folder)
        try:
            needs = declared(self.package.command, _files(self.folder))
        except DeclarationError as error:
            raise PackageError(f"{self.folder}: {error}.") from None
        if needs is not None:
            raise PackageError(
                f"{self.folder} declares Python dependencies in {needs.said_in}, which are "
                "resolved when a package is uploaded: `swathmill package push`."
            )
        return archive


class PackageSource(Protocol):
    """Where the packages are found that a request may name."""

    def names(self) -> tuple[str, ...]:
        """Return what a request may write for each package, sorted."""
        ...

    def find(self, reference: str) -> FoundPackage:
        """Find the package of a reference.

        Raises PackageError when there is no such package or it cannot be used.
        """
        ...


class Packages:
    """The packages of some folders, each a folder of packages; a later one hides an earlier."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    @classmethod
    def of(cls, settings: Settings) -> "Packages":
        """Return the shipped packages, then those of the folder that SWATHMILL_PACKAGES names."""
        more = (Path(settings.packages),) if settings.packages else ()
        return cls((SHIPPED, SERIES, *more))

    def names(self) -> tuple[str, ...]:
        """Return the names of all packages, sorted."""
        return tuple(sorted({name for folder in self._folders for name in _names(folder)}))

    def find(self, reference: str) -> FoundPackage:
        """Find the package of this name, owned by `swathmill` or `folder` if one is named.

        Raises PackageError when there is no such package or its manifest is wrong.
        """
        try:
            asked = PackageReference.parse(reference)
        except ValueError:
            raise self._unknown(reference) from None
        for folder in reversed(self._folders):
            owner = OURS if folder in (SHIPPED, SERIES) else IN_FOLDER
            place = folder / asked.name
            if asked.owner not in ("", owner) or not (place / MANIFEST).is_file():
                continue
            found = FoundPackage(package=load_package(place), owner=owner, folder=place)
            if asked.version in ("", found.package.version) and not asked.digest:
                return found
        raise self._unknown(reference)

    def every(self) -> tuple[FoundPackage, ...]:
        """Return all packages by name, without those whose manifest is wrong."""
        found = []
        for name in self.names():
            try:
                found.append(self.find(name))
            except PackageError:
                # A broken package is not offered; a request that names it is told what is wrong.
                continue
        return tuple(found)

    def _unknown(self, name: str) -> NoPackageError:
        return NoPackageError(f"there is no package {name!r}.", nearest_names(name, self.names()))


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    return {manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST}")}


def blob_of(digest: str) -> str:
    """Return the name of an archive's blob within the container `packages`."""
    return f"{digest}.tar"


def load_package(folder: Path) -> Package:
    """Load the manifest in a package's folder; PackageError names the offending field."""
    path = folder / MANIFEST
    try:
        return _read_manifest(decoded(path.read_bytes()))
    except FileNotFoundError:
        raise PackageError(
            f"{folder} has no {MANIFEST}; add one, see docs/reductions.md."
        ) from None
    except NotUtf8Error as error:
        raise PackageError(f"{path}: {error}.") from None
    except (yaml.YAMLError, ValueError) as error:
        raise PackageError(f"{path} is not YAML: {error}. Mend it.") from None
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from None


@lru_cache(maxsize=64)
def _read_manifest(text: str) -> Package:
    document = load_yaml(text)
    try:
        return Package.model_validate(document)
    except ValidationError as error:
        wrong = refusal(error, document, NoGuide())
        raise PackageError(f"{wrong.field}: {wrong.problem} {wrong.remedy}") from None


def pack(folder: Path) -> PackageArchive:
    """Pack a package's folder into a deterministic archive.

    Raises:
        PackageError: the folder has a link or a special file, no manifest, or more than 512 MiB or
            10,000 files in all.
    """
    load_package(folder)
    buffer = io.BytesIO()
    files = _files(folder)
    if folder.parent == SERIES:
        files.update(_files(SERIES / _SHARED))
    write_archive(files, buffer)
    data = buffer.getvalue()
    return PackageArchive(data=data, digest=hashlib.sha256(data).hexdigest())


def write_archive(files: Mapping[PurePosixPath, Path], to: IO[bytes]) -> None:
    """Write files under their paths in a package as its deterministic archive.

    A file is executable in the archive if its owner may execute it.
    """
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, file in sorted(files.items()):
            stat = file.stat()
            entry = tarfile.TarInfo(path.as_posix())
            entry.size = stat.st_size
            entry.mode = _EXECUTABLE if stat.st_mode & 0o100 else _PLAIN
            with file.open("rb") as content:
                tar.addfile(entry, content)


def _files(folder: Path) -> dict[PurePosixPath, Path]:
    """Return the plain files of a package's folder by their paths in it."""
    found: dict[PurePosixPath, Path] = {}
    total = 0
    for path in sorted(folder.rglob("*")):
        relative = PurePosixPath(path.relative_to(folder).as_posix())
        if SKIPPED.intersection(relative.parts) or (path.is_dir() and not path.is_symlink()):
            continue
        if path.is_symlink() or not path.is_file():
            raise PackageError(f"{path} is not a plain file; a package holds plain files only.")
        found[relative] = path
        total += path.stat().st_size
        if total > MAX_BYTES:
            raise PackageError(f"{folder} is larger than {MAX_BYTES >> 20} MiB; make it smaller.")
        if len(found) > MAX_FILES:
            raise PackageError(f"{folder} has more than {MAX_FILES:,} files; put them together.")
    return found


def unpack(archive: bytes | Path, to: Path) -> Package:
    """Unpack an archive into an empty folder and load its manifest.

    The members are checked here and written one by one: `tarfile`'s own check (`filter="data"`)
    is not in Python 3.11.0 to 3.11.3, and Debian 12 has 3.11.2. Nothing is written before all
    members have passed.

    Raises:
        PackageError: the archive is damaged, too large, or holds anything but plain files below
            the folder.
    """
    _extract(archive, to, MAX_BYTES, MAX_FILES)
    return load_package(to)


def unpack_environment(archive: Path, to: Path) -> None:
    """Unpack the archive of a package's Python dependencies into an empty folder, as `unpack`."""
    _extract(archive, to, MOST_ENVIRONMENT_BYTES, MOST_ENVIRONMENT_FILES)


def _extract(archive: bytes | Path, to: Path, most_bytes: int, most_files: int) -> None:
    try:
        with _opened(archive) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            for path, member in _checked(tar, most_bytes, most_files).items():
                place = to / path
                place.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                with place.open("xb") as out:
                    if content is not None:
                        shutil.copyfileobj(content, out, _CHUNK)
                place.chmod(_EXECUTABLE if member.mode & 0o100 else _PLAIN)
    except (tarfile.TarError, ValueError) as error:  # ValueError: a number in a header is none
        raise PackageError(f"the package archive is damaged: {error}. Submit again.") from error


def _opened(archive: bytes | Path) -> IO[bytes]:
    return io.BytesIO(archive) if isinstance(archive, bytes) else archive.open("rb")


def _checked(
    members: Iterable[tarfile.TarInfo], most_bytes: int, most_files: int
) -> dict[PurePosixPath, tarfile.TarInfo]:
    """Check the members and return them by their paths below the package's folder.

    Raises PackageError for anything that `pack` does not write. Each member is checked as soon as
    it is read: a negative size sends `tarfile` back to the same header for ever.
    """
    found: dict[PurePosixPath, tarfile.TarInfo] = {}
    folders: set[PurePosixPath] = set()
    total = 0
    for member in members:
        path = PurePosixPath(member.name)
        total += member.size
        if not member.isreg() or member.issparse():
            why = "is a link, a folder or a special file; only plain files are allowed"
        elif wrong := wrong_path(member.name):
            why = wrong
        elif path in found or path in folders:
            why = "is there twice"
        elif found.keys() & {*path.parents}:
            why = "lies below a file"
        elif member.size < 0 or total > most_bytes:
            why = f"makes the package larger than {most_bytes >> 20} MiB"
        elif len(found) >= most_files:
            why = f"is one file more than the {most_files:,} that are allowed"
        else:
            found[path] = member
            folders.update(path.parents)
            continue
        raise PackageError(f"the package archive is not safe: {member.name!r} {why}. Submit again.")
    return found


def wrong_path(name: str) -> str:
    """Say why a member's name is no path below the package's folder; "" if it is one."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or "\0" in name:
        return "does not lie below the package's folder"
    if len(os.fsencode(path)) > _LONGEST_PATH or any(
        len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts
    ):
        return "has too long a name"
    return ""


def layer_labels(bands: Iterable[Band], *, short: bool) -> dict[tuple[str, str, str], str]:
    """File-name labels of the layers among bands, by (product, collection, layer), in order.

    A layer's label is its name; where two products have it, the product is put before, with its
    collection as granules have it (005), or in the `short` spelling of earlier builds (5).
    """
    layers = list(dict.fromkeys((b.product, b.collection, b.layer) for b in bands))
    plain = [layer_name(layer) for _, _, layer in layers]
    return {
        key: label if plain.count(label) == 1 else f"{_labelled(*key[:2], short=short)}.{label}"
        for key, label in zip(layers, plain, strict=True)
    }


def _labelled(product: str, collection: str, *, short: bool) -> str:
    name = layer_name(product)
    return ".".join(filter(None, (name, collection))) if short else versioned(name, collection)
