"""The Bicep templates fit the published types of Azure's resources; see `bicep_types.py`."""

from pathlib import Path

import pytest
from pycep import BicepParser

from tests.infra.bicep_types import ROOT, Template, problems, read_known, templates

APPS = ROOT / "infra/bicep/apps.bicep"


def test_each_template_fits_the_published_types() -> None:
    known, found = read_known(), dict(templates())
    assert {"infra/bicep/apps.bicep", "infra/batch/pool.bicep"} < found.keys()
    assert [f"{path}: {one}" for path, each in found.items() for one in problems(each, known)] == []


def test_no_type_is_kept_that_no_template_uses() -> None:
    used = {kind for _, template in templates() for _, kind, _ in template.resources()}
    assert read_known().keys() == used


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("replicaTimeout:", "replicaTimeOut:", "replicaTimeOut is no property"),
        ("maxReplicas: one.most", "mostReplicas: one.most", "mostReplicas is no property"),
        (
            "      replicaTimeout: 604800 // a week, which no attempt reaches\n",
            "",
            "lacks replicaT",
        ),
        ("concurrentConnections:", "atOnce:", ""),  # of an object that takes any
        ("mountPath: '/data'", "mountpath: '/data'", "mountpath is no property"),
        ("Microsoft.App/jobs@2025-01-01", "Microsoft.App/jobs@2025-01-02", "no type"),
        ("    environmentId: appEnvironment.id\n", "    provisioningState: 'x'\n", "is read-only"),
    ],
)
def test_a_template_that_does_not_fit_is_told(
    before: str, after: str, said: str, tmp_path: Path
) -> None:
    told = problems_with(APPS, before, after, tmp_path)
    assert any(said in one for one in told) if said else told == []


def test_a_value_that_is_none_of_those_named_is_told(tmp_path: Path) -> None:
    """Most lists of values in the types are open: any other text is taken as well."""
    pool = ROOT / "infra/batch/pool.bicep"
    told = problems_with(pool, "type: 'UserAssigned'", "type: 'SystemAssigned'", tmp_path)
    assert told == ["pool.identity.type: 'SystemAssigned' is none of None, UserAssigned"]


def problems_with(template: Path, before: str, after: str, folder: Path) -> list[str]:
    text = template.read_text("utf-8")
    assert before in text
    path = folder / template.name
    path.write_text(text.replace(before, after), "utf-8")
    return [*problems(Template({**BicepParser().parse(file_path=path)}), read_known())]
