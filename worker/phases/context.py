"""The surroundings of a phase: its inputs as local files, its folder, and where results go."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socket import gethostname
from typing import Any

from modis.formats import is_granule_file
from reprojection.errors import NotHeldError, UnreadableGranuleError
from reprojection.formats.held import PACKED
from reprojection.inspect.soundness import read_whole
from reprojection.isolation import run_in_fork
from reprojection.read.completeness import WHOLE, Completeness
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile, RunUse
from tasks.errors import BlobMissingError, CorruptBlobError
from tasks.service.classify import AttemptError
from tasks.settings import Settings
from tasks.storage.blobs import ARTIFACTS, Blobs, artifact_name, is_damaged, split_blob
from worker.files.cache import Cache
from worker.sandbox.sandbox import Tier

Tell = Callable[[float, str], None]


STEPS = 50  # stretches of an attempt that are told apart
_ONE = 0.01  # seconds between two stretches of one part that count as one


@dataclass
class Spent:
    """The seconds of an attempt that went into fetching and storing; it computes in the others.

    `steps` are when: part, begin and end in POSIX seconds.
    """

    fetching: float = 0.0
    storing: float = 0.0
    steps: list[tuple[str, float, float]] = field(default_factory=list)

    @contextmanager
    def fetch(self) -> Iterator[None]:
        """Count what is done meanwhile as fetching."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.fetching += seconds
            self._step("fetch", seconds)

    @contextmanager
    def store(self) -> Iterator[None]:
        """Count what is done meanwhile as storing."""
        began = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - began
            self.storing += seconds
            self._step("store", seconds)

    def _step(self, part: str, seconds: float) -> None:
        ended = time.time()
        last = self.steps[-1] if self.steps else ("", 0.0, 0.0)
        if last[0] == part and ended - seconds - last[2] < _ONE:
            self.steps[-1] = (part, last[1], ended)
        elif len(self.steps) < STEPS:
            self.steps.append((part, ended - seconds, ended))


@dataclass(kw_only=True)
class Surroundings:
    """What running a package needs: `scratch` is a folder of its own.

    There is no `sandbox` where none works that the settings allow. `save` is told the size of each
    state of the run's checkpoint; None: nobody keeps any.
    """

    scratch: Path
    settings: Settings
    tell: Tell
    sandbox: Tier | None
    save: Callable[[int], None] | None = None
    used: RunUse | None = None  # what a package's run has used, once it is over

    @property
    def admission(self) -> Path:
        """The folder by which the runs of packages on this machine share what it has."""
        return self.settings.data_dir / "processors" / gethostname()

    def note_use(self, used: RunUse) -> None:
        """Note what a package's run has used."""
        self.used = used

    def folder(self, name: str) -> Path:
        """Create a folder within the attempt's own."""
        path = self.scratch / name
        path.mkdir()
        return path


@dataclass(kw_only=True)
class Context(Surroundings):
    """The surroundings of one attempt. `inputs` are the artifacts' files by input index.

    `struck` has the SHA-256 of copies of the artifact that turned out to be damaged. `after_crash`:
    the attempt has crashed once, so each granule is first read in a process that may die.
    There is no `cache` where the blobs themselves are files of this machine. `given` is the folder
    for inputs if it is not in `scratch`: then a maker opens them. `state` is the blob of the
    checkpoint from which the attempt goes on, if any.
    """

    key: str
    claim: str
    inputs: Mapping[int, tuple[ArtifactFile, ...]]
    blobs: Blobs
    cache: Cache | None
    struck: tuple[str, ...] = ()
    after_crash: bool = False
    given: Path | None = None
    state: str = ""
    spent: Spent = field(default_factory=Spent)

    def fetch_inputs(self, until: float = 0.5) -> dict[int, tuple[Path, ...]]:
        """Fetch all inputs as verified local files, by input index and in their order.

        Each input has its own folder, because two may have files with the same name. `until` is the
        share of the attempt's progress that this takes.

        Raises:
            AttemptError: source blob missing or corrupt blob read, with a bit for every input that
                has to be made again.
            CorruptBlobError: a blob was damaged in transit.
            UnreadableGranuleError: after a crash, a granule that is damaged or crashes the reader.
            AttemptError: after a crash, granules are held in part; they are fetched whole.
        """
        fetched: dict[int, tuple[Path, ...]] = {}
        lost: dict[int, BlobMissingError | CorruptBlobError] = {}
        for n, (index, files) in enumerate(sorted(self.inputs.items())):
            self.tell(until * n / len(self.inputs), f"fetching input {n + 1} of {len(self.inputs)}")
            try:
                with self.spent.fetch():
                    fetched[index] = tuple(self._fetch(index, file) for file in files)
            except BlobMissingError as error:
                lost[index] = error
            except CorruptBlobError as error:
                if not is_damaged(self.blobs, error):
                    raise
                lost[index] = error
        if lost:
            damaged = [error for error in lost.values() if isinstance(error, CorruptBlobError)]
            first, *_ = damaged or lost.values()
            raise AttemptError(
                Category.CORRUPT_BLOB_READ if damaged else Category.SOURCE_BLOB_MISSING,
                f"{len(lost)} of {len(self.inputs)} inputs are "
                f"{'damaged or gone' if damaged else 'gone'}, the first: {first}",
                healing=sum(1 << index for index in lost),
            )
        if self.after_crash:
            self._see_whole()
            for path in (path for files in fetched.values() for path in files):
                if is_granule_file(path.name):
                    self.tell(until, f"reading {path.name} apart, after a crash")
                    _read_apart(path)
        return fetched

    def damaged_granules(self, error: UnreadableGranuleError | NotHeldError) -> int:
        """Return a bit for each input that is a damaged granule, after one could not be read.

        A granule is damaged if the error names it, if no other can be meant, or if not all of its
        values can be read. One held in part may lie behind any damage; if nothing but bytes are
        lacking, it is the one that the error names.
        """
        granules = [
            (index, self.place(index, file))
            for index, files in self.inputs.items()
            for file in files
            if is_granule_file(file.name.removesuffix(PACKED))
        ]
        found = 0
        for index, path in granules:
            meant = path.name.removesuffix(PACKED) in str(error)
            if not isinstance(error, NotHeldError):
                meant = meant or len(granules) == 1 or not is_readable(path)
            found |= meant << index
        return found

    def _see_whole(self) -> None:
        """Raise AttemptError if a granule is held in part: such a one cannot be read apart."""
        parts = [
            index
            for index, files in self.inputs.items()
            if any(file.name.endswith(PACKED) for file in files)
        ]
        if parts:
            raise AttemptError(
                Category.UNREADABLE_INPUT_FILE,
                f"the reader crashed on {len(parts)} granules that are held in part, or on others; "
                "they are fetched whole",
                healing=sum(1 << index for index in parts),
            )

    def place(self, index: int, file: ArtifactFile) -> Path:
        """Return where a file of an input lies once it is fetched."""
        folder = self.given or self.scratch / "inputs"
        return folder / f"{index:04d}" / Path(file.name).name

    def _fetch(self, index: int, file: ArtifactFile) -> Path:
        to = self.place(index, file)
        container, name = split_blob(file.blob)

        def fetch(path: Path) -> None:
            self.blobs.get_file(container, name, path, file.sha256)

        if self.cache is None:
            to.parent.mkdir(parents=True, exist_ok=True)
            fetch(to)
        else:
            self.cache.get(file, to, fetch)
        return to

    def upload(
        self,
        path: Path,
        *,
        container: str = ARTIFACTS,
        keep: bool = True,
        completeness: Completeness = WHOLE,
        valid_share: float | None = None,
    ) -> ArtifactFile:
        """Store a file of the artifact under the claim's name, and return what was stored.

        The checksum is that of the bytes sent; every later reader verifies it. `keep` also puts the
        file into the local cache, because its next reader may run on this machine. `valid_share` is
        a raster's share of pixels with a value.
        """
        name = artifact_name(self.key, self.claim, path.name)
        with self.spent.store():
            stored = self.blobs.put_file(container, name, path)
        file = ArtifactFile(
            name=path.name,
            blob=f"{container}/{name}",
            size=stored.size,
            sha256=stored.sha256,
            completeness=completeness,
            valid_share=valid_share,
        )
        if keep and self.cache is not None:
            self.cache.put(file, path)
        return file


def is_readable(path: Path) -> bool:
    """Tell whether every value of a granule can be read, so not one that is held in part."""
    if path.name.endswith(PACKED):
        return False
    try:
        _read_apart(path)
    except UnreadableGranuleError:
        return False
    return True


def _read_apart(path: Path) -> None:
    """Read every value of a granule in a fork: a crash or a hang is an UnreadableGranuleError."""
    run_in_fork([path], read_whole, path)


Maker = Callable[[Any, Context], tuple[ArtifactFile, ...]]
"""What makes and stores the artifact of a specification of one kind."""
