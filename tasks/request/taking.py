"""Which layers of a request a reduction package takes, by their kinds in the catalogue."""

from collections.abc import Iterator

from reprojection.catalogue.layers import LayerKind
from tasks.errors import RequestRefusedError
from tasks.model.packages import Package
from tasks.request.resolved import ResolvedLayer, ResolvedRequest

_WORDS = {
    LayerKind.CONTINUOUS: "continuous values",
    LayerKind.CLASS: "classes",
    LayerKind.BITFIELD: "bit fields",
}


def takes(package: Package, layer: ResolvedLayer) -> bool:
    """Return whether a package takes a layer.

    A layer that the catalogue does not describe is judged when its granules are read.
    """
    return layer.entry is None or layer.entry.kind.value in package.takes


def check_taken(resolved: ResolvedRequest, package: Package) -> None:
    """Refuse a reduction that takes none of the request's layers.

    Raises:
        RequestRefusedError: naming the package, what it takes and what the layers hold.
    """
    left = [*_left_out(resolved, package)]
    if len(left) < sum(len(product.layers) for product in resolved.products):
        return
    raise RequestRefusedError(
        "reduction.package",
        f"{package.name} takes layers of {kinds_taken(package)}, and the request names none: "
        f"{', '.join(left)}.",
        "Add a layer that it takes, name another package, or leave the reduction out.",
    )


def taking_notes(resolved: ResolvedRequest, package: Package) -> tuple[str, ...]:
    """Return what a scientist should know of the layers that a reduction leaves out."""
    left = [*_left_out(resolved, package)]
    if not left:
        return ()
    return (
        f"{package.name} takes layers of {kinds_taken(package)}; left out of the reduction: "
        f"{', '.join(left)}.",
    )


def kinds_taken(package: Package) -> str:
    """Describe in words what a package takes."""
    return " or ".join(_WORDS[LayerKind(kind)] for kind in package.takes)


def _left_out(resolved: ResolvedRequest, package: Package) -> Iterator[str]:
    for product in resolved.products:
        for layer in product.layers:
            if layer.entry is not None and not takes(package, layer):
                yield f"{product.choice.name} {layer.name} ({_WORDS[layer.entry.kind]})"
