"""The capabilities of a WMTS of one layer, RESTful encoding.

Source: OGC 07-057r7, "Web Map Tile Service Implementation Standard" 1.0.0, annex D.
"""

from xml.sax.saxutils import escape, quoteattr

from portal.views.tile_matrix import DEEPEST, SIDE, WEB_MERCATOR

_PIXEL = 0.00028  # metres of a pixel on a screen, by which scales are told
_SPACES = (
    'xmlns="http://www.opengis.net/wmts/1.0" xmlns:ows="http://www.opengis.net/ows/1.1" '
    'xmlns:xlink="http://www.w3.org/1999/xlink"'
)


def capabilities(title: str, layer: str, address: str, query: str) -> str:
    """Write the document.

    Args:
        title: Of the layer, for people.
        layer: Its name.
        address: Of its tiles, without the last slash.
        query: What follows the question mark in addresses of tiles; "" for nothing.
    """
    more = f"?{query}" if query else ""
    tiles = f"{address}/{{TileMatrix}}/{{TileCol}}/{{TileRow}}.png{more}"
    zooms = "".join(map(_matrix, range(DEEPEST + 1)))
    name = WEB_MERCATOR.name
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<Capabilities {_SPACES} version="1.0.0">
<ows:ServiceIdentification><ows:Title>{escape(title)}</ows:Title>\
<ows:ServiceType>OGC WMTS</ows:ServiceType>\
<ows:ServiceTypeVersion>1.0.0</ows:ServiceTypeVersion></ows:ServiceIdentification>
<Contents>
<Layer><ows:Title>{escape(title)}</ows:Title>\
<ows:WGS84BoundingBox><ows:LowerCorner>-180 -85.0511</ows:LowerCorner>\
<ows:UpperCorner>180 85.0511</ows:UpperCorner></ows:WGS84BoundingBox>\
<ows:Identifier>{escape(layer)}</ows:Identifier>\
<Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>\
<Format>image/png</Format>\
<TileMatrixSetLink><TileMatrixSet>{name}</TileMatrixSet></TileMatrixSetLink>\
<ResourceURL format="image/png" resourceType="tile" template={quoteattr(tiles)}/></Layer>
<TileMatrixSet><ows:Identifier>{name}</ows:Identifier>\
<ows:SupportedCRS>urn:ogc:def:crs:EPSG::3857</ows:SupportedCRS>\
<WellKnownScaleSet>urn:ogc:def:wkss:OGC:1.0:GoogleMapsCompatible</WellKnownScaleSet>{zooms}\
</TileMatrixSet>
</Contents>
</Capabilities>
"""


def _matrix(zoom: int) -> str:
    count = 1 << zoom
    scale = WEB_MERCATOR.span / count / SIDE / _PIXEL
    return (
        f"<TileMatrix><ows:Identifier>{zoom}</ows:Identifier>"
        f"<ScaleDenominator>{scale!r}</ScaleDenominator>"
        f"<TopLeftCorner>{WEB_MERCATOR.left!r} {WEB_MERCATOR.top!r}</TopLeftCorner>"
        f"<TileWidth>{SIDE}</TileWidth><TileHeight>{SIDE}</TileHeight>"
        f"<MatrixWidth>{count}</MatrixWidth><MatrixHeight>{count}</MatrixHeight></TileMatrix>"
    )
