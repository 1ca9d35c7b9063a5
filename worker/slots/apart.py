"""An attempt whose files are made in a maker: the child fetches, stores, and opens nothing."""

import pickle
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from reprojection.errors import NotHeldError, UnreadableGranuleError
from reprojection.formats.held import Held
from tasks.bag.categories import Category
from tasks.bag.model import ArtifactFile
from tasks.bag.spec import CollectSpec, PartsSpec, ReduceSpec
from tasks.service.classify import FULL_WHILE_MAPPED, AttemptError
from tasks.settings import Settings
from tasks.shown_text import shown
from tasks.storage.writable import is_full
from worker.files.cache import link_or_copy
from worker.phases.collect import collect
from worker.phases.context import Context
from worker.phases.parts import collect_parts
from worker.phases.reduce import reduce
from worker.sandbox.makers import (
    INPUTS,
    OUT,
    WORK,
    BadAnswerError,
    MakerEndedError,
    MakerOrder,
    Makers,
    ReadingTier,
)
from worker.sandbox.messages import Failed, Job, Progress
from worker.slots import maker_answers
from worker.slots.lent_blobs import MADE
from worker.slots.maker_answers import (
    SAID,
    Checked,
    CheckOrder,
    Lacking,
    Made,
    MadeFile,
    MakeOrder,
    PartsOrder,
    TryOrder,
)
from worker.slots.making import COPIERS

_GB = 10**9
_MOST_FILES = 1000
_LONGEST_MESSAGE, _LONGEST_NOTE = 4000, 200
_TRIED = "self-test"  # a name for what a maker is tried with
_ITS_CATEGORIES = frozenset(
    (
        Category.BAD_IMAGE_FORMAT,
        Category.BLOB_READ_FAILED,
        Category.CHOICE_REFUSED,
        Category.OUT_OF_DISK,
        Category.OUT_OF_MEMORY,
        Category.TOO_FEW_VALUES,
        Category.UNREADABLE_INPUT_FILE,
    )
)
"""What a maker can find. That a worker is lost, say, costs no try, and it must not claim that."""


class FailedApartError(Exception):
    """The maker failed; its traceback is in the log already."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Apart:
    """Makes the artifacts of jobs in the makers of this child."""

    def __init__(self, makers: Makers, settings: Settings, tier: ReadingTier) -> None:
        self._makers = makers
        self._tier = tier
        memory = int(settings.attempt_memory_gb * _GB)
        self._order = partial(
            _order,
            tier=tier,
            memory=memory,
            file_size=int(settings.attempt_disk_gb * _GB),
        )

    @property
    def home(self) -> Path:
        """The folder of the makers."""
        return self._makers.home

    @property
    def inputs(self) -> Path:
        """The folder for an attempt's inputs."""
        return self._makers.home / INPUTS

    def fault(self) -> str:
        """Try a maker: it has to read and write what is its own, and no more; say what failed."""
        makers = self._makers
        try:
            makers.begin(_TRIED, self._order)
            try:
                given, closed = self.inputs / _TRIED, makers.home / OUT / _TRIED
                for path in (given, closed):
                    path.write_bytes(b"x")
                scratch = makers.home / WORK
                not_its_own = closed if self._tier == "limits" else None
                asked = TryOrder(path=given, closed=not_its_own, scratch=scratch)
                makers.ask(pickle.dumps(asked))
                said = SAID.validate_json(makers.hear())
            finally:
                makers.end()
                makers.clear()
        except MakerEndedError as error:
            return f"it ended with {error.code}"
        except (OSError, ValidationError, BadAnswerError) as error:
            return f"{type(error).__name__}: {error}"
        if isinstance(said, Checked):
            return shown(said.other)[:_LONGEST_MESSAGE]
        return said.message if isinstance(said, Failed) else "it said something else"

    def begin(self, job: Job) -> None:
        """Have a maker for a job's request."""
        self._makers.begin(job.request, self._order)

    def make(self, job: Job, context: Context) -> tuple[ArtifactFile, ...]:
        """Make and store the artifact of the job's specification.

        Raises:
            FailedApartError: the maker said that it failed.
            MakerEndedError: it ended without saying so.
            AttemptError: no room on disk, if it ended so because a mapped file could not grow.
        """
        if isinstance(job.spec, ReduceSpec):  # a package has a sandbox of its own
            return reduce(job.spec, context)
        self.begin(job)
        try:
            if isinstance(job.spec, CollectSpec):
                return collect(job.spec, context, partial(self._check, job, context))
            if isinstance(job.spec, PartsSpec):
                read = partial(self._read, job, job.spec, context)
                check = partial(self._check, job, context)
                return collect_parts(job.spec, context, read, check, whole=job.after_crash)
            return self._made(job, context)
        except MakerEndedError as error:
            if error.code == -signal.SIGBUS and is_full(self._makers.home):  # not cleared yet
                raise AttemptError(Category.DISK_SHARED, FULL_WHILE_MAPPED) from error
            raise
        finally:
            self._makers.clear()

    def _made(self, job: Job, context: Context) -> tuple[ArtifactFile, ...]:
        context.fetch_inputs()
        if copy := COPIERS.get(type(job.spec)):
            copy(job.spec, context)
        home = self._makers.home
        inner = replace(job, scratch=home / WORK)
        said = self._said(MakeOrder(job=inner, home=home, inputs=self.inputs), context)
        if not isinstance(said, Made) or len(said.files) > _MOST_FILES:
            raise BadAnswerError("it made too much, or something else")
        return tuple(self._stored(one, context) for one in said.files)

    def _stored(self, one: MadeFile, context: Context) -> ArtifactFile:
        path = self._makers.take(one.name, MADE)
        stored = context.upload(
            path, keep=one.keep, completeness=one.completeness, valid_share=one.valid_share
        )
        path.unlink(missing_ok=True)
        return stored

    def _check(self, job: Job, context: Context, path: Path, values: bool) -> str:
        """Check a granule as `collect.checked` does, in a maker."""
        home = self._makers.home
        self.begin(job)  # the last check may have failed
        to = self.inputs / path.name
        to.unlink(missing_ok=True)
        link_or_copy(path, to)
        order = CheckOrder(path=to, values=values, apart=job.after_crash, scratch=home / WORK)
        try:
            said = self._said(order, context)
        except FailedApartError as error:
            if error.failed.category is not Category.UNREADABLE_INPUT_FILE:
                raise
            raise UnreadableGranuleError(error.failed.message) from error
        if not isinstance(said, Checked):
            raise BadAnswerError("it checked nothing")
        return shown(said.other)[:_LONGEST_MESSAGE]

    def _read(
        self, job: Job, spec: PartsSpec, context: Context, paths: Sequence[Path], sites: Path | None
    ) -> str:
        """Read granules as `parts.read_for` does, in a maker."""
        self.begin(job)
        given = tuple(self.inputs / path.name for path in paths)
        for path, to in zip(paths, given, strict=True):
            to.unlink(missing_ok=True)
            link_or_copy(path, to)
        order = PartsOrder(spec=spec, paths=given, sites=sites, scratch=self._makers.home / WORK)
        try:
            said = self._said(order, context)
        except FailedApartError as error:
            if error.failed.category is not Category.UNREADABLE_INPUT_FILE:
                raise
            raise UnreadableGranuleError(error.failed.message) from error
        if isinstance(said, Lacking):
            raise _not_held(said, paths)
        if not isinstance(said, Checked):
            raise BadAnswerError("it read nothing")
        return shown(said.other)[:_LONGEST_MESSAGE]

    def _said(
        self, order: MakeOrder | CheckOrder | PartsOrder, context: Context
    ) -> Made | Checked | Lacking:
        """Have a maker do an order; pass its progress on; return its last message."""
        self._makers.ask(pickle.dumps(order))
        while True:
            try:
                said = SAID.validate_json(self._makers.hear())
            except ValidationError:
                self._makers.end()
                raise BadAnswerError("what was said makes no sense") from None
            if isinstance(said, Failed):
                # What a failure leaves in a library ends with the process.
                self._makers.end()
                raise FailedApartError(_believed(said, context))
            if not isinstance(said, Progress):
                return said
            context.tell(said.fraction, shown(said.note)[:_LONGEST_NOTE])


def _not_held(said: Lacking, paths: Sequence[Path]) -> NotHeldError:
    """Return what a maker says it lacks, as far as it can be so."""
    if said.number >= len(paths):
        raise BadAnswerError("it lacks bytes of another file")
    held = Held.of(paths[said.number])
    last, size = 0, 0 if held is None else held.size
    for begin, end in said.ranges:
        if not last <= begin < end <= size:
            raise BadAnswerError("it lacks bytes that there are not")
        last = end
    return NotHeldError(paths[said.number], size, said.ranges, said.values)


def _believed(said: Failed, context: Context) -> Failed:
    """Return what a maker says of its failure, as far as it can know that."""
    category = said.category if said.category in _ITS_CATEGORIES else Category.UNKNOWN
    healing = 0
    if category is Category.UNREADABLE_INPUT_FILE:
        healing = said.healing & sum(1 << index for index in context.inputs)
    return Failed(category=category, message=said.message[:_LONGEST_MESSAGE], healing=healing)


def _order(home: Path, *, tier: ReadingTier, memory: int, file_size: int) -> MakerOrder:
    return MakerOrder(
        prepare=partial(maker_answers.prepare, 2 * memory),
        tier=tier,
        home=home,
        memory=2 * memory,
        file_size=file_size,
    )
