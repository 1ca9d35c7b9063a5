"""What the tests of pages submit: a request, and a form as a browser sends it."""

from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import request_operations

DOCUMENT = {
    "title": "Leaf <area>",
    "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
    "region": {"bbox": [-8.0, 50.5, 6.0, 58.5]},
    "time": {"start": "2012-01-01", "end": "2012-04-30"},
    "grid": {"crs": "EPSG:4326", "resolution": 0.01},
}
FORM = {
    "product": "u|MCD15A2|5",
    "layer-u": "Lai_1km",
    "region_kind": "bbox",
    "west": "-8",
    "south": "50.5",
    "east": "6",
    "north": "58.5",
    "start": "2012-01-01",
    "end": "2012-04-30",
    "grid_kind": "crs",
    "crs": "EPSG:4326",
    "resolution": "0.01",
    "mask": "yes",
    "title": "By form",
    "submission": "120501-abc123",
}


def submitted(runtime: Runtime, owner: str = "ada@example.org") -> str:
    return request_operations.submit(runtime, owner, parse_request(DOCUMENT))
