"""The tasks of a reduction: groups of cells, a run for each, and a mosaic of each raster output."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from service_manager.planner.draft import Draft
from service_manager.planner.expected import SeenOf, WindowLacks, bands, cells, half
from service_manager.planner.layers import CELL_FILE, Layout, Made, ProductLayers
from service_manager.planner.windows import shares, window_end, window_kind, window_start
from tasks.errors import RequestRefusedError
from tasks.model.absence import bounded
from tasks.model.packages import Package, PackageArchive, PackageError, Packages, layer_labels, pack
from tasks.model.spec import Band, GroupSpec, Input, MosaicSpec, ReduceSpec
from tasks.request.document import Reduction
from tasks.request.resolved import ResolvedRequest
from tasks.request.taking import check_taken, takes

_Member = tuple[int, date, int, bytes, float]
"""A cell in a window: product choice, day, layer, task key, weight."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The reduction a request asks for, with its package as found and packed."""

    reduction: Reduction
    package: Package
    archive: PackageArchive


def chosen(resolved: ResolvedRequest, packages: Packages) -> Chosen | None:
    """Return the request's reduction.

    Raises RequestRefusedError when its package is absent or unusable.
    """
    reduction = resolved.request.reduction
    if reduction is None:
        return None
    try:
        found = packages.find(reduction.package)
        archive = pack(found.folder)
    except PackageError as error:
        raise RequestRefusedError(
            "reduction.package", f"{error}", "Name a package that can be used."
        ) from None
    check_taken(resolved, found.package)
    return Chosen(reduction=reduction, package=found.package, archive=archive)


class Groups:
    """The cells made so far that still wait for their window to end, by window and place."""

    def __init__(self, layout: Layout, chosen: Chosen) -> None:
        self._layout = layout
        self._chosen = chosen
        self._kind = window_kind(chosen.reduction)
        self._open: dict[str, dict[int, list[_Member]]] = {}

    def add(self, made: Iterable[Made], wanted: Sequence[ProductLayers]) -> None:
        """Add cells of the layers that the package takes.

        Cells of windows that are closed already are ignored.
        """
        span, weight = self._layout.request.time, self._layout.request.weight
        windows: dict[tuple[int, date], list[tuple[str, float]]] = {}
        for cell in made:
            when = cell.choice, cell.day
            if when not in windows:
                period = wanted[cell.choice].period
                windows[when] = [*shares(cell.day, period, self._kind, span, weight)]
            if not takes(self._chosen.package, wanted[cell.choice].layers[cell.layer]):
                continue
            for window, share in windows[when]:
                place = self._open.setdefault(window, {}).setdefault(cell.place, [])
                key = bytes.fromhex(cell.key)
                place.append((cell.choice, cell.day, cell.layer, key, share))

    def close(
        self, before: date | None, wanted: Sequence[ProductLayers], seen: SeenOf, draft: Draft
    ) -> None:
        """Plan the windows that end before a day, or all when it is None.

        Each cell gets a group and a run, and each window its mosaics. `seen` are the days of a
        product choice so far.
        """
        span = self._layout.request.time
        for window in sorted(self._open):
            if before is None or window_end(window, self._kind, span) < before:
                lacks = WindowLacks(wanted, self._chosen.package, window, self._kind, seen)
                self._plan(window, self._open.pop(window), wanted, lacks, draft)

    def forget(self, before: date) -> None:
        """Leave out windows that end before a day: they are planned."""
        span = self._layout.request.time
        for window in [*self._open]:
            if window_end(window, self._kind, span) < before:
                del self._open[window]

    def _plan(
        self,
        window: str,
        places: dict[int, list[_Member]],
        wanted: Sequence[ProductLayers],
        lacks: WindowLacks,
        draft: Draft,
    ) -> None:
        layout, chosen = self._layout, self._chosen
        rasters: dict[str, list[Input]] = defaultdict(list)
        for index in sorted(places):
            name = layout.places[index].name
            members = sorted(places[index])  # by product, day, layer
            made = ((choice, day) for choice, day, _, _, _ in members)
            named, unnamed = bands(lacks.at(index, made), wanted, chosen.package)
            group = GroupSpec(
                inputs=tuple(
                    Input(key=key.hex(), name=f"{name} {day}", file=CELL_FILE)
                    for _, day, _, key, _ in members
                ),
                missing=named,
                missing_unnamed=unnamed,
                group=f"{name} {window}",
                cell=name,
                window=window,
                grid=layout.cells[index],
                bands=tuple(_band(wanted, name, member) for member in members),
            )
            for file, given in _reduce(layout, chosen, group, draft):
                rasters[file].append(given)
        empty = bounded(
            absent
            for index in lacks.places
            if index not in places
            for absent in cells(f"{layout.places[index].name} {window}", lacks.at(index, ()))
        )
        for file, inputs in rasters.items():
            stem = file.rpartition(".")[0]
            spec = MosaicSpec(
                inputs=tuple(inputs),
                missing=empty.named,
                missing_unnamed=empty.unnamed,
                name=f"{stem}.{window}",
                grid=layout.grid,
                clip=layout.clip,
            )
            first = window_start(window, self._kind, self._layout.request.time)
            draft.raster(spec, f"{chosen.package.name}/{stem}", first)


def _band(wanted: Sequence[ProductLayers], cell: str, member: _Member) -> Band:
    number, day, layer, _, weight = member
    choice = wanted[number].choice
    return Band(
        product=choice.name,
        collection=choice.collection,
        layer=wanted[number].layers[layer].name + half(wanted[number]),
        day=day,
        cell=cell,
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
        pixels=group.amount,
    )
    key = draft.add(spec, folder if plain_files or layout.request.cells else "")
    return [
        (name, Input(key=key, name=group.group, file=name))
        for name, output in outputs
        if output.kind == "raster"
    ]
