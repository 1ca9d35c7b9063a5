"""Compute how complete an artifact is, from its inputs and from what its task lacks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from reprojection.read.completeness import Completeness, Missing, of_parts
from tasks.bag.spec import BaseSpec, CubeSpec, GroupSpec, MosaicSpec

NO_FILE = "has no raster of this layer, because all of its inputs are missing"


def completeness_of(
    spec: BaseSpec,
    parts: Sequence[Completeness],
    without: Sequence[Missing] = (),
) -> Completeness:
    """Combine the completeness of `parts`, the inputs, with the inputs `without` a file."""
    absent = spec.absent_parts + len(without)
    return of_parts(parts, absent, (*missing_of(spec), *without), unnamed_of(spec))


def missing_of(spec: BaseSpec) -> tuple[Missing, ...]:
    """Return, sorted, the missing inputs that a task names, in the form that artifacts record."""
    return tuple(sorted({Missing(what=one.what, why=one.why) for one in spec.missing}))


def unnamed_of(spec: BaseSpec) -> int:
    """Return how many more inputs a task lacks than it names."""
    return spec.missing_unnamed.inputs if spec.missing_unnamed else 0


def without_file(
    spec: MosaicSpec | CubeSpec | GroupSpec, fetched: Mapping[int, tuple[Path, ...]]
) -> tuple[Missing, ...]:
    """List the inputs that do not contain the file that the task joins.

    A reduction over fewer layers than planned has fewer outputs.
    """
    return tuple(
        Missing(what=spec.inputs[index].name, why=NO_FILE)
        for index, files in sorted(fetched.items())
        if not files
    )
