"""What a maker does and says: it makes an attempt's files of inputs, or reads a granule.

It runs in a maker (`worker/sandbox/makers.py`). Questions come pickled from its child; answers go
back as JSON, because the child believes no byte of them.
"""

import faulthandler
import gc
import math
import os
import pickle
import sys
import time
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from reprojection.errors import NotHeldError
from reprojection.read.completeness import WHOLE, Completeness
from reprojection.read.kept import KEPT_BYTES, keep_granules
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import PartsSpec
from tasks.settings import Settings
from tasks.storage.blobs import ARTIFACTS
from tasks.strict_model import StrictModel
from worker.phases.collect import checked
from worker.phases.context import Context
from worker.phases.parts import read_for
from worker.sandbox.makers import WORK
from worker.sandbox.messages import POLL_SECONDS, Failed, Job, Progress
from worker.slots.lent_blobs import MADE, LentBlobs
from worker.slots.making import failure, make

MOST_RANGES = 10_000
"""Ranges of bytes that are asked for at once; the next reading asks for more."""

COLLECT = (20_000, 10, 10)
"""Thresholds of garbage collection: metadata are many objects without a cycle."""


@dataclass(frozen=True, kw_only=True)
class MakeOrder:
    """Make the files of a job, whose inputs lie in the maker's `home`."""

    job: Job
    home: Path
    inputs: Path


@dataclass(frozen=True, kw_only=True)
class CheckOrder:
    """Check a granule; `values`: read all of it; `apart`: in a fork, after a crash."""

    path: Path
    values: bool
    apart: bool
    scratch: Path


@dataclass(frozen=True, kw_only=True)
class PartsOrder:
    """Read granules that are held in part as cells, or an extraction at a file's sites, will."""

    spec: PartsSpec
    paths: tuple[Path, ...]
    sites: Path | None
    scratch: Path


@dataclass(frozen=True, kw_only=True)
class TryOrder:
    """Read a file, write it to the `scratch` folder, and find another one, if any, `closed`."""

    path: Path
    closed: Path | None
    scratch: Path


class MadeFile(StrictModel):
    """A file that a maker made, with what it says of it; `keep`: its next reader may run here."""

    name: str
    keep: bool
    completeness: Completeness = WHOLE
    valid_share: float | None = None


class Made(StrictModel):
    """The files lie in the folder `MADE` of the job's scratch."""

    kind: Literal["made"] = "made"
    files: tuple[MadeFile, ...]


class Checked(StrictModel):
    """The granule can be read; `other` is which one it holds than its name says, "" if none.

    Of a maker that is tried `other` is what it found wrong.
    """

    kind: Literal["checked"] = "checked"
    other: str


class Lacking(StrictModel):
    """Bytes are needed that are not held: of which of the granules, of what size, which ones.

    `values` is as in `NotHeldError`.
    """

    kind: Literal["lacking"] = "lacking"
    number: int = Field(ge=0)
    size: int = Field(ge=0)
    ranges: tuple[tuple[int, int], ...] = Field(min_length=1, max_length=MOST_RANGES)
    values: bool = False


Said = Annotated[Progress | Failed | Made | Checked | Lacking, Field(discriminator="kind")]
SAID: TypeAdapter[Said] = TypeAdapter(Said)


@dataclass(kw_only=True)
class MakerContext(Context):
    """The surroundings in a maker: inputs lie there already, and what it makes stays there."""

    made: list[MadeFile] = field(default_factory=list)

    def _fetch(self, index: int, file: ArtifactFile) -> Path:
        return self.place(index, file)

    def upload(
        self,
        path: Path,
        *,
        container: str = ARTIFACTS,
        keep: bool = True,
        completeness: Completeness = WHOLE,
        valid_share: float | None = None,
    ) -> ArtifactFile:
        """Put a file where the child takes it from."""
        to = self.scratch / MADE / path.name
        path.rename(to)
        self.made.append(
            MadeFile(name=path.name, keep=keep, completeness=completeness, valid_share=valid_share)
        )
        return ArtifactFile(
            name=path.name,
            blob=f"{container}/{path.name}",
            size=to.stat().st_size,
            sha256="",
            completeness=completeness,
            valid_share=valid_share,
        )


@lru_cache(maxsize=1)
def settings() -> Settings:
    """Return the settings of makers, which have no secret. They take as long as a small attempt."""
    return Settings()


class _WithoutPandas(MetaPathFinder):
    """Finds no pandas: pyarrow looks for it when it makes its first array.

    That took 0.9 s of CPU time and 58 MB in each maker, which has no use for it.
    """

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("makers do without pandas", name=fullname)
        return None


class MakerAnswers:
    """Answers the questions of a child; keeps granules between them."""

    def __init__(self, memory: int) -> None:
        faulthandler.enable()
        gc.set_threshold(*COLLECT)
        os.umask(0o022)
        keep_granules(min(KEPT_BYTES, memory // 32))

    def __call__(self, question: bytes, to: Connection) -> None:
        """Answer a pickled question."""

        told = -math.inf

        def say(said: Said) -> None:
            to.send_bytes(said.model_dump_json().encode("utf-8"))

        def tell(share: float, note: str) -> None:
            nonlocal told
            if time.monotonic() - told >= POLL_SECONDS:  # the guard passes no more on
                told = time.monotonic()
                say(Progress(fraction=min(1.0, max(0.0, share)), note=note))

        asked: MakeOrder | CheckOrder | PartsOrder | TryOrder = pickle.loads(question)
        if isinstance(asked, TryOrder):
            say(Checked(other=self._tried(asked)))
            return
        if isinstance(asked, CheckOrder):
            try:
                said: Said = Checked(other=checked(asked.path, asked.values, apart=asked.apart))
            except Exception as error:  # noqa: BLE001 - here exceptions become categories
                said = failure(error, asked.scratch, None)
            say(said)
            return
        if isinstance(asked, PartsOrder):
            say(self._read(asked))
            return
        scratch = asked.home / WORK
        (scratch / MADE).mkdir(exist_ok=True)
        context = MakerContext(
            key=asked.job.key,
            claim=asked.job.claim,
            inputs=asked.job.inputs,
            scratch=scratch,
            given=asked.inputs,
            settings=settings(),
            blobs=LentBlobs((), scratch),
            cache=None,
            tell=tell,
            sandbox=None,
            after_crash=asked.job.after_crash,
        )
        try:
            make(asked.job, context)
            say(Made(files=tuple(context.made)))
        except Exception as error:  # noqa: BLE001 - as above
            say(failure(error, scratch, context))

    @staticmethod
    def _read(asked: PartsOrder) -> Said:
        try:
            return Checked(other=read_for(asked.spec, asked.paths, asked.sites))
        except NotHeldError as error:
            number = asked.paths.index(error.path)
            ranges = error.ranges[:MOST_RANGES]
            return Lacking(number=number, size=error.size, ranges=ranges, values=error.values)
        except Exception as error:  # noqa: BLE001 - as below
            return failure(error, asked.scratch, None)

    @staticmethod
    def _tried(asked: TryOrder) -> str:
        try:
            (asked.scratch / asked.path.name).write_bytes(asked.path.read_bytes())
        except OSError as error:
            return f"what is its own is closed to it: {error}"
        if asked.closed is None:
            return ""
        try:
            asked.closed.read_bytes()
        except OSError:
            return ""
        return "it can open what is not its own"


def prepare(memory: int) -> MakerAnswers:
    """Prepare a maker, in its own process; `memory` is what it may use, in bytes."""
    sys.meta_path.insert(0, _WithoutPandas())
    return MakerAnswers(memory)
