"""The Helm chart and the scripts for Slurm: settings that there are, secrets where they belong."""

import json
import os
import re
import shutil
import stat
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.settings import Settings

ROOT = Path(__file__).parents[2]
CHART = ROOT / "infra" / "helm" / "swathmill"
SLURM = ROOT / "infra" / "slurm"
SCALE_SET = ROOT / "infra" / "scale-set"
SETTINGS = {f"SWATHMILL_{name.upper()}" for name in Settings.model_fields}
HELM = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is absent")


def test_the_chart_has_the_version_of_pyproject() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_templates_and_scripts_name_settings_that_exist() -> None:
    named: set[str] = set()
    for path in (*CHART.glob("templates/*"), *SLURM.iterdir(), *SCALE_SET.iterdir()):
        named |= set(re.findall(r"SWATHMILL_[A-Z_]+", path.read_text("utf-8")))
    own = {"SWATHMILL_SETTINGS", "SWATHMILL_PYTHON", "SWATHMILL_TOKEN"}
    assert len(named) > 20
    assert named - own <= SETTINGS


def rendered(*words: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["helm", "template", "mill", str(CHART), *words], capture_output=True, text=True, check=True
    )
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@HELM
def test_a_worker_has_neither_the_signing_key_nor_the_mail_password() -> None:
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in rendered("--set", "redis.address=redis:6379")
        if one["kind"] == "Deployment"
    }
    keys = {
        name: {
            each["valueFrom"]["secretKeyRef"]["key"]
            for each in pod["containers"][0].get("env", ())
            if "valueFrom" in each
        }
        for name, pod in pods.items()
    }
    assert keys["mill-worker"] == {"storage", "redis-url", "earthdata-token"}
    signing = keys["mill-worker"] | {"signing-secret"}
    assert keys["mill-portal"] == signing | {"oidc-client-secret"}
    assert keys["mill-manager"] == signing | {"smtp-password"}
    assert keys["mill-reductions"] == set()
    assert "SWATHMILL_REDUCTION_POOL" in str(pods["mill-worker"])
    assert pods["mill-reductions"]["containers"][0]["envFrom"] == [
        {"configMapRef": {"name": "mill-reductions"}}
    ]
    for pod in pods.values():
        container = pod["containers"][0]
        assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "probe"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["securityContext"]["runAsNonRoot"] is True


@HELM
def test_a_worker_has_time_to_end_its_attempts_and_scales_by_wanted_slots() -> None:
    found = rendered("--set", "redis.address=redis:6379,workers.slots=4")
    (worker,) = (
        one
        for one in found
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "mill-worker"
    )
    (settings,) = (one for one in found if one["metadata"]["name"] == "mill-settings")
    grace = float(settings["data"]["SWATHMILL_GRACE_SECONDS"])
    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > grace
    assert "replicas" not in worker["spec"]
    (scaled,) = (one for one in found if one["kind"] == "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["listName"] == "swathmill:wanted-slots"
    assert trigger["metadata"]["listLength"] == settings["data"]["SWATHMILL_SLOTS"] == "4"


@HELM
def test_the_reduction_pool_is_reached_by_workers_alone_and_can_be_left_out() -> None:
    found = rendered("--set", "reductions.runtimeClassName=gvisor")
    own = {one["kind"]: one for one in found if one["metadata"]["name"] == "mill-reductions"}
    assert own["Deployment"]["spec"]["template"]["spec"]["runtimeClassName"] == "gvisor"
    assert "replicas" not in own["Deployment"]["spec"]
    assert own["HorizontalPodAutoscaler"]["spec"]["maxReplicas"] == 10
    runs, _probes = own["NetworkPolicy"]["spec"]["ingress"]
    assert runs["ports"] == [{"port": "runs"}]
    (source,) = runs["from"]
    assert source["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    assert "SWATHMILL_STORAGE" not in str(own)
    without = rendered("--set", "reductions.replicas=0")
    assert not [one for one in without if one["metadata"]["name"] == "mill-reductions"]
    assert "SWATHMILL_REDUCTION_POOL" not in str(without)


@HELM
def test_workers_of_a_place_have_machines_and_a_scale_of_their_own() -> None:
    place = "workers.places[0].name=gpu,workers.places[0].slots=1,workers.places[0].most=4"
    found = rendered(
        "--set", f"redis.address=redis:6379,{place},workers.places[0].memoryGiOfSlot=9"
    )
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    (gpu,), (other,) = (
        by_name["Deployment", name]["spec"]["template"]["spec"]["containers"]
        for name in ("mill-worker-gpu", "mill-worker")
    )
    said = {one["name"]: one.get("value") for one in gpu["env"]}
    assert (said["SWATHMILL_WORKER_PLACE"], said["SWATHMILL_SLOTS"]) == ("gpu", "1")
    assert "SWATHMILL_REDUCTION_POOL" not in said
    assert gpu["resources"]["limits"]["memory"] == "9Gi"
    assert "SWATHMILL_WORKER_PLACE" not in str(other)
    scaled = by_name["ScaledObject", "mill-worker-gpu"]["spec"]
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (0, 4)
    assert scaled["triggers"][0]["metadata"]["listName"] == "swathmill:wanted-slots:gpu"
    assert by_name["ScaledObject", "mill-worker"]["spec"]["minReplicaCount"] == 1


@HELM
def test_each_pod_is_reached_at_its_own_ports_alone_and_has_the_image_of_its_role() -> None:
    found = rendered(
        "--set",
        "image.digest=sha256:aa,image.roles.worker=r/worker@sha256:bb,workers.places[0].name=big",
    )
    policies = {
        one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "NetworkPolicy"
    }
    pods = {one["metadata"]["name"]: one for one in found if one["kind"] == "Deployment"}
    assert policies.keys() == pods.keys()
    open_at = {
        name: [port["port"] for rule in spec["ingress"] for port in rule["ports"]]
        for name, spec in policies.items()
    }
    assert open_at.pop("mill-portal") == ["http", "probe"]
    assert open_at.pop("mill-reductions") == ["runs", "probe"]
    assert {tuple(ports) for ports in open_at.values()} == {("probe",)}
    images = {
        name: one["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, one in pods.items()
    }
    assert images["mill-worker"] == "r/worker@sha256:bb"
    whole = {images[f"mill-{name}"] for name in ("portal", "manager", "worker-big")}
    assert whole == {"swathmill@sha256:aa"}  # a place's workers run packages themselves


@HELM
def test_without_an_autoscaler_the_fleet_has_a_size() -> None:
    found = rendered("--set", "workers.least=7")
    assert not [one for one in found if one["kind"] == "ScaledObject"]
    assert [
        one["spec"]["replicas"]
        for one in found
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "mill-worker"
    ] == [7]


@pytest.fixture
def portal() -> Iterator[str]:
    """A portal that wants 9 slots, told to operators alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "Bearer tok"
            body = json.dumps({"manager": {"acts": True, "wanted_slots": 9}, "running": []})
            self.send_response(200 if known else 401)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def put_programs(folder: Path, programs: dict[str, str]) -> None:
    """Write imitations of programs that note what they are given."""
    folder.mkdir(exist_ok=True)
    for name, body in programs.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/calls\n{body}')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def calls_of(fleet: Path, *words: str, folder: Path, portal: str) -> str:
    """Run a fleet's `scale.sh` with the programs in a folder; return what they were given."""
    done = subprocess.run(
        ["sh", str(fleet / "scale.sh"), *words],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SWATHMILL_PORTAL_URL": portal,
            "SWATHMILL_TOKEN": "tok",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (folder / "calls").read_text()


@pytest.mark.parametrize(
    ("machines", "most", "deleted", "scaled"),
    [
        ({}, 100, "", "5"),
        ({"3": "running", "4": "stopped", "7": "deallocated"}, 100, "4 7", "5"),
        (dict.fromkeys("12345", "running"), 100, "", ""),
        ({"1": "running"}, 3, "", "3"),
    ],
)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is absent")
def test_a_scale_set_gets_the_machines_that_are_wanted_and_loses_those_that_ended(
    portal: str, tmp_path: Path, machines: dict[str, str], most: int, deleted: str, scaled: str
) -> None:
    listed = "".join(
        f"{number}\tProvisioningState/succeeded PowerState/{state}\n"
        for number, state in machines.items()
    )
    (tmp_path / "listed").write_text(listed)
    put_programs(tmp_path, {"az": f'[ "$2" != list-instances ] || cat {tmp_path}/listed\n'})
    words = ("mill", "mill-workers", "2", str(most))
    calls = calls_of(SCALE_SET, *words, folder=tmp_path, portal=portal)
    assert re.findall(r"--instance-ids ([\d ]+) --output", calls) == ([deleted] if deleted else [])
    assert re.findall(r"--new-capacity (\d+)", calls) == ([scaled] if scaled else [])


CURL = """
for last; do :; done
case "$last" in
*identity/oauth2*) printf '{{"access_token": "token for %s"}}' "${{last##*resource=}}" ;;
*vault.example*) body=$(cat); echo "vault $body" >> {folder}/calls
    printf '{{"value": "secret of %s"}}' "$(echo "$last" | sed 's#.*secrets/##; s#?.*##')" ;;
*/oauth2/exchange) cat >> {folder}/calls; echo '{{"refresh_token": "pull"}}' ;;
*compute/name*) printf mill-w-3 ;;
*) exit 1 ;;
esac
"""
PODMAN = """
case "$1" in
login) cat >> {folder}/calls ;;
network) [ "$2" != exists ] ;;
run) while [ $# -gt 0 ]; do
        [ "$1" != --name ] || name=$2
        [ "$1" != --env-file ] || cat "$2" > "{folder}/$name.env"
        shift
    done ;;
esac
"""


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is absent")
def test_a_machine_at_a_spot_price_runs_a_worker_until_it_is_taken_away(tmp_path: Path) -> None:
    text = (SCALE_SET / "worker.sh").read_text("utf-8")
    given = {
        "image": "acr.example/swathmill:1",
        "registry": "acr.example",
        "identity": "client",
        "vault": "https://mill.vault.example/",
        "slots": "2",
        "settings": "SWATHMILL_SANDBOX=limits",
        "storage": "BlobEndpoint=https://b",
        "sources": "cmr",
    }
    template = (SCALE_SET / "workers.bicep").read_text("utf-8")
    assert {*re.findall(r"'\{(\w+)\}'", template)} == {*given}
    for word, value in given.items():
        assert f"{{{word}}}" in text
        text = text.replace(f"{{{word}}}", value)
    folder = tmp_path / "bin"
    put_programs(
        folder,
        {
            "curl": CURL.format(folder=folder),
            "podman": PODMAN.format(folder=folder),
            "iptables": "",
            "poweroff": "",
        },
    )
    (tmp_path / "worker.sh").write_text(text)
    done = subprocess.run(
        ["sh", str(tmp_path / "worker.sh")],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    worker = dict(
        line.split("=", 1) for line in (folder / "worker.env").read_text().splitlines() if line
    )
    assert worker["SWATHMILL_REDIS_URL"] == "secret of redis-url"
    assert worker["SWATHMILL_EARTHDATA_TOKEN"] == "secret of earthdata-token"
    assert worker["SWATHMILL_STORAGE"] == "BlobEndpoint=https://b"
    assert worker["SWATHMILL_REDUCTION_POOL"] == "reductions:8002"
    assert worker["SWATHMILL_WORKER_NAME"] == "mill-w-3"
    runner = (folder / "reductions.env").read_text().split()
    assert runner == ["SWATHMILL_SANDBOX=limits", "SWATHMILL_DATA_DIR=/data", "SWATHMILL_SLOTS=2"]
    calls = (folder / "calls").read_text()
    assert 'vault header = "Authorization: Bearer token for https://vault.example"' in calls
    assert "iptables --insert FORWARD --source 10.89.9.0/24 --destination 169.254.0.0/16" in calls
    assert worker["SWATHMILL_INSTANCE_METADATA"] == "http://169.254.169.254/metadata"
    assert calls.index("podman wait worker") < calls.index("poweroff")
    assert not [path for path in tmp_path.glob("tmp.*")], "a file with secrets stayed"


def test_a_worker_in_slurm_is_asked_to_go_before_its_time_is_over() -> None:
    text = (SLURM / "worker.sbatch").read_text("utf-8")
    (before,) = re.findall(r"--signal=B:TERM@(\d+)", text)
    (grace,) = re.findall(r"^SWATHMILL_GRACE_SECONDS=(\d+)", text, re.M)
    assert int(grace) + 30 <= int(before)
    assert re.search(r"^exec .*-m worker$", text, re.M)  # the signal reaches the batch shell alone
