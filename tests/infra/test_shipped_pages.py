"""Each shipped package has a page with its outputs, parameters, a request and a picture."""

import re
from pathlib import Path

import pytest
import yaml

from tasks.packages.packages import SHIPPED, Package, Packages
from tasks.request.document import parse_request

DOCS = Path(__file__).parents[2] / "docs"
SHIPPED_PACKAGES = [one.package for one in Packages((SHIPPED, SHIPPED / "series")).every()]


def test_there_is_a_page_for_each_and_no_other() -> None:
    names = {one.name for one in SHIPPED_PACKAGES}
    assert len(names) >= 12
    assert {page.stem for page in (DOCS / "shipped").iterdir()} == names
    index = (DOCS / "shipped-packages.md").read_text()
    assert set(re.findall(r"\]\(shipped/([a-z-]+)\.md\)", index)) == names
    assert set(re.findall(r"^shipped/([a-z-]+)$", index, re.MULTILINE)) == names


@pytest.mark.parametrize("package", SHIPPED_PACKAGES, ids=lambda package: package.name)
def test_a_page_says_what_a_package_takes_and_makes(package: Package) -> None:
    text = (DOCS / "shipped" / f"{package.name}.md").read_text()
    assert text.startswith(f"# {package.name}\n")
    for output in package.outputs:
        assert f"`{output.name.replace('{layer}', 'LAYER')}`" in text
    for name in package.parameters or {}:
        assert f"| `{name}` |" in text
    assert f"![{package.name}](../pictures/{package.name}.png)" in text
    assert (DOCS / "pictures" / f"{package.name}.png").is_file()
    example = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    request = parse_request(
        {
            "products": [{"name": "MCD15A2", "collection": "5", "layers": ["Lai_1km"]}],
            "region": {"tiles": ["h17v03"]},
            "time": {"start": "2012-01-01", "end": "2012-12-31"},
            "grid": {"modis": 1000},
            **yaml.load(example, yaml.BaseLoader),
        }
    )
    (step,) = request.steps
    assert step.package == package.name
    assert set(step.parameters) <= set(package.parameters or {})
