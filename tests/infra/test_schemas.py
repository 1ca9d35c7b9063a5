"""The JSON schemas in docs/schemas are those of the code, and what we write fits them."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from swathmill.package_kit import write_group
from tasks.packages.packages import SHIPPED, Package
from worker.phases.group import Manifest

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
OF: dict[str, type[BaseModel]] = {"manifest": Manifest, "package": Package}


def schema(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", OF)
def test_a_schema_is_that_of_the_code(name: str) -> None:
    """`python -m tests.infra.test_schemas` writes them anew."""
    assert schema(name) == OF[name].model_json_schema()


def test_what_a_package_gets_fits_the_schema(tmp_path: Path) -> None:
    write_group(tmp_path)
    document = json.loads((tmp_path / "manifest.json").read_text("utf-8"))
    jsonschema.validate(document, schema("manifest"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "version": 2}, schema("manifest"))


@pytest.mark.parametrize(
    "path", sorted(SHIPPED.glob("**/package.yaml")), ids=lambda p: p.parent.name
)
def test_each_shipped_package_fits_the_schema(path: Path) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text("utf-8")), schema("package"))


if __name__ == "__main__":
    for name, model in OF.items():
        text = json.dumps(model.model_json_schema(), indent=1) + "\n"
        (SCHEMAS / f"{name}.schema.json").write_text(text, "utf-8")
