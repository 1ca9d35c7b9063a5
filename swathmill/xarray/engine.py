"""The engine "swathmill" of xarray: `xr.open_dataset(granule, engine="swathmill")`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from xarray.backends import BackendEntrypoint

if TYPE_CHECKING:
    import xarray as xr

    from swathmill.xarray.granule_dataset import Choices

__all__ = ["GranuleBackend"]

_OPTIONS = ("layers", "group", "mask", "qa", "units", "codes", "geolocation")
_ELSEWHERE = {
    "mask_and_scale": 'units="stored" and mask=False give the stored values',
    "chunks": "chunks is an argument of xarray.open_dataset itself",
}


class GranuleBackend(BackendEntrypoint):
    """Open a MODIS or VIIRS granule as a dataset that is read and decoded part by part."""

    description = "MODIS and VIIRS granules: tiles, swaths and global grids in HDF4 and HDF5"
    open_dataset_parameters: ClassVar[tuple[str, ...]] = (
        "filename_or_obj",
        "drop_variables",
        *_OPTIONS,
    )
    supports_groups = True

    def open_dataset(
        self,
        filename_or_obj: object,
        *,
        drop_variables: str | Iterable[str] | None = None,
        **options: object,
    ) -> "xr.Dataset":
        """Open one group of a granule: the layers of one grid, or of one resolution of a swath.

        Args:
            filename_or_obj: The path of the granule, a file of this machine.
            drop_variables: Variables to leave out.
            **options: `layers` (names; all of the group by default), `group` (by default that of
                the layers, else the one of the finest pixels), `mask`, `qa`, `units` ("physical" by
                default) and `codes` as in `swathmill.Options`, and `geolocation`, the granule that
                says where the pixels lie.

        Raises:
            ChoiceRefusedError: an option is unknown, or does not fit the granule.
            ReprojectionError: the file is no granule, is damaged, or lacks a layer.
        """
        from reprojection.read.kept import opened
        from swathmill.xarray.granule_dataset import dataset_of

        path, choices = _path(filename_or_obj), _choices(options)
        with opened(path) as (granule, _):
            found = dataset_of(granule, choices)
        return found.drop_vars(_names(drop_variables), errors="ignore")

    def open_groups_as_dict(
        self,
        filename_or_obj: object,
        *,
        drop_variables: str | Iterable[str] | None = None,
        **options: object,
    ) -> "dict[str, xr.Dataset]":
        """Open all groups of a granule, each as a dataset; the options are those of one."""
        from reprojection.read.kept import opened
        from swathmill.xarray.granule_dataset import datasets_of

        path, choices = _path(filename_or_obj), _choices(options)
        with opened(path) as (granule, _):
            found = datasets_of(granule, choices)
        left_out = _names(drop_variables)
        return {f"/{name}": one.drop_vars(left_out, errors="ignore") for name, one in found.items()}

    def open_datatree(
        self,
        filename_or_obj: object,
        *,
        drop_variables: str | Iterable[str] | None = None,
        **options: object,
    ) -> "xr.DataTree":
        """Open all groups of a granule as a tree."""
        import xarray as xr

        return xr.DataTree.from_dict(
            self.open_groups_as_dict(filename_or_obj, drop_variables=drop_variables, **options)
        )

    def guess_can_open(self, filename_or_obj: object) -> bool:
        """Tell whether a file is an HDF4 file or bears a granule's name."""
        from modis.formats import HDF4_MAGIC
        from modis.granule_name import parse_granule_name

        if not isinstance(filename_or_obj, str | os.PathLike):
            return False
        path = Path(filename_or_obj)
        try:
            with path.open("rb") as file:
                head = file.read(len(HDF4_MAGIC))
        except OSError:
            return False
        return head == HDF4_MAGIC or parse_granule_name(path.name) is not None


def _path(given: object) -> Path:
    """Return the path of a granule on this machine. Raises ChoiceRefusedError for anything else."""
    from reprojection.errors import ChoiceRefusedError

    if isinstance(given, str | os.PathLike) and "://" not in os.fspath(given):
        return Path(os.fspath(given)).expanduser()
    raise ChoiceRefusedError(
        f"{given!r} is no file of this machine, and HDF4 is read from files alone; fetch the "
        "granule first and give its path"
    )


def _names(given: str | Iterable[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _choices(options: dict[str, object]) -> "Choices":
    """Hold the options to those there are. Raises ChoiceRefusedError."""
    from reprojection.errors import ChoiceRefusedError
    from swathmill.xarray.granule_dataset import Choices

    for name in options:
        if name not in _OPTIONS:
            hint = _ELSEWHERE.get(name, f"choose among {', '.join(_OPTIONS)}")
            raise ChoiceRefusedError(f"the engine has no option {name!r}: {hint}")
    found = dict(options)
    layers = found.pop("layers", None)
    place = found.pop("geolocation", None)
    named = (layers,) if isinstance(layers, str) else tuple(layers or ())  # type: ignore[arg-type]
    guide = None if place is None else _path(place)
    return Choices(layers=named, geolocation=guide, **found)  # type: ignore[arg-type]
