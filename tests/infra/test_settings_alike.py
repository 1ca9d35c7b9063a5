"""docker-compose.yml, infra/bicep and the class Settings name the settings alike."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from swathmill.deployment.choices import MADE, SIZES, read_settings_given
from tasks.messages import wanted_slots
from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
SETTINGS = {f"SWATHMILL_{name.upper()}" for name in Settings.model_fields}
# What Azure's own SDKs read, and what only workers that are executions of a job need.
AZURE_ONLY = {"AZURE_CLIENT_ID", "SWATHMILL_SCALE_IN_SECONDS"}
Files = dict[str, dict[str, Any]]
PROCESSES = ("portal", "manager", "worker", "reductions")


def compose_services() -> dict[str, dict[str, object]]:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = document["services"]
    assert isinstance(services, dict)
    return services


def compose_settings(process: str) -> set[str]:
    environment = compose_services()[process]["environment"]
    assert isinstance(environment, dict)
    return set(environment)


# The objects and lists in apps.bicep that make a process's environment.
PLAIN = {
    "portal": ("defaults", "known", "signingPlain"),
    "manager": ("defaults", "known", "signingPlain", "mailServer"),
    "worker": ("defaults", "known", "ofWorker"),
    "reductions": ("ofRunner",),
}
SECRET = {
    "portal": ("secretSettings", "secretSigning", "secretOidc"),
    "manager": ("secretSettings", "secretSigning", "secretMail"),
    "worker": ("secretSettings",),
    "reductions": (),
}


def bicep_settings(bicep: Files, process: str) -> set[str]:
    variables = bicep["apps.bicep"]["variables"]
    plain = {str(name) for one in PLAIN[process] for name in variables[one]["value"]}
    secret = {str(entry["name"]) for one in SECRET[process] for entry in variables[one]["value"]}
    return plain | secret


@pytest.mark.parametrize("process", PROCESSES)
def test_compose_names_settings_that_exist(process: str) -> None:
    assert compose_settings(process) <= SETTINGS


@pytest.mark.parametrize("process", PROCESSES)
def test_bicep_names_settings_that_exist(process: str, bicep: Files) -> None:
    assert bicep_settings(bicep, process) - AZURE_ONLY <= SETTINGS


@pytest.mark.parametrize("process", ["portal", "manager", "worker"])
def test_a_process_in_azure_gets_its_own_lists(process: str) -> None:
    """What the operator sets goes over the defaults, and under what the template knows."""
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    own = text.partition(f"resource {process} 'Microsoft.App/containerApps")[2]
    assert own.partition("env: ")[2].partition("\n")[0] == f"{process}Environment"
    merged = ", ".join(("defaults", "settings", *PLAIN[process][1:]))
    assert f"var {process}Plain = [for item in items(union({merged})): {{" in text
    joined = ", ".join((f"{process}Plain", *SECRET[process]))
    assert f"var {process}Environment = concat({joined})" in text


def test_a_runner_gets_nothing_but_its_own_settings_and_no_identity(bicep: Files) -> None:
    """It runs other people's programs."""
    assert compose_settings("reductions") < bicep_settings(bicep, "reductions")
    secret = {
        f"SWATHMILL_{name.upper()}"
        for name, known in Settings.model_fields.items()
        if known.annotation is SecretStr
    }
    assert not secret & bicep_settings(bicep, "reductions")
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    assert "var runnerPlain = [for item in items(ofRunner): {" in text
    app = text.partition("resource reductions 'Microsoft.App/containerApps")[2]
    app = app.partition("\noutput ")[0]
    assert "env: runnerPlain\n" in app
    assert "secrets:" not in app
    assert "  identity: poolIdentity\n" in app
    assert re.search(r"identity: poolIdentityId\n +lifecycle: 'None'\n", app)
    assert "external: false" in app
    main = (ROOT / "infra" / "bicep" / "main.bicep").read_text("utf-8")
    assert "poolIdentity.outputs.principalId" not in main  # it has a role at the registry alone
    service = compose_services()["reductions"]
    assert (service["volumes"], service["networks"]) == (["data-reductions:/data"], ["reductions"])
    assert service["env_file"] == []
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert document["networks"]["reductions"] == {"internal": True}


def test_workers_are_told_where_the_pool_is(bicep: Files) -> None:
    pool = dict(compose_services()["worker"]["environment"])["SWATHMILL_REDUCTION_POOL"]  # type: ignore[call-overload]
    runner = dict(compose_services()["reductions"]["environment"])  # type: ignore[call-overload]
    assert pool == runner["SWATHMILL_RUNNER_ADDRESS"].replace("0.0.0.0", "reductions")
    told = bicep["apps.bicep"]["variables"]["ofWorker"]["value"]
    assert "SWATHMILL_REDUCTION_POOL" in told


def test_a_worker_has_neither_the_signing_key_nor_the_mail_password(bicep: Files) -> None:
    """It needs none of them."""
    kept = {"SWATHMILL_SECRET", "SWATHMILL_SMTP_PASSWORD", "SWATHMILL_OIDC_CLIENT_SECRET"}
    assert not kept & compose_settings("worker")
    assert not kept & bicep_settings(bicep, "worker")
    assert kept & compose_settings("portal") == kept - {"SWATHMILL_SMTP_PASSWORD"}
    assert kept & compose_settings("manager") == kept - {"SWATHMILL_OIDC_CLIENT_SECRET"}
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    worker = text.partition("resource worker 'Microsoft.App/containerApps")[2]
    assert "      secrets: workerSecrets\n" in worker
    own = bicep["apps.bicep"]["variables"]["workerSecrets"]["value"]
    names = {entry["name"] for entry in own}
    assert names == {"redis-url", "redis-key", "earthdata-token"}


def test_a_worker_has_an_identity_of_its_own_that_reads_its_own_secrets(bicep: Files) -> None:
    """Whoever gets hold of a worker is not to read the signing key out of the vault."""
    apps = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    worker = apps.partition("resource worker 'Microsoft.App/containerApps")[2]
    assert "  identity: workerIdentity\n" in worker
    assert "      registries: workerRegistries\n" in worker
    for entry in bicep["apps.bicep"]["variables"]["workerSecrets"]["value"]:
        assert entry["identity"] == "workerIdentityId"
    main = (ROOT / "infra" / "bicep" / "main.bicep").read_text("utf-8")
    readers = main.partition("module workerSecrets 'secret-reader.bicep'")[2].partition("\n}]")[0]
    assert re.findall(r"'([a-z-]+)'", readers.partition(":")[0]) == [
        entry["name"] for entry in bicep["apps.bicep"]["variables"]["workerSecrets"]["value"]
    ]
    vault = main.partition("module vault 'vault.bicep'")[2].partition("\n}")[0]
    assert "principalId: identity.outputs.principalId" in vault
    assert "orker" not in vault


@pytest.mark.parametrize("process", ["portal", "manager", "worker"])
def test_compose_and_bicep_set_the_same_ones(process: str, bicep: Files) -> None:
    assert compose_settings(process) == bicep_settings(bicep, process) - AZURE_ONLY


def test_every_process_of_the_stack_runs_in_both(bicep: Files) -> None:
    commands = {name: compose_services()[name]["command"] for name in PROCESSES}
    modules = {
        "portal": "portal",
        "manager": "service_manager",
        "worker": "worker",
        "reductions": "worker.pool",
    }
    assert commands == {name: ["python", "-P", "-m", module] for name, module in modules.items()}
    for name, module in modules.items():
        config = bicep["apps.bicep"]["resources"][name]["config"]
        app = config.get("config", config)["properties"]  # of a resource with a condition, deeper
        (container,) = app["template"]["containers"]
        assert container["command"] == ["python", "-P", "-m", module]


def test_workers_of_places_are_workers_with_a_place_that_follow_its_own_slots(bicep: Files) -> None:
    """Replicas of apps or executions of jobs, as those without a place are."""
    told = str(bicep["apps.bicep"]["variables"]["placeSettings"]["value"])
    names = set(re.findall(r"(SWATHMILL_\w+)=", told))
    assert {"SWATHMILL_WORKER_PLACE", "SWATHMILL_SLOTS", "SWATHMILL_REDUCTION_POOL"} < names
    assert names <= SETTINGS
    resources = bicep["apps.bicep"]["resources"]
    for name, like in (("placeWorkers", "worker"), ("placeJobs", "workerJob")):
        own, other = (resources[one]["config"] for one in (name, like))
        own, other = own["config"], other.get("config", other)
        (container,) = own["properties"]["template"]["containers"]
        (plain,) = other["properties"]["template"]["containers"]
        assert "${placeSettings[at]} exec python -P -m worker" in container["command"][-1]
        for part in ("image", "env", "volumeMounts"):
            assert container[part] == plain[part]
        assert own["identity"] == other["identity"]
        for part in ("secrets", "registries"):
            assert (
                own["properties"]["configuration"][part]
                == other["properties"]["configuration"][part]
            )
    (rule,) = resources["placeWorkers"]["config"]["config"]["properties"]["template"]["scale"][
        "rules"
    ]
    assert rule["custom"]["metadata"]["listName"] == f"{wanted_slots.LIST}:${{one.place}}"


def parameter_files() -> list[Path]:
    return sorted((ROOT / "infra" / "bicep").glob("*.bicepparam"))


def given(path: Path) -> dict[str, str]:
    """The parameters that a file gives, and the text of each value."""
    text = path.read_text("utf-8")
    assert "using 'main.bicep'" in text
    parts = text.split("\nparam ")[1:]
    return {part.partition(" = ")[0]: part.partition(" = ")[2].strip() for part in parts}


@pytest.mark.parametrize("path", parameter_files(), ids=lambda path: path.stem)
def test_a_parameter_file_gives_parameters_that_exist(path: Path, bicep: Files) -> None:
    declared = bicep["main.bicep"]["parameters"]
    required = {name for name, one in declared.items() if one.get("default") is None}
    assert required <= set(given(path)) <= set(declared)


def test_there_is_a_file_for_each_size_and_both_give_the_same_parameters() -> None:
    files = {path.stem: set(given(path)) for path in parameter_files()}
    assert set(files) == set(SIZES)
    assert len(set(map(frozenset, files.values()))) == 1


@pytest.mark.parametrize("path", parameter_files(), ids=lambda path: path.stem)
def test_secrets_of_a_parameter_file_come_from_the_environment_alone(
    path: Path, bicep: Files
) -> None:
    secure = {
        name
        for name, one in bicep["main.bicep"]["parameters"].items()
        if any(each["type"] == "secure" for each in one.get("decorators", ()))
    }
    assert secure == {"signingSecret", "smtpPassword", "earthdataToken", "oidcClientSecret"}
    for name in secure:
        assert re.fullmatch(r"readEnvironmentVariable\('SWATHMILL_\w+', ''\)", given(path)[name])


@pytest.mark.parametrize("path", parameter_files(), ids=lambda path: path.stem)
def test_settings_of_a_parameter_file_can_be_set(path: Path) -> None:
    pairs = re.findall(r"(SWATHMILL_(?!DEPLOY)\w+): '([^']*)'", given(path)["settings"])
    assert pairs
    read_settings_given([f"{name}={value}" for name, value in pairs])


@pytest.mark.parametrize("path", parameter_files(), ids=lambda path: path.stem)
def test_what_a_parameter_file_reads_is_what_deploy_gives(path: Path) -> None:
    read = set(re.findall(r"readEnvironmentVariable\('(\w+)'", path.read_text("utf-8")))
    source = (ROOT / "swathmill" / "deployment" / "deploy.py").read_text("utf-8")
    known = set(re.findall(r'"(SWATHMILL_\w+)"', source)) | SETTINGS
    assert read <= known


def test_every_setting_is_reached_by_a_parameter_or_by_its_name(bicep: Files) -> None:
    """What `--set` refuses the template makes, or it means nothing in a container."""
    made = {f"SWATHMILL_{name.upper()}" for name in MADE}
    template = set[str]().union(*(bicep_settings(bicep, process) for process in PROCESSES))
    nowhere = {"SWATHMILL_WORKER_NAME", "SWATHMILL_PACKAGES", "SWATHMILL_DISK_QUOTA_GB"}
    # What a runner gets of the parameter `settings`.
    template -= {"SWATHMILL_NETWORK_HOSTS"}
    defaults = {str(name) for name in bicep["apps.bicep"]["variables"]["defaults"]["value"]}
    assert made == (template - AZURE_ONLY - defaults) | nowhere
    assert made <= SETTINGS


def test_a_worker_keeps_within_its_disk(bicep: Files) -> None:
    """A replica of 1 to 2 processors has 4 to 8 GiB; see also the memory of its attempts."""
    defaults = bicep["apps.bicep"]["variables"]["defaults"]["value"]
    kept = 1.5 * float(defaults["SWATHMILL_CACHE_GB"])
    disk = 8 * 2**30 / 1e9
    assert disk - kept > 2 * float(defaults["SWATHMILL_ATTEMPT_MEMORY_GB"])
    assert disk - kept > 2 * float(defaults["SWATHMILL_ATTEMPT_DISK_GB"])


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_is_probed_where_it_answers(process: str, bicep: Files) -> None:
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    own = text.partition(f"resource {process} 'Microsoft.App/containerApps")[2]
    own = own.partition("\nresource ")[0]
    if process == "portal":
        assert "'/livez'" in own
        assert "'/readyz'" in own
    else:
        assert "probes: probes" in own
    assert "SWATHMILL_PROBE_ADDRESS" in bicep_settings(bicep, process)
    check = compose_services()[process]["healthcheck"]
    assert isinstance(check, dict)
    port = dict(compose_services()[process]["environment"])["SWATHMILL_PROBE_ADDRESS"]  # type: ignore[call-overload]
    assert f":{port.partition(':')[2]}/livez" in " ".join(check["test"])


def test_probes_are_within_what_container_apps_allows() -> None:
    """The published types say so of ContainerAppProbe."""
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    tries = [int(one) for one in re.findall(r"failureThreshold: (\d+)", text)]
    periods = [int(one) for one in re.findall(r"periodSeconds: (\d+)", text)]
    assert tries
    assert all(1 <= one <= 10 for one in tries)
    assert all(1 <= one <= 240 for one in periods)


@pytest.mark.parametrize("path", parameter_files(), ids=lambda path: path.stem)
def test_the_guide_tells_the_hours_of_an_idle_month(path: Path) -> None:
    """They follow from the sizes in apps.bicep and the numbers of replicas."""
    text = (ROOT / "infra" / "bicep" / "apps.bicep").read_text("utf-8")
    sizes = re.findall(r"cpu: json\('([\d.]+)'\)\n +memory: '(\d+)Gi'", text)
    (portal, manager), slots = [(float(cpu), int(gib)) for cpu, gib in sizes], given(path)["slots"]
    assert "memory: '${slots * 2}Gi'" in text
    worker = (int(slots), 2 * int(slots))
    workers = int(given(path)["leastWorkers"]) + int(given(path)["leastRunners"])
    counts = (1, int(given(path)["managers"]), workers)
    cpu, gib = (
        730 * sum(n * size[i] for n, size in zip(counts, (portal, manager, worker), strict=True))
        for i in (0, 1)
    )
    guide = (ROOT / "docs" / "guides" / "operate.md").read_text("utf-8")
    assert f"| idle month, `--size {path.stem}` | {cpu:,.0f} | {gib:,.0f} |" in guide
