"""docs/settings.md says what the class Settings says, line by line."""

from pathlib import Path

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from tasks.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def expected_row(name: str, field: FieldInfo) -> str:
    default = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    shown = f"`{default}`" if default != "" else "(empty)"
    return f"| `SWATHMILL_{name.upper()}` | {shown} | {field.description} |"


def test_every_setting_has_its_line_in_the_table_and_no_line_is_left_over() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `SWATHMILL_")]
    assert lines == [expected_row(name, field) for name, field in Settings.model_fields.items()]
