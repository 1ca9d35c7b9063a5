"""The region of a request as its document gives it."""

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from modis.tile import Tile
from tasks.field_guide import YES_NO, PartOfDocument
from tasks.refusal_wording import FieldWords, listed
from tasks.request.places import place_area
from tasks.request.region.child import read_apart
from tasks.request.region.files import is_notation
from tasks.request.sites import parse_sites

SITES = "Give a CSV table that begins with id,latitude,longitude"
"""What to do where sites are wanted."""

_BOX = "Write four numbers in degrees: west, south, east, north."


def _longitude(label: str) -> FieldWords:
    remedy = f"Longitudes go from -180 to 180. {_BOX}"
    return FieldWords(what="a longitude", remedy=remedy, label=label)


def _latitude(label: str) -> FieldWords:
    remedy = f"Latitudes go from -90 to 90. {_BOX}"
    return FieldWords(what="a latitude", remedy=remedy, label=label)


Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Box = tuple[
    Annotated[Longitude, _longitude("West")],
    Annotated[Latitude, _latitude("South")],
    Annotated[Longitude, _longitude("East")],
    Annotated[Latitude, _latitude("North")],
]

_TILES = "Write a list of tiles: [h17v03, h18v03]."
POLYGON = FieldWords(
    what="a polygon as GeoJSON, WKT or KML",
    remedy='Give a GeoJSON polygon: {"type": "Polygon", "coordinates": [[[5, 50], [8, 50], '
    "[8, 53], [5, 50]]]}.",
    label="Polygon",
)
"""What `region.geojson` takes."""


REGION_KINDS = ("bbox", "tiles", "geojson", "place", "sites")
"""The ways to give a region."""

IN_PLACE = frozenset({"sites"})
"""Those where granules are read in their own pixels."""


class Region(PartOfDocument):
    """Exactly one of a longitude/latitude box, MODIS tiles, a polygon, a named place, or sites.

    `geojson` may also be the text of a polygon as WKT or KML. `place` is a country, or a state with
    its country: "Bayern, Germany". `sites` is the text of a CSV table, or a GeoJSON
    FeatureCollection. In a file, `geojson` and `sites` may also name a file beside it.
    """

    bbox: Annotated[
        Box | None, FieldWords(what="a box of four numbers", remedy=_BOX, label="Box")
    ] = None
    tiles: Annotated[
        tuple[Annotated[str, FieldWords(what="the name of a tile", remedy=_TILES)], ...] | None,
        FieldWords(what="a list of tiles", remedy=_TILES, label="Tiles"),
    ] = None
    geojson: Annotated[dict[str, Any] | None, POLYGON] = None
    place: Annotated[
        str | None,
        FieldWords(
            what="a country or a state",
            remedy="Name a country, or a state with its country: Bayern, Germany.",
            label="Place",
        ),
    ] = Field(None, max_length=200)
    sites: Annotated[
        str | dict[str, Any] | None,
        FieldWords(
            what="a table of sites", remedy=f"{SITES}, or a FeatureCollection.", label="Sites"
        ),
    ] = None
    clip: Annotated[bool, YES_NO] = False

    @field_validator("bbox")
    @classmethod
    def _box(cls, box: Box | None) -> Box | None:
        if box is None:
            return None
        west, south, east, north = box
        if south >= north:
            raise ValueError(
                f"south ({south:g}) is not below north ({north:g}); write south before north: "
                "the order is west, south, east, north"
            )
        if west == east:
            raise ValueError(
                f"west and east are the same longitude, {west:g}; give the box a width"
            )
        return box

    @field_validator("geojson", mode="before", json_schema_input_type=dict[str, Any] | str | None)
    @classmethod
    def _notation(cls, document: object) -> object:
        if not isinstance(document, str) or not (is_notation(document) or "{" in document[:9]):
            return document
        read = read_apart(document.encode())
        if read.geojson is None:
            raise ValueError("these are points, which have no area; give them as sites")
        return read.geojson

    @field_validator("place")
    @classmethod
    def _place(cls, name: str | None) -> str | None:
        if name is not None:
            place_area(name)
        return name

    @field_validator("sites")
    @classmethod
    def _sites(cls, given: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        if given is not None:
            parse_sites(given)
        return given

    @field_validator("tiles")
    @classmethod
    def _tiles(cls, tiles: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for tile in tiles or ():
            Tile.parse(tile)
        return tiles

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in REGION_KINDS if getattr(self, name) is not None]
        one = f"give one of {listed(REGION_KINDS)}"
        if not given:
            raise ValueError(f"names no place; {one}")
        if len(given) > 1:
            raise ValueError(f"has {' and '.join(given)}; {one}")
        if self.tiles is not None and not self.tiles:
            raise ValueError("tiles is empty; name at least one, like h18v04")
        return self

    @property
    def field(self) -> str:
        """The field of the document that says where: `region.bbox`."""
        return f"region.{self.kind}"

    @property
    def kind(self) -> str:
        """The way in which it is given."""
        return next(kind for kind in REGION_KINDS if getattr(self, kind) is not None)

    @property
    def in_place(self) -> bool:
        """Say whether granules are read there in their own pixels: no raster is made."""
        return self.kind in IN_PLACE
