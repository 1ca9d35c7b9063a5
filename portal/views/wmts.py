"""The capabilities of a WMTS, RESTful encoding.

Source: OGC 07-057r7, "Web Map Tile Service Implementation Standard" 1.0.0, annex D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from modis.box import LonLatBox
from portal.views.tile_matrix import DEEPEST, SIDE, WEB_MERCATOR

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


def capabilities(title: str, layers: Sequence[Layer]) -> str:
    """Write the document of some layers under a title for people."""
    zooms = "".join(map(_matrix, range(DEEPEST + 1)))
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Capabilities {_SPACES} version="1.0.0">
<ows:ServiceIdentification><ows:Title>{escape(title)}</ows:Title>\
<ows:ServiceType>OGC WMTS</ows:ServiceType>\
<ows:ServiceTypeVersion>1.0.0</ows:ServiceTypeVersion></ows:ServiceIdentification>
<Contents>
{"".join(map(_layer, layers))}\
<TileMatrixSet><ows:Identifier>{WEB_MERCATOR.name}</ows:Identifier>\
<ows:SupportedCRS>urn:ogc:def:crs:EPSG::3857</ows:SupportedCRS>\
<WellKnownScaleSet>urn:ogc:def:wkss:OGC:1.0:GoogleMapsCompatible</WellKnownScaleSet>{zooms}\
</TileMatrixSet>
</Contents>
</Capabilities>
"""


def _layer(layer: Layer) -> str:
    more = f"?{layer.query}" if layer.query else ""
    tiles = f"{layer.tiles}/{{TileMatrix}}/{{TileCol}}/{{TileRow}}.png{more}"
    box = layer.box
    south, north = max(box.south, -_NORTHERNMOST), min(box.north, _NORTHERNMOST)
    return f"""<Layer><ows:Title>{escape(layer.title)}</ows:Title>\
<ows:WGS84BoundingBox><ows:LowerCorner>{box.west!r} {south!r}</ows:LowerCorner>\
<ows:UpperCorner>{box.east!r} {north!r}</ows:UpperCorner></ows:WGS84BoundingBox>\
<ows:Identifier>{escape(layer.name)}</ows:Identifier>\
<Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>\
<Format>image/png</Format>{_times(layer)}\
<TileMatrixSetLink><TileMatrixSet>{WEB_MERCATOR.name}</TileMatrixSet></TileMatrixSetLink>\
<ResourceURL format="image/png" resourceType="tile" template={quoteattr(tiles)}/></Layer>
"""


def _times(layer: Layer) -> str:
    if not layer.dates:
        return ""
    values = "".join(f"<Value>{escape(one)}</Value>" for one in layer.dates)
    return (
        "<Dimension><ows:Identifier>Time</ows:Identifier>"
        f"<Default>{escape(layer.shown)}</Default>{values}</Dimension>"
    )


def _matrix(zoom: int) -> str:
    count = 1 << zoom
    return (
        f"<TileMatrix><ows:Identifier>{zoom}</ows:Identifier>"
        f"<ScaleDenominator>{WEB_MERCATOR.scale(zoom)!r}</ScaleDenominator>"
        f"<TopLeftCorner>{WEB_MERCATOR.left!r} {WEB_MERCATOR.top!r}</TopLeftCorner>"
        f"<TileWidth>{SIDE}</TileWidth><TileHeight>{SIDE}</TileHeight>"
        f"<MatrixWidth>{count}</MatrixWidth><MatrixHeight>{count}</MatrixHeight></TileMatrix>"
    )
