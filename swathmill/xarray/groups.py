"""The groups of a granule: layers that lie on the same pixels, so share rows and columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from modis.axes import Shape
from reprojection.catalogue.layers import Layer, split_index
from reprojection.errors import ChoiceRefusedError, UnknownLayerError
from reprojection.inspect.inspect import is_placeable
from reprojection.read.granule import Granule


@dataclass(frozen=True, kw_only=True)
class Group:
    """The layers of one grid, or of one resolution of a swath."""

    name: str
    shape: Shape
    grid: str | None
    swath: str | None
    layers: list[Layer] = field(default_factory=list)

    def holds(self, name: str) -> bool:
        """Tell whether a layer, or the layer of a named band, is in the group."""
        names = {layer.name for layer in self.layers}
        return name in names or split_index(name)[0] in names


def groups_of(granule: Granule) -> dict[str, Group]:
    """Sort the layers of a granule by the pixels that they lie on, in the file's order."""
    found: dict[tuple[object, ...], Group] = {}
    taken: set[str] = set()
    for layer in granule.layers.values():
        if 0 in layer.shape or any(size == 0 for _, size in layer.bands):
            continue
        key = (layer.grid,) if layer.grid else (layer.swath, layer.dims, layer.shape)
        if key not in found:
            rows, columns = layer.shape
            name = layer.grid or f"{layer.swath or 'pixels'}_{rows}x{columns}"
            # Layers of other dimensions may be of the same shape.
            name = (name if name not in taken else f"{name}_{len(taken)}").replace("/", "_")
            taken.add(name)
            found[key] = Group(name=name, shape=layer.shape, grid=layer.grid, swath=layer.swath)
        found[key].layers.append(layer)
    return {group.name: group for group in found.values()}


def choose(granule: Granule, group: str | None, layers: Sequence[str]) -> Group:
    """Return the group to open: the one named, that of the layers, or the one of most pixels.

    Groups come last of which the granule does not say where they lie.

    Raises:
        ChoiceRefusedError: there is no such group, or the layers lie in several.
        UnknownLayerError: the granule, or the group, does not hold a layer.
    """
    for name in layers:
        granule.layer(name)
    groups = groups_of(granule)
    if not groups:
        raise ChoiceRefusedError(f"{granule.name} holds no layer that is a raster")
    if group is not None:
        return _named(granule, groups, group, layers)
    homes = [one for one in groups.values() if any(map(one.holds, layers))]
    if len(homes) > 1:
        where = "; ".join(f"{home.name}: {', '.join(filter(home.holds, layers))}" for home in homes)
        raise ChoiceRefusedError(
            f"the layers lie on different pixels ({where}); open one group at a time by "
            "group=..., or all of them by xarray.open_datatree"
        )
    return homes[0] if homes else max(groups.values(), key=lambda one: _rank(granule, one))


def _rank(granule: Granule, group: Group) -> tuple[bool, int]:
    return is_placeable(granule, group.layers[0]), group.shape.rows * group.shape.cols


def _named(
    granule: Granule, groups: Mapping[str, Group], name: str, layers: Sequence[str]
) -> Group:
    if name not in groups:
        raise ChoiceRefusedError(
            f"{granule.name} has no group {name!r}; its groups are: {', '.join(groups)}"
        )
    chosen = groups[name]
    for layer in layers:
        if not chosen.holds(layer):
            raise UnknownLayerError(
                layer, [one.name for one in chosen.layers], f"group {name!r} of {granule.name}"
            )
    return chosen
