"""The checks behind `doctor`: what works on this machine, and what to do about the rest."""

import os
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx

from archives.errors import ArchiveError
from archives.fetch.answers import bare_url
from archives.fetch.proxies import Proxies
from archives.registry import parse_chains, source_name
from reprojection.errors import KernelsAbsentError
from reprojection.kernels import kernels
from swathmill.errors import StackError
from swathmill.stack import ports, programs, storage
from swathmill.stack.azurite import Account, AzuriteServer
from swathmill.stack.folder import GIGABYTE, DataFolder, DiskUse, is_running
from swathmill.stack.redis_server import RedisServer
from swathmill.stack.storage import Storage
from tasks.errors import StoreError
from tasks.refusal_wording import nearest
from tasks.service.connect import connect_storage
from tasks.service.sources import open_sources
from tasks.settings import Settings
from worker.sandbox import makers, sandbox

LEAST_MEMORY_BYTES = 2 * GIGABYTE
_PREFIX = "SWATHMILL_"
_OTHERS = re.compile(  # variables that are no settings
    "DEPLOY_.*|TEST_.*|TOKEN|NODE_MODULES|KERNELS|PYTHON|SETTINGS|REDIS_PASSWORD|TAG"
)

_GONE = {  # settings of versions before, and what holds now
    "HISTORY_DAYS": "failed attempts are listed for 400 days",
    "OIDC_NAME": "the sign-in page has the provider's own name, or its host",
    "TIMEOUT_FACTOR": "an attempt may take four times the mean of its class",
}


class Verdict(StrEnum):
    """The result of a check; only a FAULT keeps the stack from running."""

    GOOD = "good"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check's result: what was found, and a remedy if something is missing."""

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""


def examine(folder: DataFolder, settings: Settings) -> list[Finding]:
    """Run every check; none raises, or leaves a process or a file behind."""
    findings = []
    for subject, check in checks_of(folder, settings):
        try:
            findings.append(check())
        except StackError as error:
            findings.append(
                Finding(
                    subject=subject,
                    verdict=Verdict.FAULT,
                    found=error.problem,
                    remedy=error.remedy,
                )
            )
    return findings


def checks_of(
    folder: DataFolder, settings: Settings
) -> Sequence[tuple[str, Callable[[], Finding]]]:
    """Return the checks by subject: Azurite only where the folder's data are in it."""
    in_azurite = any(folder.azurite.glob("*"))
    return (
        ("Python", _python),
        ("C compiler", _compiler),
        ("kernels", kernels_finding),
        ("settings", lambda: settings_finding(os.environ)),
        ("storage", lambda: storage_finding(folder)),
        *((("Node", _node), ("Azurite", _azurite)) if in_azurite else ()),
        ("message server", _message_server),
        ("sandbox", lambda: _sandbox(settings)),
        ("granules", reading_finding),
        ("mail", lambda: _mail(settings)),
        ("sources", lambda: sources_finding(settings)),
        ("proxies", lambda: proxies_finding(os.environ)),
        ("disk", lambda: disk_finding(folder, settings)),
        ("memory", _memory),
        ("stack", lambda: stack_finding(folder)),
    )


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding(subject="Python", verdict=Verdict.GOOD, found=f"{version}, {sys.executable}")


def _compiler() -> Finding:
    name = os.environ.get("CC", "cc")
    found = shutil.which(name)
    if found is None:
        return Finding(
            subject="C compiler",
            verdict=Verdict.NOTE,
            found=f"no {name} on PATH",
            remedy="Only `make setup` in a checkout needs it (Debian, Ubuntu: apt install gcc "
            "libc6-dev).",
        )
    return Finding(subject="C compiler", verdict=Verdict.GOOD, found=found)


def kernels_finding() -> Finding:
    """Say whether the C kernels are there."""
    try:
        kernels.library()
    except KernelsAbsentError:
        return Finding(
            subject="kernels",
            verdict=Verdict.FAULT,
            found="absent or of another version: nothing is reprojected, and workers do not start",
            remedy=kernels.REMEDY,
        )
    except OSError as error:
        return Finding(
            subject="kernels",
            verdict=Verdict.FAULT,
            found=f"cannot be loaded: {error}",
            remedy=kernels.REMEDY,
        )
    return Finding(subject="kernels", verdict=Verdict.GOOD, found="compiled and loaded")


def storage_finding(folder: DataFolder) -> Finding:
    """Say where the folder's data are, and whether this machine can keep them there."""
    kind = storage.held(folder)
    if kind is Storage.AZURITE:
        return Finding(subject="storage", verdict=Verdict.GOOD, found=f"Azurite, {folder.azurite}")
    place = folder.tables if kind else _existing(folder.path)
    try:
        if kind is None:
            with tempfile.TemporaryDirectory(prefix=".swathmill-doctor-", dir=place) as scratch:
                connect_storage(storage.embedded(DataFolder(path=Path(scratch)))).tasks.task("0")
        else:
            connect_storage(storage.embedded(folder)).tasks.task("0")
    except (StoreError, OSError) as error:
        return Finding(
            subject="storage",
            verdict=Verdict.FAULT,
            found=f"embedded: {error}",
            # What is amiss with the tables says itself what to do.
            remedy="The data folder has to be on a disk of this machine, and writable; name "
            "another with --data or SWATHMILL_DATA_DIR."
            if kind is None or isinstance(error, OSError)
            else "docs/operations.md, Embedded storage, says more.",
        )
    found = f"embedded, SQLite {sqlite3.sqlite_version}, {place}"
    return Finding(subject="storage", verdict=Verdict.GOOD, found=found)


def _existing(path: Path) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def _node() -> Finding:
    node = programs.node()
    version = ".".join(map(str, programs.node_version(node)))
    return Finding(subject="Node", verdict=Verdict.GOOD, found=f"{version}, {node}")


def _azurite() -> Finding:
    with tempfile.TemporaryDirectory(prefix="swathmill-doctor-") as scratch:
        folder = Path(scratch)
        server = AzuriteServer.on_free_ports(
            folder=folder / "data", log=folder / "log", account=Account.new()
        )
        server.start().stop()
    return Finding(
        subject="Azurite", verdict=Verdict.GOOD, found=f"starts and stops, {programs.azurite()}"
    )


def _message_server() -> Finding:
    with tempfile.TemporaryDirectory(prefix="swathmill-doctor-") as scratch:
        folder = Path(scratch)
        RedisServer.on_free_port(folder=folder / "data", log=folder / "log").start().stop()
    used = programs.redis_server() or "Swathmill's own, for no redis-server is on PATH"
    return Finding(
        subject="message server", verdict=Verdict.GOOD, found=f"starts and stops, {used}"
    )


def _sandbox(settings: Settings) -> Finding:
    report = sandbox.report(settings)
    if report.tier is None:
        return Finding(
            subject="sandbox",
            verdict=Verdict.NOTE,
            found="no reduction runs here but the shipped ones",
            remedy=report.remedy,
        )
    return Finding(
        subject="sandbox",
        verdict=Verdict.GOOD if report.tier == "bubblewrap" else Verdict.NOTE,
        found=report.line,
        remedy=report.remedy,
    )


def reading_finding() -> Finding:
    """Say in which tier strangers' files are read."""
    tier = makers.reading_tier()
    return Finding(
        subject="granules",
        verdict=Verdict.GOOD if tier == "limits" else Verdict.NOTE,
        found=makers.reading_line() if tier == "limits" else _read_openly(),
        remedy=""
        if tier == "limits"
        else "Take granules, uploads of rasters and files of regions only from whom you trust.",
    )


def _read_openly() -> str:
    who = "so are uploads of rasters, files of regions, and what manager and commands read"
    return f"{makers.reading_line()}; {who}"


def _mail(settings: Settings) -> Finding:
    if (server := settings.smtp) is None:
        port = ports.choose(1)[0]
        return Finding(
            subject="mail",
            verdict=Verdict.NOTE,
            found=f"no mail server is set: mails are kept as files (loopback port {port} is free)",
            remedy="To send them, set SWATHMILL_SMTP_URL (docs/settings.md).",
        )
    address = f"{server.host}:{server.port}"
    try:
        with socket.create_connection((server.host, server.port), timeout=5.0):
            return Finding(subject="mail", verdict=Verdict.GOOD, found=f"{address} answers")
    except OSError as error:
        return Finding(
            subject="mail",
            verdict=Verdict.FAULT,
            found=f"{address} does not answer ({error})",
            remedy="Correct SWATHMILL_SMTP_URL, or unset it.",
        )


def settings_finding(environment: Mapping[str, str]) -> Finding:
    """Say which settings the environment has, and which variables are none, such as a misspelt."""
    known = {name.upper() for name in Settings.model_fields}
    given = [name for name in sorted(environment) if name.startswith(_PREFIX)]
    strange = [
        name
        for name in given
        if name.removeprefix(_PREFIX) not in known
        and not _OTHERS.fullmatch(name.removeprefix(_PREFIX))
    ]
    if not strange:
        found = ", ".join(given) or "all have their defaults"
        return Finding(subject="settings", verdict=Verdict.GOOD, found=found)
    gone = [_GONE[name] for one in strange if (name := one.removeprefix(_PREFIX)) in _GONE]
    like = [] if gone else nearest(strange[0].removeprefix(_PREFIX), known)
    return Finding(
        subject="settings",
        verdict=Verdict.NOTE,
        found=f"{', '.join(strange)}: there is no such setting, and it has no effect",
        remedy=(f"Now {'; '.join(gone)}. " if gone else "")
        + (f"Did you mean {_PREFIX}{like[0]}? " if like else "")
        + "docs/settings.md lists them.",
    )


def proxies_finding(environment: Mapping[str, str]) -> Finding:
    """Report the proxies of the environment, and which cannot be used."""
    found = Proxies.of(environment)
    problems = [proxy.problem for proxy in found.by_scheme.values() if proxy.problem]
    if found.passed_over:
        problems.append(f"NO_PROXY has what is no host: {', '.join(found.passed_over)}")
    if problems:
        return Finding(
            subject="proxies",
            verdict=Verdict.NOTE,
            found="; ".join(problems),
            remedy="Correct the variable where the stack starts. A folder as archive needs none.",
        )
    named = [f"{proxy.variable} {bare_url(proxy.url)}" for proxy in found.by_scheme.values()]
    return Finding(
        subject="proxies", verdict=Verdict.GOOD, found=", ".join(named) or "none are named"
    )


def sources_finding(settings: Settings) -> Finding:
    """Report which sources of granules are set, without calling any of them."""
    if not settings.sources and not settings.archive:
        return Finding(
            subject="sources",
            verdict=Verdict.NOTE,
            found="no source of granules is set: `swathmill up` takes the one of the last time, "
            "else the sample archive",
            remedy="Name a folder with --archive, or set SWATHMILL_SOURCES (docs/archives.md).",
        )
    try:
        default, products = parse_chains(settings.sources or "folder")
        with tempfile.TemporaryDirectory(prefix="swathmill-doctor-") as scratch:
            open_sources(settings, Path(scratch) / "index.sqlite")
    except ArchiveError as error:
        return Finding(
            subject="sources",
            verdict=Verdict.FAULT,
            found=str(error),
            remedy="Correct SWATHMILL_SOURCES and SWATHMILL_ARCHIVE (docs/archives.md).",
        )
    chains = [", ".join(map(source_name, default))]
    chains += [f"{name}: {', '.join(map(source_name, own))}" for name, own in products.items()]
    found = "; ".join(filter(None, chains))
    nasa = {"cmr", "laads"} & {*default, *(name for own in products.values() for name in own)}
    if nasa and not settings.earthdata_token.get_secret_value():
        return Finding(
            subject="sources",
            verdict=Verdict.NOTE,
            found=f"{found}, without an Earthdata token",
            remedy="NASA lists granules without one and gives none: make one at "
            "https://urs.earthdata.nasa.gov/user_tokens and set SWATHMILL_EARTHDATA_TOKEN.",
        )
    return Finding(subject="sources", verdict=Verdict.GOOD, found=found)


def disk_finding(folder: DataFolder, settings: Settings) -> Finding:
    """Report the room for the data folder, and what a stack that has paused work waits for."""
    place = _existing(folder.path)
    use = DiskUse(
        used=folder.disk_use(settings.disk_quota_gb).used if place == folder.path else 0,
        quota=int(settings.disk_quota_gb * GIGABYTE),
        free=shutil.disk_usage(place).free,
    )
    found = (
        f"{use.free / GIGABYTE:.1f} GB free at {place}, {use.used / GIGABYTE:.1f} GB of the quota "
        f"of {settings.disk_quota_gb:g} GB in use"
    )
    if use.problem:
        return Finding(
            subject="disk",
            verdict=Verdict.FAULT,
            found=found,
            remedy="Make room, raise SWATHMILL_DISK_QUOTA_GB if that is what is full, or name a "
            "data folder on another disk (SWATHMILL_DATA_DIR). A stack that has paused work "
            f"continues with {use.lacking}.",
        )
    if use.lacking:
        return Finding(
            subject="disk",
            verdict=Verdict.NOTE,
            found=found,
            remedy=f"A stack that has paused work continues with {use.lacking}.",
        )
    if use.free + use.used < use.quota:
        return Finding(
            subject="disk",
            verdict=Verdict.NOTE,
            found=found,
            remedy="The disk is smaller than the quota: lower SWATHMILL_DISK_QUOTA_GB.",
        )
    return Finding(subject="disk", verdict=Verdict.GOOD, found=found)


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = f"{total / GIGABYTE:.1f} GB, {os.cpu_count()} processors"
    if total < LEAST_MEMORY_BYTES:
        return Finding(
            subject="memory",
            verdict=Verdict.NOTE,
            found=found,
            remedy="Little for large rasters: run with --slots 1.",
        )
    return Finding(subject="memory", verdict=Verdict.GOOD, found=found)


def stack_finding(folder: DataFolder) -> Finding:
    """Ask the portal of this data folder's stack whether the stack works."""
    state = folder.state()
    if not is_running(folder):
        return Finding(subject="stack", verdict=Verdict.GOOD, found=f"none runs over {folder.path}")
    try:
        answer = httpx.get(f"{state.portal_url}/healthz", timeout=10.0, trust_env=False)
        said = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return Finding(
            subject="stack",
            verdict=Verdict.FAULT,
            found=f"the portal {state.portal_url} does not answer ({type(error).__name__})",
            remedy=f"Read {folder.log('portal')} and {folder.log('stack')}.",
        )
    if answer.is_success:
        return Finding(
            subject="stack",
            verdict=Verdict.GOOD,
            found=f"{state.portal_url} answers, a service manager acts, the message server answers",
        )
    return Finding(
        subject="stack",
        verdict=Verdict.FAULT,
        found=said.get("reason") or said.get("detail") or f"/healthz says {answer.status_code}",
        remedy=said.get("remedy") or f"Read {folder.log('manager')} and {folder.log('stack')}.",
    )
