"""The capabilities of a WMTS, RESTful encoding.

Source: OGC 07-057r7, "Web Map Tile Service Implementation Standard" 1.0.0, annex D.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from modis.box import LonLatBox
from portal.views.tile_matrix import WEB_MERCATOR, TileMatrixSet

_NORTHERNMOST = 85.0511  # of WebMercatorQuad
_SPACES = (
    'xmlns="http://www.opengis.net/wmts/1.0" xmlns:ows="http://www.opengis.net/ows/1.1" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"'
)

WHOLE_EARTH = LonLatBox(-180.0, -90.0, 180.0, 90.0)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer as the document has it.

    Attributes:
        name: By which programs choose it.
        title: For people.
        tiles: Address of its tiles, without the last slash; with dates it holds `{Time}`.
        query: What follows the question mark in addresses of tiles; "" for nothing.
        box: Where it lies.
        dates: Of which it has tiles; empty where it has one.
        shown: The date for who names none.
    """

    name: str
    title: str
    tiles: str
    query: str
    box: LonLatBox = WHOLE_EARTH
    dates: Sequence[str] = ()
    shown: str = ""


def capabilities(title: str, layers: Sequence[Layer], sets: Iterable[TileMatrixSet]) -> str:
    """Write the document of some layers, in some tile matrix sets, under a title for people."""
    every = tuple(sets)
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Capabilities {_SPACES} version="1.0.0">
<ows:ServiceIdentification><ows:Title>{escape(title)}</ows:Title>\
<ows:ServiceType>OGC WMTS</ows:ServiceType>\
<ows:ServiceTypeVersion>1.0.0</ows:ServiceTypeVersion></ows:ServiceIdentification>
<Contents>
{"".join(_layer(layer, every) for layer in layers)}\
{"".join(map(_set, every))}
</Contents>
</Capabilities>
"""


def _layer(layer: Layer, sets: Sequence[TileMatrixSet]) -> str:
    more = f"&{layer.query}" if layer.query else ""
    at = "{TileMatrix}/{TileCol}/{TileRow}.png?tms={TileMatrixSet}"
    tiles = f"{layer.tiles}/{at}{more}"
    links = "".join(
        f"<TileMatrixSetLink><TileMatrixSet>{one.name}</TileMatrixSet></TileMatrixSetLink>"
        for one in sets
    )
    boxes = "".join(map(_bounds, sets))
    box = layer.box
    south, north = max(box.south, -_NORTHERNMOST), min(box.north, _NORTHERNMOST)
    return f"""<Layer><ows:Title>{escape(layer.title)}</ows:Title>\
<ows:WGS84BoundingBox><ows:LowerCorner>{box.west!r} {south!r}</ows:LowerCorner>\
<ows:UpperCorner>{box.east!r} {north!r}</ows:UpperCorner></ows:WGS84BoundingBox>\
<ows:Identifier>{escape(layer.name)}</ows:Identifier>{boxes}\
<Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>\
<Format>image/png</Format>{_times(layer)}\
{links}<ResourceURL format="image/png" resourceType="tile" template={quoteattr(tiles)}/></Layer>
"""


def _bounds(one: TileMatrixSet) -> str:
    """Say in a set's own CRS how far it reaches.

    Without it GDAL projects the corners of the box in degrees, which gives none in many CRSs.
    """
    if one.crs in ("EPSG:3857", "EPSG:4326"):
        return ""
    low, high = one.bounds
    return (
        f'<ows:BoundingBox crs="{one.urn}"><ows:LowerCorner>{low[0]!r} {low[1]!r}</ows:LowerCorner>'
        f"<ows:UpperCorner>{high[0]!r} {high[1]!r}</ows:UpperCorner></ows:BoundingBox>"
    )


def _times(layer: Layer) -> str:
    if not layer.dates:
        return ""
    values = "".join(f"<Value>{escape(one)}</Value>" for one in layer.dates)
    return (
        "<Dimension><ows:Identifier>Time</ows:Identifier>"
        f"<Default>{escape(layer.shown)}</Default>{values}</Dimension>"
    )


def _set(one: TileMatrixSet) -> str:
    scales = (
        "<WellKnownScaleSet>urn:ogc:def:wkss:OGC:1.0:GoogleMapsCompatible</WellKnownScaleSet>"
        if one is WEB_MERCATOR
        else ""
    )
    zooms = "".join(_matrix(one, zoom) for zoom in one.zooms)
    return (
        f"<TileMatrixSet><ows:Identifier>{one.name}</ows:Identifier>"
        f"<ows:SupportedCRS>{one.urn}</ows:SupportedCRS>{scales}{zooms}</TileMatrixSet>\n"
    )


def _matrix(one: TileMatrixSet, zoom: int) -> str:
    matrix, (first, second) = one.at(zoom), one.origin(zoom)
    return (
        f"<TileMatrix><ows:Identifier>{zoom}</ows:Identifier>"
        f"<ScaleDenominator>{one.scale(zoom)!r}</ScaleDenominator>"
        f"<TopLeftCorner>{first!r} {second!r}</TopLeftCorner>"
        f"<TileWidth>{matrix.side}</TileWidth><TileHeight>{matrix.side}</TileHeight>"
        f"<MatrixWidth>{matrix.columns}</MatrixWidth>"
        f"<MatrixHeight>{matrix.rows}</MatrixHeight></TileMatrix>"
    )
