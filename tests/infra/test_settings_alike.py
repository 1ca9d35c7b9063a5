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


# The lists in apps.bicep that make a process's environment.
LISTS = {
    "portal": ("settings", "signing"),
    "manager": ("settings", "signing", "mail"),
    "worker": ("settings",),
}


def bicep_settings(bicep: Files, process: str) -> set[str]:
    variables = bicep["apps.bicep"]["variables"]
    return {str(entry["name"]) for name in LISTS[process] for entry in variables[name]["value"]}


@pytest.mark.parametrize("process", PROCESSES)
def test_compose_names_settings_that_exist(process: str) -> None:
    assert compose_settings(process) <= SETTINGS


@pytest.mark.parametrize("process", PROCESSES)
def test_bicep_names_settings_that_exist(process: str, bicep: Files) -> None:
    assert bicep_settings(bicep, process) - AZURE_ONLY <= SETTINGS


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_in_azure_gets_its_own_lists(process: str) -> None:
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    own = text.partition(f"resource {process} 'Microsoft.App/containerApps")[2]
    lists = ", ".join(LISTS[process])
    expected = f"concat({lists})" if len(LISTS[process]) > 1 else lists
    assert own.partition("env: ")[2].partition("\n")[0] == expected


def test_a_worker_has_neither_the_signing_key_nor_the_mail_password(bicep: Files) -> None:
    """It runs other people's programs."""
    kept = {"SWATHMILL_SECRET", "SWATHMILL_SMTP_PASSWORD"}
    assert not kept & compose_settings("worker")
    assert not kept & bicep_settings(bicep, "worker")
    assert kept & compose_settings("portal") == {"SWATHMILL_SECRET"}
    assert kept <= compose_settings("manager")
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    worker = text.partition("resource worker 'Microsoft.App/containerApps")[2]
    assert "      secrets: secrets\n" in worker
    names = {entry["name"] for entry in bicep["apps.bicep"]["variables"]["secrets"]["value"]}
    assert names == {"redis-url", "redis-key", "earthdata-token"}


@pytest.mark.parametrize("process", PROCESSES)
def test_compose_and_bicep_set_the_same_ones(process: str, bicep: Files) -> None:
    assert compose_settings(process) == bicep_settings(bicep, process) - AZURE_ONLY


def test_every_process_of_the_stack_runs_in_both(bicep: Files) -> None:
    commands = {name: compose_services()[name]["command"] for name in PROCESSES}
    modules = {"portal": "portal", "manager": "service_manager", "worker": "worker"}
    assert commands == {name: ["python", "-P", "-m", module] for name, module in modules.items()}
    for name, module in modules.items():
        app = bicep["apps.bicep"]["resources"][name]["config"]["properties"]
        (container,) = app["template"]["containers"]
        assert container["command"] == ["python", "-P", "-m", module]
