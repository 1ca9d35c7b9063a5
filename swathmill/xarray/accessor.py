"""What Swathmill adds to datasets of its layers, as `ds.swathmill`: quality and explanations."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import xarray as xr

from reprojection.errors import ChoiceRefusedError, UnknownLayerError

if TYPE_CHECKING:
    from reprojection.catalogue import BitField
    from reprojection.explain.explain import Explanation
    from reprojection.files import AnyPath


@xr.register_dataset_accessor("swathmill")
class SwathmillAccessor:
    """Ask a dataset of granules, or of rasters made of them, for its quality and its origin."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def qa(self, layer: str) -> xr.Dataset:
        """Decode the bit fields of a QA layer by the catalogue: a variable for each field.

        Nothing is read until it is asked for.

        Args:
            layer: A QA layer of the dataset, or a layer whose QA layer is in it.

        Returns:
            Whole numbers, with their meanings as `flag_values` and `flag_meanings`. Fill is decoded
            like any other value.

        Raises:
            UnknownLayerError: the dataset does not hold the layer, or its QA layer.
            ChoiceRefusedError: the bit fields of the layer are not known.
        """
        from swathmill.xarray.fields import decoded_fields

        held = self._variable(layer)
        bits = self._bits(held)
        if not bits:
            linked = held.attrs.get("ancillary_variables", "")
            if not linked:
                raise ChoiceRefusedError(
                    f"the bit fields of {layer!r} are not known, and the dataset holds no QA layer "
                    f"of it; its variables are: {', '.join(map(str, self._dataset.data_vars))}"
                )
            held = self._variable(linked)
            bits = self._bits(held)
        return decoded_fields(held, bits)

    def explain(
        self,
        layer: str,
        lon: float,
        lat: float,
        *,
        time: str | None = None,
        granules: "AnyPath | Iterable[AnyPath]" = (),
    ) -> "Explanation":
        """Explain a pixel: the source pixel, its stored value and its quality, decoded.

        Args:
            layer: A layer of the dataset.
            lon: Longitude in degrees, WGS84.
            lat: Latitude in degrees, WGS84.
            time: The date, of a dataset of several.
            granules: The granules' files; by default those that the dataset was made of.

        Returns:
            The explanation, as `swathmill.explain` gives it of a file.

        Raises:
            UnknownLayerError: the dataset does not hold the layer.
            ChoiceRefusedError: the place is outside, or the granule is not at hand.
        """
        from swathmill.xarray.explaining import explain_in

        held = self._variable(layer)
        name = layer if "[" in layer else str(held.attrs.get("layer", layer))
        return explain_in(self._dataset, held, name, lon, lat, granules, time)

    def to_request(self, path: "AnyPath | None" = None, **fields: object) -> "dict[str, object]":
        """Make the request document that makes the same rasters on a server.

        Args:
            path: A file to write it to, as YAML; None writes none.
            **fields: More of a request, or in place of what is in it: `title`, `reduction`, `cube`,
                `notify`.

        Returns:
            The document, which `Client.submit` takes: the grid, the layers, their options, and the
            days from the first to the last of the dataset.

        Raises:
            ChoiceRefusedError: the dataset is not one of `load`, or no request makes the same: the
                grid is on no lattice, or layers differ in options that a request has for all.
            RequestRefusedError: a field is wrong.
        """
        from swathmill.xarray.requesting import request_of

        return request_of(self._dataset, fields, path)

    def _variable(self, name: str) -> xr.DataArray:
        for wanted in (name, name.split("[")[0]):
            for at, held in self._dataset.data_vars.items():
                if wanted in (at, held.attrs.get("layer")):
                    return held
        raise UnknownLayerError(name, map(str, self._dataset.data_vars), "the dataset")

    def _bits(self, held: xr.DataArray) -> "Mapping[str, BitField]":
        from reprojection import catalogue

        about = self._dataset.attrs
        product = catalogue.product(about.get("product", ""), about.get("collection", ""))
        entry = product.layer(held.attrs.get("layer", "")) if product else None
        return entry.bits if entry and held.dtype.kind in "iu" else {}
