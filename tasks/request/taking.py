"""Which layers of a request a reduction package takes, by their kinds in the catalogue."""

from collections.abc import Iterator

from reprojection.catalogue import product
from reprojection.catalogue.layers import Kind
from tasks.errors import RequestRefusedError
from tasks.model.packages import Package
from tasks.request.request import ProductChoice, Request

_WORDS = {
    Kind.CONTINUOUS: "continuous values",
    Kind.CLASS: "classes",
    Kind.BITFIELD: "bit fields",
}


def takes(package: Package, choice: ProductChoice, layer: str) -> bool:
    """Whether a package takes a layer. One that the catalogue does not describe is judged when its
    granules are read."""
    kind = _kind(choice, layer)
    return kind is None or kind.value in package.takes


def check_taken(request: Request, package: Package) -> None:
    """Refuse a reduction that takes none of the request's layers.

    Raises:
        RequestRefusedError: naming the package, what it takes and what the layers hold.
    """
    left = [*_left_out(request, package)]
    if len(left) < sum(len(choice.layers) for choice in request.products):
        return
    raise RequestRefusedError(
        "reduction.package",
        f"{package.name} takes layers of {kinds_taken(package)}, and the request names none: "
        f"{', '.join(left)}.",
        "Add a layer that it takes, name another package, or leave the reduction out.",
    )


def taking_notes(request: Request, package: Package) -> tuple[str, ...]:
    """What a scientist should know of the layers that a reduction leaves out."""
    left = [*_left_out(request, package)]
    if not left:
        return ()
    return (
        f"{package.name} takes layers of {kinds_taken(package)}; left out of the reduction: "
        f"{', '.join(left)}.",
    )


def kinds_taken(package: Package) -> str:
    """What a package takes, in words."""
    return " or ".join(_WORDS[Kind(kind)] for kind in package.takes)


def _left_out(request: Request, package: Package) -> Iterator[str]:
    for choice in request.products:
        for layer in choice.layers:
            kind = _kind(choice, layer)
            if kind is not None and not takes(package, choice, layer):
                yield f"{choice.name} {layer} ({_WORDS[kind]})"


def _kind(choice: ProductChoice, layer: str) -> Kind | None:
    known = product(choice.name, choice.collection)
    entry = known.layer(layer) if known else None
    return entry.kind if entry else None
