"""Look for known vulnerabilities in what the locks name, and say what was not looked at.

    .venv-supply/bin/python -m tools.audit                      # asks services: needs a network
    .venv-supply/bin/python -m tools.audit --advisories FOLDER  # a database in OSV's format

Without a folder, pip-audit asks the registry of Python packages about each of
`requirements*.lock`, and `npm audit` asks npm's about those of `package-lock.json`. With one, the
advisories of all its files (JSON or YAML: the PyPA's and GitHub's databases and the exports of OSV)
are compared with both, and nothing is sent.

Exit code 0: everything was looked at and nothing is known against it. 1: something is known. 2:
nothing is known, but not all was looked at; the last lines say what. `tools/accepted.toml` has the
advisories that do not concern us, with the reason.
"""

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
ACCEPTED = ROOT / "tools" / "accepted.toml"
PYTHON, NPM = "PyPI", "npm"
OLD_DAYS = 30
"""Days after which a database is called old."""
_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^ ;\\]+)", re.MULTILINE)


@dataclass(frozen=True, order=True)
class Package:
    """A package as a lock names it; `ecosystem` as OSV spells it."""

    ecosystem: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.ecosystem})"


@dataclass(frozen=True, order=True)
class Finding:
    """An advisory against a package, with the versions that mend it and its other names."""

    package: Package
    advisory: str
    mended: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass
class Report:
    """What was looked at, what was found, and what was not looked at, with the reason."""

    looked_at: set[Package] = field(default_factory=set)
    found: set[Finding] = field(default_factory=set)
    missed: dict[Package, str] = field(default_factory=dict)

    def exit_code(self) -> int:
        """Return 1 for a finding, else 2 if something was not looked at, else 0."""
        return 1 if self.found else 2 if self.missed else 0


# --- What is locked ---


def normal(name: str) -> str:
    """Return a Python package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def python_packages(lock: str) -> set[Package]:
    """Return the packages that the text of a requirements lock names."""
    return {Package(PYTHON, normal(name), version) for name, version in _PIN.findall(lock)}


def npm_packages(lock: Mapping[str, Any]) -> set[Package]:
    """Return the packages of a package-lock.json."""
    return {
        Package(NPM, place.rpartition("node_modules/")[2], one["version"])
        for place, one in lock["packages"].items()
        if place
    }


def locked(root: Path = ROOT) -> dict[Package, list[str]]:
    """Return each locked package with the names of its locks."""
    found: dict[Package, list[str]] = {}
    for path in sorted(root.glob("requirements*.lock")):
        for package in sorted(python_packages(path.read_text())):
            found.setdefault(package, []).append(path.name)
    for package in sorted(npm_packages(json.loads((root / "package-lock.json").read_text()))):
        found.setdefault(package, []).append("package-lock.json")
    return found


# --- A database in OSV's format (https://ossf.github.io/osv-schema/, version 1.6) ---


@dataclass
class Database:
    """The advisories of a folder, by ecosystem and package."""

    advisories: dict[tuple[str, str], list[Mapping[str, Any]]] = field(default_factory=dict)
    number: int = 0
    newest: str = ""
    """When one was last changed, as the database says."""

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> "Database":
        """Take the records that stand; withdrawn ones do not."""
        found = cls()
        for record in records:
            found.newest = max(found.newest, str(record.get("modified", "")))
            if record.get("withdrawn"):
                continue
            found.number += 1
            for package in {_named(each["package"]) for each in record.get("affected", ())}:
                found.advisories.setdefault(package, []).append(record)
        return found

    def ecosystems(self) -> set[str]:
        """Return the ecosystems that it has any advisory about."""
        return {ecosystem for ecosystem, _ in self.advisories}


def read(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of all files of a folder. Raises ValueError for a file that is none."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    for path in sorted(folder.rglob("*")):
        if path.suffix not in (".json", ".yaml") or any(
            part.startswith(".") for part in path.parts
        ):
            continue
        text = path.read_text("utf-8")
        record = json.loads(text) if path.suffix == ".json" else yaml.load(text, loader)
        if not isinstance(record, dict) or "id" not in record:
            raise ValueError(f"{path} is no advisory in OSV's format")
        yield record


def against(package: Package, database: Database) -> Iterator[Finding]:
    """Yield the advisories against a package. Raises ValueError if its version has no order."""
    for record in database.advisories.get((package.ecosystem, package.name), ()):
        parts = [
            each
            for each in record["affected"]
            if _named(each["package"]) == (package.ecosystem, package.name)
        ]
        if any(_affects(each, package.version) for each in parts):
            mended = sorted(
                {
                    event["fixed"]
                    for each in parts
                    for span in _ordered(each)
                    for event in span["events"]
                    if "fixed" in event
                }
            )
            yield Finding(package, record["id"], tuple(mended), tuple(record.get("aliases", ())))


def _named(package: Mapping[str, str]) -> tuple[str, str]:
    ecosystem, name = package["ecosystem"], package["name"]
    return ecosystem, normal(name) if ecosystem == PYTHON else name


def _ordered(affected: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the ranges of versions; those of commits say nothing of a release."""
    return [span for span in affected.get("ranges", ()) if span["type"] != "GIT"]


def _affects(affected: Mapping[str, Any], version: str) -> bool:
    """Tell whether a version is listed, or lies in a range: from one event on until the next."""
    if version in affected.get("versions", ()):
        return True
    spans = _ordered(affected)
    if not spans:
        return not affected.get("versions")  # neither: all versions
    own = _version(version)
    for span in spans:
        within = False
        for moment, what in sorted(
            (_version(at), what)
            for event in span["events"]
            for what, at in event.items()
            if what in ("introduced", "fixed", "last_affected")
        ):
            if what == "introduced" and moment <= own:
                within = True
            elif (what == "fixed" and moment <= own) or (what == "last_affected" and moment < own):
                within = False
        if within:
            return True
    return False


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        # Semantic versions have letters of their own for what comes before a release.
        core, _, before = text.partition("+")[0].partition("-")
        number = re.sub(r"\D+", ".", before).strip(".") or "0"
        return Version(f"{core}.dev{number.replace('.', '')}")


def compare(packages: Iterable[Package], database: Database) -> Report:
    """Compare packages with a database."""
    report = Report()
    known = database.ecosystems()
    for package in packages:
        if package.ecosystem not in known:
            report.missed[package] = (
                f"the folder has no advisory about packages of {package.ecosystem}"
            )
            continue
        try:
            report.found |= set(against(package, database))
        except ValueError as error:
            report.missed[package] = str(error)
        else:
            report.looked_at.add(package)
    return report


# --- Services ---

Run = Callable[[Sequence[str]], tuple[int, str, str]]
"""Runs a program; returns its exit code, and what it wrote to standard output and error."""


def ask_pip_audit(packages: Iterable[Package], lock: Path, run: Run) -> Report:
    """Have pip-audit ask the registry about the packages of a lock."""
    wanted = list(packages)
    report = Report()
    how = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    code, said, wrong = run([sys.executable, "-m", "pip_audit", *how, "-r", str(lock)])
    try:
        answers = {normal(one["name"]): one for one in json.loads(said)["dependencies"]}
    except (ValueError, KeyError):
        why = f"pip-audit ended with {code}: {_last(wrong)}"
        return Report(missed=dict.fromkeys(wanted, why))
    for package in wanted:
        one = answers.get(package.name, {})
        if "skip_reason" in one:
            report.missed[package] = "the registry told pip-audit nothing of it"
            continue
        if one.get("version") != package.version:
            report.missed[package] = "pip-audit leaves out what other platforms and Pythons install"
            continue
        report.looked_at.add(package)
        for vulnerable in one["vulns"]:
            mended, aliases = tuple(vulnerable["fix_versions"]), tuple(vulnerable["aliases"])
            report.found.add(Finding(package, vulnerable["id"], mended, aliases))
    return report


def ask_npm_audit(packages: Iterable[Package], run: Run) -> Report:
    """Have `npm audit` ask the registry about the packages of package-lock.json."""
    wanted = list(packages)
    code, said, wrong = run(["sh", "tools/npm.sh", "audit", "--json", "--package-lock-only"])
    try:
        answer = json.loads(said)
        vulnerable = answer["vulnerabilities"]
    except (ValueError, KeyError):
        why = f"npm audit ended with {code}: {_last(wrong)}"
        return Report(missed=dict.fromkeys(wanted, why))
    report = Report(looked_at=set(wanted))
    for name, one in vulnerable.items():
        # What is vulnerable by its dependency alone names that as a text.
        for advisory in (each for each in one["via"] if isinstance(each, dict)):
            some = [package for package in wanted if package.name == name]
            identity = str(advisory["url"]).rpartition("/")[2]
            report.found |= {Finding(package, identity) for package in some}
    return report


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


# --- What is said of it ---


def without_accepted(report: Report, accepted: Mapping[str, str]) -> tuple[Report, list[Finding]]:
    """Return the report without the findings that do not concern us, and these."""
    left = {one for one in report.found if not accepted.keys() & {one.advisory, *one.aliases}}
    return Report(report.looked_at, left, report.missed), sorted(report.found - left)


def told(
    report: Report, locks: Mapping[Package, Sequence[str]], accepted: Sequence[Finding]
) -> str:
    """Say what was found, what was accepted, what was looked at, and what was not."""
    lines = []
    for one in sorted(report.found):
        mended = f"mended in {', '.join(one.mended)}" if one.mended else "nothing mends it yet"
        names = ", ".join((one.advisory, *one.aliases))
        lines.append(f"{one.package}: {names}; {mended}; in {', '.join(locks[one.package])}")
    lines += [f"{one.package}: {one.advisory} is accepted" for one in accepted]
    lines.append(
        f"{len(report.looked_at)} of {len(report.looked_at) + len(report.missed)} packages were "
        f"looked at, {len(report.found)} advisories are against them."
    )
    for why in sorted(set(report.missed.values())):
        some = sorted(str(package) for package, each in report.missed.items() if each == why)
        more = f" and {len(some) - 3} more" if len(some) > 3 else ""
        lines.append(f"NOT looked at: {', '.join(some[:3])}{more}: {why}")
    return "\n".join(lines)


def age(newest: str, now: dt.datetime) -> str:
    """Say how old a database is, by its newest change."""
    days = (now - dt.datetime.fromisoformat(newest.replace("Z", "+00:00"))).days
    old = f"; OLD: what was found in the last {days} days is not in it" if days > OLD_DAYS else ""
    return f"its newest is of {newest[:10]}, {days} days ago{old}"


def _run(command: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main() -> int:
    """Look, and say it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--advisories", type=Path, help="a folder with a database in OSV's format")
    folder: Path | None = parser.parse_args().advisories
    locks = locked()
    report = Report()
    if folder is not None:
        database = Database.of(read(folder))
        if not database.number:
            print(f"{folder} holds no advisory", file=sys.stderr)
            return 2
        print(f"{database.number} advisories; {age(database.newest, dt.datetime.now(dt.UTC))}")
        report = compare(locks, database)
    else:
        names = sorted({name for some in locks.values() for name in some})
        for name in names:
            some = [package for package, each in locks.items() if name in each]
            if name == "package-lock.json":
                one = ask_npm_audit(some, _run)
            else:
                one = ask_pip_audit(some, ROOT / name, _run)
            report = Report(
                report.looked_at | one.looked_at,
                report.found | one.found,
                report.missed | one.missed,
            )
    accepted = tomllib.loads(ACCEPTED.read_text())["accepted"]
    report, spared = without_accepted(report, accepted)
    print(told(report, locks, spared))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())
