"""Rules and dashboards speak of metrics and log lines that there are, and each rule fires."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "monitoring"
SOURCES = [
    ROOT / "portal" / "operations" / "metrics.py",
    ROOT / "service_manager" / "leader" / "metrics.py",
    ROOT / "worker" / "slots" / "metrics.py",
    ROOT / "worker" / "pool" / "metrics.py",
]
_ENDINGS = re.compile(r"_(total|bucket|sum|count)$")


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    (group,) = document["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def known_names() -> set[str]:
    """The names of our metrics, as the processes declare them."""
    found: set[str] = set()
    for path in SOURCES:
        text = path.read_text("utf-8")
        found |= set(re.findall(r'"(swathmill_\w+)"', text))
        for prefix in re.findall(r'f"(swathmill_\w+_)\{name\}"', text):
            found |= {prefix + name for name in re.findall(r'^ +\(\s*"(\w+)",', text, re.M)}
    return found


def named_in(text: str) -> set[str]:
    return {_ENDINGS.sub("", name) for name in re.findall(r"swathmill_\w+", text)}


def test_rules_name_metrics_that_there_are() -> None:
    names = set().union(*(named_in(rule["expr"]) for rule in rules()))
    assert len(names) >= 8
    assert names <= known_names()


def test_the_dashboard_names_metrics_that_there_are() -> None:
    document = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
    names: set[str] = set()
    for panel in document["panels"]:
        assert panel["title"]
        names |= set().union(*(named_in(target["expr"]) for target in panel["targets"]))
    assert len(names) >= 12
    assert names <= known_names()


def test_the_operations_page_has_each_metric_and_each_alert() -> None:
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert known_names() <= named_in(page)
    for rule in rules():
        assert f"`{rule['alert']}`" in page


def test_queries_of_azure_monitor_name_lines_that_are_logged() -> None:
    """They run over logs, which no machine but Azure's can: their words are held to the code."""
    text = (ROOT / "infra" / "bicep" / "alerts.bicep").read_text("utf-8")
    manager = SOURCES[1].read_text("utf-8")
    assert 'get_logger("manager.fleet")' in manager
    assert re.search(r'log\.info\(\s*"fleet",', manager)
    for field in ("ready", "slots"):
        assert f"line.{field}" in text
        assert re.search(rf"^ +{field}=", manager, re.M)
    supervisor = (ROOT / "worker" / "slots" / "supervisor.py").read_text("utf-8")
    assert 'line.event == "attempt ended"' in text
    assert '"attempt ended"' in supervisor
    assert "outcome=" in supervisor


def test_each_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    document = yaml.safe_load((FOLDER / "alerts_test.yml").read_text("utf-8"))
    fires: set[str] = set()
    silent: set[str] = set()
    for case in document["tests"]:
        for one in case["alert_rule_test"]:
            (fires if one["exp_alerts"] else silent).add(one["alertname"])
    assert fires == silent == {rule["alert"] for rule in rules()}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is absent (apt: prometheus)")
def test_rules_fire_when_they_should_and_only_then() -> None:
    for words in (
        ("check", "config", str(FOLDER / "prometheus.yml")),
        ("test", "rules", str(FOLDER / "alerts_test.yml")),
    ):
        done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
