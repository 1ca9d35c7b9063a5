"""What the packages of a reduction's steps take of a request's layers and of earlier steps.

The kinds that a package works on are known of layers by the catalogue; the rasters that a package
made hold continuous values.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from reprojection.catalogue.layers import LayerKind
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Package, layer_labels
from tasks.packages.requires import Requires
from tasks.request.document import ProductChoice
from tasks.request.resolved import ResolvedLayer, ResolvedRequest
from tasks.request.steps import Step
from tasks.spec_parts import Band
from tasks.storage.schema import PADDED_LABELS, written

_WORDS = {
    LayerKind.CONTINUOUS: "continuous values",
    LayerKind.CLASS: "classes",
    LayerKind.BITFIELD: "bit fields",
}


@dataclass(frozen=True, kw_only=True)
class StepPackage:
    """A step of a reduction with its package."""

    step: Step
    package: Package

    @property
    def requires(self) -> Requires:
        """The least that one run must have: the step's own word, or the package's."""
        return self.step.reduction.requires or self.package.requires

    def takes(self, choice: int, layer: ResolvedLayer) -> bool:
        """Tell whether it takes a layer of a product choice.

        A layer that the catalogue does not describe is judged when its granules are read.
        """
        if not self.step.takes_layer(choice, layer.name):
            return False
        return layer.entry is None or layer.entry.kind.value in self.package.takes

    @property
    def steps(self) -> tuple[int, ...]:
        """The earlier steps of which it takes outputs."""
        return tuple(self.step.outputs) if _MADE.value in self.package.takes else ()


_MADE = LayerKind.CONTINUOUS
"""The kind of what packages make."""


def band_of(choice: ProductChoice, layer: str, day: date) -> Band:
    """Return a layer of a date as a band of a group, of no cell yet.

    A package sees the halves of the day as two layers, and the products of a record that stand for
    one another as one.
    """
    half = "" if choice.day_night == "any" else f".{choice.day_night}"
    shared = choice.part is not None and choice.part.shares_dates
    return Band(
        product=choice.asked if shared else choice.name,
        collection="" if shared else choice.collection,
        layer=f"{choice.asked_layer(layer)}{half}",
        day=day,
        cell="",
    )


def raster_outputs(
    resolved: ResolvedRequest, packages: Sequence[Package]
) -> tuple[tuple[str, ...], ...]:
    """Return the names, without ending, of the rasters that each step makes at most.

    Raises:
        RequestRefusedError: a step takes nothing that its package works on, or an output that is
            not there.
    """
    found: list[tuple[str, ...]] = []
    for step, package in zip(resolved.steps, packages, strict=True):
        one = StepPackage(step=step, package=package)
        _check_outputs(resolved, step, found)
        bands = [
            band_of(product.choice, layer.name, date.min)
            for product in resolved.products
            for layer in product.layers
            if one.takes(product.number, layer)
        ]
        bands += [
            Band(
                product=resolved.steps[number].name,
                collection="",
                layer=output,
                day=date.min,
                cell="",
            )
            for number in one.steps
            for output in found[number]
            if step.takes_output(number, output)
        ]
        if not bands:
            raise _nothing_taken(resolved, one)
        outputs = package.expand_outputs(
            layer_labels(bands, short=written() < PADDED_LABELS).values()
        )
        found.append(tuple(name.rpartition(".")[0] for name, o in outputs if o.kind == "raster"))
    return tuple(found)


def taking_notes(resolved: ResolvedRequest, packages: Sequence[Package]) -> tuple[str, ...]:
    """Return what a scientist should know of the layers that the packages leave out."""
    notes = []
    for step, package in zip(resolved.steps, packages, strict=True):
        left = [*_left_out(resolved, StepPackage(step=step, package=package))]
        if left:
            notes.append(
                f"{package.name} takes layers of {kinds_taken(package)}; left out of the "
                f"reduction: {', '.join(left)}."
            )
    taken = {choice for step in resolved.steps for choice in step.layers}
    idle = [one.choice.name for one in resolved.products if one.number not in taken]
    if resolved.steps and idle:
        notes.append(f"No step of the reduction takes {', '.join(dict.fromkeys(idle))}.")
    return tuple(notes)


def _check_outputs(resolved: ResolvedRequest, step: Step, made: Sequence[tuple[str, ...]]) -> None:
    for number, names in step.outputs.items():
        for name in sorted(names or ()):
            if name not in made[number]:
                there = ", ".join(made[number]) or "it makes no raster"
                raise RequestRefusedError(
                    f"{step.field}.takes",
                    f"the step {resolved.steps[number].name} makes no raster {name!r}.",
                    f"Its rasters are: {there}.",
                )
        if not made[number]:
            raise RequestRefusedError(
                f"{step.field}.takes",
                f"the step {resolved.steps[number].name} makes no raster to take.",
                "Take a step whose package has an output of the kind raster.",
            )


def _nothing_taken(resolved: ResolvedRequest, one: StepPackage) -> RequestRefusedError:
    left = [*_left_out(resolved, one)]
    left += [
        f"the step {resolved.steps[number].name} (continuous values)" for number in one.step.outputs
    ]
    return RequestRefusedError(
        f"{one.step.field}.package",
        f"{one.package.name} takes layers of {kinds_taken(one.package)}, and the request names "
        f"none: {', '.join(left)}.",
        "Add a layer that it takes, name another package, or leave the reduction out.",
    )


def kinds_taken(package: Package) -> str:
    """Describe in words what a package takes."""
    return " or ".join(_WORDS[LayerKind(kind)] for kind in package.takes)


def _left_out(resolved: ResolvedRequest, one: StepPackage) -> Iterator[str]:
    for product in resolved.products:
        for layer in product.layers:
            asked = one.step.takes_layer(product.number, layer.name)
            if asked and layer.entry is not None and not one.takes(product.number, layer):
                yield f"{product.choice.name} {layer.name} ({_WORDS[layer.entry.kind]})"
