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
SETTINGS = {f"SWATHMILL_{name.upper()}" for name in Settings.model_fields}
HELM = pytest.mark.skipif(shutil.which("helm") is None, reason="helm is absent")


def test_the_chart_has_the_version_of_pyproject() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["appVersion"] == chart["version"] == project["version"]


def test_templates_and_scripts_name_settings_that_exist() -> None:
    named: set[str] = set()
    for path in (*CHART.glob("templates/*"), *SLURM.iterdir()):
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


@pytest.mark.parametrize(
    ("there", "most", "submitted"), [(0, 200, "1-5"), (2, 200, "1-3"), (5, 200, ""), (0, 4, "1-4")]
)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is absent")
def test_slurm_gets_as_many_workers_as_are_wanted_and_not_there(
    portal: str, tmp_path: Path, there: int, most: int, submitted: str
) -> None:
    program = {
        "squeue": "".join(f"echo job_{number}\n" for number in range(there)),
        "sbatch": f'echo "$@" > {tmp_path}/submitted\n',
    }
    for name, body in program.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    done = subprocess.run(
        ["sh", str(SLURM / "scale.sh"), "2", str(most)],
        env={
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SWATHMILL_PORTAL_URL": portal,
            "SWATHMILL_TOKEN": "tok",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = tmp_path / "submitted"
    words = said.read_text().split() if said.exists() else []
    assert [word for word in words if word.startswith("--array=")] == (
        [f"--array={submitted}"] if submitted else []
    )


def test_a_worker_in_slurm_is_asked_to_go_before_its_time_is_over() -> None:
    text = (SLURM / "worker.sbatch").read_text("utf-8")
    (before,) = re.findall(r"--signal=B:TERM@(\d+)", text)
    (grace,) = re.findall(r"^SWATHMILL_GRACE_SECONDS=(\d+)", text, re.M)
    assert int(grace) + 30 <= int(before)
    assert re.search(r"^exec .*-m worker$", text, re.M)  # the signal reaches the batch shell alone
