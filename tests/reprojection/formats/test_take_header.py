"""Headers that are taken from texts which a program has made of a granule."""

from pathlib import Path

import pytest

from reprojection.formats.structmetadata import parse_structure
from tools.take_header import header_of

TILE = "MOD16A2.A2017145.h10v04.006.2017160232658.hdf"

DAS = """Attributes {
    ET_500m {
        String coordinates "Latitude Longitude";
        String long_name "said \\"so\\",
on two lines";
        Int16 valid_range -32767, 32700;
        Float64 scale_factor 0.10000000000000001;
        String grid_mapping "MOD_Grid_MOD16A2_eos_cf_projection";
    }
    Latitude {
        String units "degrees_north";
    }
}
"""

DDS = f"""Dataset {{
    Int16 ET_500m[YDim = 2400][XDim = 2400];
    Float64 Latitude[YDim = 2400][XDim = 2400];
}} {TILE};
"""

CDL = """netcdf test {
dimensions:
\tlines = 203 ;
\tpixels = UNLIMITED ; // (135 currently)

// global attributes:
\t\t:LocalGranuleID = "AERDT_L2_VIIRS_SNPP.A2022365.2354.002.2023250134344.nc" ;

group: geophysical_data {
  variables:
  \tshort Depth(lines, pixels) ;
  \t\tDepth:_FillValue = -9999s ;
  \t\tDepth:valid_range = -100s, 5000s ;
  \t\tDepth:scale_factor = 0.001 ;
  \t\tDepth:long_name = "a text ",
    "in two parts" ;
  } // group geophysical_data

group: geolocation_data {
  variables:
  \tfloat latitude(lines, pixels) ;
  \t\tlatitude:valid_min = -90.f ;
  } // group geolocation_data
}
"""


def test_a_das_gives_what_the_file_states_and_not_what_the_server_adds(tmp_path: Path) -> None:
    (tmp_path / "a.das").write_text(DAS)
    (tmp_path / "a.dds").write_text(DDS)
    found = header_of(tmp_path / "a.das", "here", tmp_path / "a.dds")
    assert (found["product"], found["file"], found["format"]) == ("MOD16A2", TILE, "hdf4")
    (one,) = found["datasets"]
    assert (one["name"], one["type"]) == ("ET_500m", "i2")
    assert one["dims"] == [["YDim:MOD_Grid_MOD16A2", 2400], ["XDim:MOD_Grid_MOD16A2", 2400]]
    assert one["attributes"] == [
        ("long_name", "text", 'said "so",\non two lines'),
        ("valid_range", "i2", [-32767, 32700]),
        ("scale_factor", "f8", [0.1]),
    ]
    (grid,) = parse_structure(found["attributes"][0][2]).grids
    assert (grid.name, grid.width) == ("MOD_Grid_MOD16A2", 2400)
    assert grid.left == pytest.approx(-8895604.157)  # tile h10: 8 tiles west of Greenwich
    assert grid.top == pytest.approx(5559752.598)


def test_a_layer_that_the_server_has_unpacked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.das").write_text(DAS.replace("scale_factor", "orig_scale_factor"))
    (tmp_path / "a.dds").write_text(DDS)
    with pytest.raises(ValueError, match="unpacked ET_500m"):
        header_of(tmp_path / "a.das", "here", tmp_path / "a.dds")


def test_a_dump_of_netcdf_gives_groups_types_and_joined_texts(tmp_path: Path) -> None:
    (tmp_path / "a.cdl").write_text(CDL)
    found = header_of(tmp_path / "a.cdl", "here")
    assert (found["product"], found["collection"]) == ("AERDT_L2_VIIRS_SNPP", "2")
    depth, latitude = found["datasets"]
    assert depth["name"] == "/geophysical_data/Depth"
    assert depth["dims"] == [["lines", 203], ["pixels", 135]]
    assert depth["attributes"] == [
        ("_FillValue", "i2", [-9999]),
        ("valid_range", "i2", [-100, 5000]),
        ("scale_factor", "f8", [0.001]),
        ("long_name", "text", "a text in two parts"),
    ]
    assert latitude["attributes"] == [("valid_min", "f4", [-90.0])]
