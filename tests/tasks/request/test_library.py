"""What requests may name where nobody brings anything."""

import pytest

from tasks.errors import RequestRefusedError
from tasks.packages.packages import SHIPPED, Packages
from tasks.request.document import parse_request
from tasks.request.library import Library
from tests.service_manager.shelf import REQUEST

LIBRARY = Library(Packages((SHIPPED,)))


def test_the_packages_of_the_installation_are_everybodys() -> None:
    assert LIBRARY.packages_of("ada").find("mean").owner == "swathmill"
    assert LIBRARY.exact_packages().find("mean") == LIBRARY.packages_of("ben").find("mean")
    request = parse_request(REQUEST)
    assert LIBRARY.pinned("ada", request) is LIBRARY.described("ada", request) is request


def test_a_raster_is_refused_where_it_is_named() -> None:
    products = [*REQUEST["products"], {"name": "raster:elevation", "layers": ["height"]}]
    request = parse_request({**REQUEST, "products": products})
    assert LIBRARY.raster("ada", "raster:elevation") is None
    with pytest.raises(RequestRefusedError, match="no raster 'raster:elevation'") as refused:
        LIBRARY.described("ada", request)
    assert refused.value.field == f"products.{len(REQUEST['products'])}.name"
