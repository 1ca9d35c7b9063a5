"""docker-compose.yml, infra/bicep and the class Settings name the settings alike."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
SETTINGS = {f"SWATHMILL_{name.upper()}" for name in Settings.model_fields}
# What Azure's own SDKs read; not a setting of Swathmill.
AZURE_ONLY = {"AZURE_CLIENT_ID"}
Files = dict[str, dict[str, Any]]
PROCESSES = ("portal", "manager", "worker")


def compose_services() -> dict[str, dict[str, object]]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = document["services"]
    assert isinstance(services, dict)
    return services


def compose_settings(process: str) -> set[str]:
    environment = compose_services()[process]["environment"]
    assert isinstance(environment, dict)
    return set(environment)


def bicep_settings(bicep: Files) -> set[str]:
    entries = bicep["apps.bicep"]["variables"]["settings"]["value"]
    return {str(entry["name"]) for entry in entries}


@pytest.mark.parametrize("process", PROCESSES)
def test_compose_names_settings_that_exist(process: str) -> None:
    assert compose_settings(process) <= SETTINGS


def test_bicep_names_settings_that_exist(bicep: Files) -> None:
    assert bicep_settings(bicep) - AZURE_ONLY <= SETTINGS


@pytest.mark.parametrize("process", PROCESSES)
def test_compose_and_bicep_set_the_same_ones(process: str, bicep: Files) -> None:
    assert compose_settings(process) == bicep_settings(bicep) - AZURE_ONLY


def test_every_process_of_the_stack_runs_in_both(bicep: Files) -> None:
    commands = {name: compose_services()[name]["command"] for name in PROCESSES}
    modules = {"portal": "portal", "manager": "service_manager", "worker": "worker"}
    assert commands == {name: ["python", "-P", "-m", module] for name, module in modules.items()}
    for name, module in modules.items():
        app = bicep["apps.bicep"]["resources"][name]["config"]["properties"]
        (container,) = app["template"]["containers"]
        assert container["command"] == ["python", "-P", "-m", module]
