"""How complete an artifact is: by what its inputs say, and by what its task does without."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reprojection.read.completeness import Completeness, Missing, of_parts
from tasks.model.spec import CubeSpec, GroupSpec, MosaicSpec, ReprojectSpec

NO_FILE = "has no raster of this layer, because all of its inputs are missing"


def completeness_of(
    spec: ReprojectSpec | MosaicSpec | CubeSpec | GroupSpec,
    parts: Sequence[Completeness],
    without: Sequence[Missing] = (),
) -> Completeness:
    """That of the artifact; `parts` are its inputs', `without` those that have no file."""
    absent = spec.absent_parts + len(without)
    return of_parts(parts, absent, (*missing_of(spec), *without), unnamed_of(spec))


def missing_of(
    spec: ReprojectSpec | MosaicSpec | CubeSpec | GroupSpec,
) -> tuple[Missing, ...]:
    """What a task does without, as an artifact says it, by name."""
    return tuple(sorted({Missing(what=one.what, why=one.why) for one in spec.missing}))


def unnamed_of(spec: ReprojectSpec | MosaicSpec | CubeSpec | GroupSpec) -> int:
    """How many more inputs a task does without than it names."""
    return spec.missing_unnamed.inputs if spec.missing_unnamed else 0


def without_file(
    spec: MosaicSpec | CubeSpec, fetched: Mapping[int, tuple[Path, ...]]
) -> tuple[Missing, ...]:
    """The inputs that have not the file that the task puts together: a reduction over fewer layers
    than were planned has fewer outputs."""
    return tuple(
        Missing(what=spec.inputs[index].name, why=NO_FILE)
        for index, files in sorted(fetched.items())
        if not files
    )
