"""The steps of a request's reduction, each with the package that it runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from service_manager.planner.layers import ProductLayers
from tasks.errors import RequestRefusedError
from tasks.packages.packages import PackageArchive, PackageError, PackageSource
from tasks.request.resolved import ResolvedRequest
from tasks.request.taking import StepPackage, raster_outputs


@dataclass(frozen=True, kw_only=True)
class Chosen(StepPackage):
    """A step with its package.

    `exact` is the package's owner, name and version with the digest of its archive. The archive is
    None if storage has it. `rasters` are the names, without ending, of the rasters that it makes at
    most.
    """

    digest: str
    archive: PackageArchive | None
    exact: str
    rasters: tuple[str, ...]

    @property
    def number(self) -> int:
        """The number of its step."""
        return self.step.number

    @property
    def name(self) -> str:
        """The name of its step, which is the folder of its results."""
        return self.step.name

    def taken(self, wanted: ProductLayers) -> list[str]:
        """List the layers of a product choice that it takes."""
        return [layer.name for layer in wanted.layers if self.takes(wanted.number, layer)]

    def used(self, wanted: Sequence[ProductLayers]) -> list[ProductLayers]:
        """List the product choices of which it takes a layer."""
        return [one for one in wanted if self.taken(one)]


def chosen(resolved: ResolvedRequest, packages: PackageSource) -> tuple[Chosen, ...]:
    """Return the steps of the request's reduction; none if it has no reduction.

    Raises RequestRefusedError when a package is absent or unusable.
    """
    found = []
    for step in resolved.steps:
        try:
            one = packages.find(step.reduction.package)
            found.append((one, one.archive()))
        except PackageError as error:
            raise RequestRefusedError(
                f"{step.field}.package", f"{error}", "Name a package that can be used."
            ) from None
    rasters = raster_outputs(resolved, [one.package for one, _ in found])
    return tuple(
        Chosen(
            step=step,
            package=one.package,
            digest=digest,
            archive=archive,
            exact=f"{one.name} {digest}",
            rasters=made,
        )
        for step, (one, archive), made in zip(resolved.steps, found, rasters, strict=True)
        for digest in [archive.digest if archive is not None else one.digest]
    )


def archives(steps: Sequence[Chosen]) -> Iterator[PackageArchive]:
    """Yield each archive that storage may lack, once."""
    found = {step.archive.digest: step.archive for step in steps if step.archive is not None}
    yield from found.values()
