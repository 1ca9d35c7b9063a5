"""docs/requests.md names every field of a request with its default, and the example parses."""

import re
from pathlib import Path

import yaml

from tasks.request.document import GUIDE, Request, parse_request

PAGE = (Path(__file__).parents[3] / "docs" / "requests.md").read_text("utf-8")
FIELDS = PAGE.partition("## Fields")[2].partition("\n## ")[0]


def test_every_field_is_on_the_page() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", FIELDS, re.MULTILINE)
    assert [name for name, _ in rows] == [*GUIDE.names("")]
    for (_, default), field in zip(rows, Request.model_fields.values(), strict=True):
        if field.is_required():
            assert default.strip() == ""
        elif isinstance(field.default, bool | str) and field.default:
            assert default.strip() == str(field.default).lower()


def test_the_example_is_a_request() -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert parse_request(yaml.safe_load(found[1])).products[0].layers == ("Lai_1km", "Fpar_1km")
