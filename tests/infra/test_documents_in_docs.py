"""Every request document on a page is one that the portal takes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from modis.yaml_text import load_yaml
from tasks.packages.packages import FoundPackage, Package, Packages
from tasks.request.admission import check
from tasks.request.document import Request, parse_request
from tasks.request.resolved import resolve
from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
BASE: dict[str, Any] = {
    "products": [
        {"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km", "Fpar_1km"]},
    ],
    "region": {"tiles": ["h17v03"]},
    "time": {"start": "2012-01-01", "end": "2012-12-31"},
    "grid": {"modis": 1000},
}
FIELDS = {one.alias or name for name, one in Request.model_fields.items()}
SITES = "id,latitude,longitude\nTower 1,52.0,5.0"
FILES = {"my fields.zip": None, "sites.csv": SITES, "towers.csv": SITES}
"""Files of readers beside a document, and what stands for them; None: another region does."""
OWN = {"own", "days-above", "sea-level"}
"""Packages of readers, which pages name."""


class Source:
    """The packages that come with Swathmill, the example's, and those of readers."""

    def __init__(self) -> None:
        settings = Settings.model_validate({"packages": str(ROOT / "examples")})
        self._packages = Packages.of(settings)

    def names(self) -> tuple[str, ...]:
        return self._packages.names()

    def find(self, reference: str) -> FoundPackage:
        if reference.partition("@")[0].rpartition("/")[2] not in OWN:
            return self._packages.find(reference)
        made = Package(name="own", command=("run",), outputs=("{layer}_own.tif",))
        return FoundPackage(package=made, owner="folder")


def documents() -> Iterator[Any]:
    """Yield each document and part of one; a part has the other fields of `BASE`."""
    for page in PAGES:
        for number, text in enumerate(FENCED.findall(page.read_text("utf-8"))):
            try:
                found = load_yaml(text)
            except yaml.YAMLError:
                continue  # a file of another kind, whose YAML has aliases
            if isinstance(found, Mapping) and found.keys() <= FIELDS:
                yield pytest.param(found, id=f"{page.relative_to(ROOT)} {number}")


def with_stand_ins(given: dict[str, Any]) -> dict[str, Any]:
    """Put something in the place of files that lie beside a document, and leave rasters out."""
    products = [one for one in given["products"] if not one.get("name", "").startswith("raster:")]
    made = {**given, "products": products}
    for name, text in FILES.items():
        if name in given["region"].values():
            made["region"] = {"sites": text} if text else BASE["region"]
    if "measurements" in given:
        made["measurements"] = {
            **given["measurements"],
            "table": "site,time,LE_F_MDS\nTower 1,2012-04-13,1",
        }
    return made


@pytest.mark.parametrize("document", list(documents()))
def test_a_document_on_a_page_is_taken(document: Mapping[str, Any]) -> None:
    given = with_stand_ins({**BASE, **document})
    resolved = resolve(parse_request(given))
    check(resolved, Settings(), Source())
