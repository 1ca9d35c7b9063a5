"""The files that describe other machines are valid, and hold no secret and no registry's name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pycep import BicepParser

ROOT = Path(__file__).parents[2]
Files = dict[str, dict[str, Any]]
LOCKS = sorted([*ROOT.glob("requirements*.lock"), ROOT / "package-lock.json"])


@pytest.mark.slow
def test_bicep_parses(bicep: Files) -> None:
    assert {path.name for path in (ROOT / "infra/bicep").glob("*.bicep")} == set(bicep)
    for name, parsed in bicep.items():
        assert parsed.get("resources") or parsed.get("modules"), name


def test_the_scale_set_parses_and_is_of_a_version_with_its_events() -> None:
    path = ROOT / "infra" / "scale-set" / "workers.bicep"
    parsed: Any = {**BicepParser().parse(file_path=path)}
    assert parsed["resources"]["workers"]["type"].endswith("virtualMachineScaleSets")
    assert "priority: 'Spot'" in path.read_text("utf-8")


def test_every_module_exists_and_gets_the_parameters_it_declares(bicep: Files) -> None:
    calls = [module for parsed in bicep.values() for module in parsed.get("modules", {}).values()]
    assert len(calls) >= len(bicep) - 1
    for module in calls:
        declared = bicep[module["detail"]["path"]]["parameters"]
        required = {name for name, one in declared.items() if one.get("default") is None}
        given = set(_config(module)["params"])
        assert required <= given <= set(declared), module["detail"]["path"]


def test_main_uses_only_outputs_that_its_modules_give(bicep: Files) -> None:
    text = (ROOT / "infra/bicep/main.bicep").read_text()
    used = re.findall(r"\b(\w+)\.outputs\.(\w+)", text)
    assert used
    files = dict(re.findall(r"^module (\w+) '(\S+)'", text, re.MULTILINE))
    for module, output in used:
        assert output in bicep[files[module]]["outputs"], f"{module}.outputs.{output}"


def test_images_are_pulled_by_the_identity(bicep: Files) -> None:
    """Container Apps pull anonymously unless an app names its registry and an identity."""
    apps = bicep["apps.bicep"]["resources"]
    for name, own in (
        ("portal", "registries"),
        ("manager", "registries"),
        ("worker", "workerRegistries"),
    ):
        assert apps[name]["config"]["properties"]["configuration"]["registries"] == own
    registry = (ROOT / "infra/bicep/registry.bicep").read_text()
    assert "7f951dda-4ed3-4680-a7ca-43fe172d538d" in registry  # AcrPull
    assert "adminUserEnabled: false" in registry


def test_apps_are_of_a_version_that_knows_their_volumes(bicep: Files) -> None:
    """The volume type NfsAzureFile came with 2025-01-01."""
    for app in bicep["apps.bicep"]["resources"].values():
        if app["type"].startswith("Microsoft.App/"):
            assert app["api_version"] >= "2025-01-01"


def test_no_cloud_is_named_but_in_what_differs_by_parameter() -> None:
    """The suffixes of other clouds' addresses come from environment() or from the resources."""
    for path in (ROOT / "infra/bicep").glob("*.bicep"):
        text = path.read_text()
        assert not re.search(r"core\.windows\.net|vault\.azure\.net|azurecr\.io'", text), path.name


def test_a_vault_can_be_deployed_again(bicep: Files) -> None:
    vault = (ROOT / "infra/bicep/vault.bicep").read_text()
    assert "createMode: recoverVault ? 'recover' : 'default'" in vault
    for secret in ("signingSecret", "smtpPassword", "earthdataToken"):
        assert f"= if (!keepSecrets || !empty({secret}))" in vault
    assert bicep["main.bicep"]["parameters"]["keepSecrets"]["default"] is False


def test_compose_meets_its_schema() -> None:
    answer = subprocess.run(
        [
            Path(sys.executable).with_name("check-jsonschema"),
            "--builtin-schema",
            "vendor.compose-spec",
            ROOT / "docker-compose.yml",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_name_no_registry(lock: Path) -> None:
    text = lock.read_text()
    assert "resolved" not in text
    assert not re.search(r"--(extra-)?index-url|--find-links| @ ", text)


@pytest.mark.parametrize("lock", sorted(ROOT.glob("requirements*.lock")), ids=lambda p: p.name)
def test_every_locked_package_has_a_hash(lock: Path) -> None:
    entries = re.split(r"\n(?=\S)", lock.read_text().strip())
    assert entries
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_the_image_holds_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["setuptools"]["packages"]["find"]["include"]
    packages = {package.removesuffix("*") for package in included}
    recipe = (ROOT / "infra/Containerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) (?:\1)$", recipe, re.MULTILINE))
    assert packages
    assert copied == packages
    allowed = (ROOT / ".containerignore").read_text().splitlines()
    assert {f"!{package}" for package in packages} <= set(allowed)


def test_the_development_lock_agrees_with_the_runtime_lock() -> None:
    runtime = _pins(ROOT / "requirements.lock")
    development = _pins(ROOT / "requirements-dev.lock")
    assert runtime
    assert runtime.items() <= development.items()


def _pins(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", lock.read_text(), re.MULTILINE))


def _config(module: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A module's settings; those of a module in a loop or under a condition lie a level deeper."""
    config = module["config"]
    inner: dict[str, Any] = config if "params" in config else config["config"]
    return inner
