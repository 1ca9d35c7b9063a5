"""The tasks of a reduction: groups of cells, a run for each, and a mosaic of each raster output."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from service_manager.planner.draft import Draft
from service_manager.planner.layers import Layout, Made, grid_spec
from service_manager.planner.windows import shares, window_kind
from tasks.errors import RequestRefusedError
from tasks.packages import Package, PackageArchive, PackageError, Packages, layer_labels, pack
from tasks.request import Reduction, Request
from tasks.spec import Band, GroupSpec, Input, MosaicSpec, ReduceSpec


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The reduction a request asks for, with its package as found and packed."""

    reduction: Reduction
    package: Package
    archive: PackageArchive


def chosen(request: Request, packages: Packages) -> Chosen | None:
    """The request's reduction; RequestRefusedError when its package is absent or unusable."""
    if request.reduction is None:
        return None
    try:
        found = packages.find(request.reduction.package)
        archive = pack(found.folder)
    except PackageError as error:
        raise RequestRefusedError(
            "reduction.package", f"{error}", "Name a package that can be used."
        ) from None
    return Chosen(reduction=request.reduction, package=found.package, archive=archive)


def plan_reduction(layout: Layout, chosen: Chosen, made: Sequence[Made], draft: Draft) -> None:
    """Add a group and a run for each cell and window, and each window's mosaics, to the draft."""
    grouped = _grouped(layout, chosen, made)
    for window in sorted({window for window, _ in grouped}):
        rasters: dict[str, list[Input]] = defaultdict(list)
        for place in layout.places:
            members = grouped.get((window, place.name))
            if members is None:
                continue
            group = GroupSpec(
                inputs=tuple(cell.input for cell, _ in members),
                group=f"{place.name} {window}",
                cell=place.name,
                window=window,
                grid=grid_spec(place.grid),
                bands=tuple(band for _, band in members),
            )
            for file, given in _reduce(layout, chosen, group, draft):
                rasters[file].append(given)
        for file, inputs in rasters.items():
            stem = file.rpartition(".")[0]
            spec = MosaicSpec(
                inputs=tuple(inputs),
                name=f"{stem}.{window}",
                grid=grid_spec(layout.target.grid),
                clip=layout.clip,
            )
            draft.add(spec, f"{chosen.package.name}/{stem}")


def _grouped(
    layout: Layout, chosen: Chosen, made: Sequence[Made]
) -> dict[tuple[str, str], list[tuple[Made, Band]]]:
    """The cells of each (window, cell), with their bands, in the order they were made."""
    kind, span = window_kind(chosen.reduction), layout.request.time
    grouped: dict[tuple[str, str], list[tuple[Made, Band]]] = defaultdict(list)
    for cell in made:
        for window, weight in shares(cell.day, cell.period, kind, span, layout.request.weight):
            grouped[window, cell.place.name].append((cell, _band(cell, weight)))
    return grouped


def _band(cell: Made, weight: float) -> Band:
    choice = cell.layer.choice
    # Day and night of one layer are two layers to a package.
    half = "" if choice.day_night == "any" else f".{choice.day_night}"
    return Band(
        product=choice.name,
        collection=choice.collection,
        layer=cell.layer.layer + half,
        day=cell.day,
        cell=cell.place.name,
        weight=weight,
    )


def _reduce(
    layout: Layout, chosen: Chosen, group: GroupSpec, draft: Draft
) -> list[tuple[str, Input]]:
    """Add one group and its run; the raster files it makes, each as a mosaic's input."""
    outputs = chosen.package.expand_outputs(layer_labels(group.bands).values())
    plain_files = any(output.kind == "file" for _, output in outputs)
    folder = f"{chosen.package.name}/cells/{group.window}/{group.cell}"
    spec = ReduceSpec(
        inputs=(draft.input(group, group.group),),
        package=chosen.package.name,
        digest=chosen.archive.digest,
        outputs=tuple(name for name, _ in outputs),
        parameters=chosen.reduction.parameters,
    )
    key = draft.add(spec, folder if plain_files or layout.request.cells else "")
    return [
        (name, Input(key=key, name=group.group, file=name))
        for name, output in outputs
        if output.kind == "raster"
    ]
