"""`python -m tests.removal [FEATURE ...]`: take a feature out of a copy; all else passes there.

`make proofs ONLY=removal`. What is removed is the feature's folders, the lines that register it,
and what tests and pages over all features say of it. Then ruff, mypy, the import contracts and the
tests of all else run in the copy (`--tests` names files or folders; else the quick ones of all).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.proofs import FAST, ROOT

_ITSELF = "tests/test_removal.py"  # compares this table with a whole checkout
_BUILT = (r"^\.mypy_cache/", r"\.so$", r"places\.zip$", r"^portal/static/vendor/", r"^build/moto/")
_TESTS = ("tests",)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What goes with a feature: `folders` and files, and lines.

    `registered` are the lines of the product that name it, `spoken_of` those of tests and pages
    over all features: by file, patterns that each match lines there, or texts and what replaces
    them.
    """

    folders: Sequence[str]
    registered: Mapping[str, Sequence[str | tuple[str, str]]]
    spoken_of: Mapping[str, Sequence[str | tuple[str, str]]] = field(default_factory=dict)


REMOVALS = {
    "standards": Removal(
        folders=("portal/standards", "tests/portal/standards"),
        registered={
            "portal/features.py": (r".*\bstandards\b.*",),
            "pyproject.toml": ((r'"standards \| elsewhere', '"elsewhere'),),
        },
        spoken_of={
            "docs/threat-model.md": (
                r"\| `portal/standards/.*",
                (r"`portal/standards/[a-z_]+\.py`, ", ""),
            ),
            "tests/fuzz/parsers.py": (
                r"from portal\.standards\.datetimes .*",
                r'    "[^"]*": Parser\(\n        parse=lambda data: Interval(?:.*\n)*?    \),',
            ),
            "tests/fuzz/test_fuzz.py": (r'        \("datetime", .*',),
            "tests/infra/test_interfaces.py": (r'    "HTTP API": http_api,',),
            "tests/portal/description/test_api_description.py": (
                ("/jobs/", "/api/requests/"),
                (r'"/collections", ', ""),
            ),
            "tests/portal/serving/test_repeated_calls.py": (
                (r' "/jobs/\{\}",', ""),
                r'    "/collections/\{\}/items\?limit=10",',
            ),
            "tests/portal/test_two_owners.py": (
                r'    \("[A-Z]+", ["\']/(collections|search|jobs).*',
            ),
            "tests/swathmill/commands/test_request_commands.py": (r'.*web\.get\(f"/jobs/.*',),
        },
    ),
    "elsewhere": Removal(
        folders=(
            "portal/elsewhere",
            "portal/templates/copy_results.html",
            "portal/templates/scripts.html",
            "tests/portal/elsewhere",
            "tests/browser/test_copying_in_browser.py",
            "tests/swathmill/commands/test_copy_command.py",
        ),
        registered={
            "portal/features.py": (r".*\belsewhere\b.*",),
            "pyproject.toml": ((r'"standards \| elsewhere', '"standards'),),
        },
        spoken_of={
            "docs/threat-model.md": ((r"`portal/elsewhere/[a-z_]+\.py`, ", ""),),
            "tests/infra/test_interfaces.py": (r'    "HTTP API": http_api,',),
            "tests/portal/test_two_owners.py": (r".*/api/requests/\{id\}/(scripts|zarr|copies).*",),
            "tests/reprojection/formats/test_own_values.py": (r'    "portal/elsewhere/.*',),
        },
    ),
    "polygons": Removal(
        folders=(
            "portal/polygons",
            "portal/static/polygons.js",
            "portal/templates/polygons.html",
            "portal/templates/polygons_found.html",
            "portal/templates/polygons_page.html",
            "reprojection/grid/shares.py",
            "tests/mutants/polygons.toml",
            "tests/portal/polygons",
            "tests/reprojection/grid/test_shares.py",
        ),
        registered={
            "portal/features.py": (r".*\bpolygons\b.*",),
            "pyproject.toml": ((r'"requests \| polygons', '"requests'),),
        },
        spoken_of={
            "docs/threat-model.md": ((r", `portal/polygons/polygons_api\.py`", ""),),
            "tests/infra/test_interfaces.py": (r'    "HTTP API": http_api,',),
            "tests/browser/test_scientists_day.py": (
                r"def test_a_polygon_is_drawn_on_the_map\((?:.*\n)*?\n",
            ),
            "tests/portal/test_two_owners.py": (r'    \("POST", .*/polygons[. ].*',),
        },
    ),
    "sites on pages": Removal(
        folders=(
            "portal/sites",
            "portal/templates/comparison.html",
            "portal/templates/request_sites.html",
            "portal/templates/sites.html",
            "tests/portal/sites",
        ),
        registered={
            "portal/features.py": (r".*\bsites\b.*",),
            "pyproject.toml": ((r" \| sites\"", '"'),),
        },
        spoken_of={
            "docs/threat-model.md": ((r"`portal/sites/[a-z_]+\.py`,( |$)", ""),),
            "portal/templates/request.html": ((r"sites=made\.region\.sites is not none, ", ""),),
            "tests/portal/test_two_owners.py": (r'            "/sites",',),
        },
    ),
    "uploads": Removal(
        folders=(
            "portal/templates/package.html",
            "portal/templates/packages.html",
            "portal/templates/raster.html",
            "portal/templates/rasters.html",
            "portal/templates/upload.html",
            "portal/templates/uploads.html",
            "portal/templates/uploads_navigation.html",
            "portal/uploads",
            "reprojection/user_rasters",
            "swathmill/commands/package_uploads.py",
            "swathmill/commands/raster.py",
            "swathmill/commands/shared/uploads.py",
            "tasks/packages/https_fetch.py",
            "tasks/uploads",
            "tests/acceptance/test_elevation.py",
            "tests/acceptance/test_measured_sites.py",
            "tests/acceptance/test_ten_requests.py",
            "tests/portal/requests/test_rehearsal_page.py",
            "tests/portal/uploads",
            "tests/reprojection/catalogue/test_user_raster.py",
            "tests/swathmill/commands/test_package_commands.py",
            "tests/swathmill/commands/test_raster_commands.py",
            "tests/tasks/packages/test_https_fetch.py",
            "tests/tasks/test_https_server.py",
            "tests/tasks/uploads",
        ),
        registered={
            "portal/features.py": (r".*\buploads\b.*",),
            "pyproject.toml": (
                (r'  "uploads",\n', ""),
                (r" \| uploads\"", '"'),
                (r'"inspect \| user_rasters"', '"inspect"'),
            ),
            "service_manager/__main__.py": (
                (
                    r"tasks\.uploads\.library import UploadLibrary",
                    "tasks.request.library import Library",
                ),
                (r"UploadLibrary\(runtime, ", "Library("),
            ),
            "swathmill/cli.py": (r'    "(package_uploads|raster)": .*',),
            "tasks/service/backup.py": (
                r"from tasks\.uploads\.kinds import KINDS",
                r"    \*\*\{kind\.name: .*",
            ),
        },
        spoken_of={
            "docs/threat-model.md": (
                r"\| `(portal/uploads|reprojection/user_rasters)/.*",
                (r"(, )?`(tests/)?tasks/packages/(test_)?https_fetch\.py`", ""),
                (r"`reprojection/user_rasters/conversion\.py`,", ""),
            ),
            "portal/templates/new.html": (
                r'      <details>\n        <summary class="small">A raster of your own<(?:.*\n)*?'
                r"      </details>",
            ),
            "portal/templates/progress.html": ((r'<a href="/packages">push</a>', "push"),),
            "tests/browser/test_accessibility.py": (r'        "/(packages|rasters)",',),
            "tests/infra/test_documentation_links.py": (
                (r"commands = command_names\(\)", 'commands = {*command_names(), "raster"}'),
            ),
            "tests/infra/test_interfaces.py": (
                r'    "(HTTP API|Rows)": .*',
                (r', "package"\} <=', "} <="),
            ),
            "tests/portal/serving/test_problems.py": (
                (r"\n\ndef test_a_call_that_cannot_be_read_is_refused(?:.*\n)*?(?=\n\n|\Z)", ""),
            ),
            "tests/portal/test_page_sizes.py": (r'        "/(packages|rasters)",',),
            "tests/swathmill/test_wrong_arguments.py": (
                r'    Case\(line="(raster|package (push|share)) .*',
            ),
            "tests/tasks/packages/test_python_dependencies.py": (
                r"from (portal|tasks)\.uploads.*",
                (r"def test_a_version_is_resolved_once_and_its(?:.*\n)*?(?=def )", ""),
            ),
        },
    ),
    "views": Removal(
        folders=(
            "bench/map_server.py",
            "bench/views.py",
            "portal/static/layer_view.js",
            "portal/templates/layer_addresses.html",
            "portal/static/viewer_map.js",
            "portal/templates/layer_view.html",
            "portal/templates/viewer.html",
            "portal/viewer",
            "portal/views",
            "swathmill/commands/view.py",
            "tests/browser/test_layer_in_browser.py",
            "tests/browser/test_viewer_in_browser.py",
            "tests/mutants/views.toml",
            "tests/portal/viewer",
            "tests/portal/views",
            "tests/swathmill/commands/test_view.py",
        ),
        registered={
            "portal/features.py": (r".*\bviews\b.*",),
            "pyproject.toml": ((r'  "views",\n', ""), (r" \| viewer", "")),
            "swathmill/cli.py": (r'    "view": .*',),
        },
        spoken_of={
            "bench/__main__.py": (
                r'    "views": Measurement\((?:\n        .*)*\n    \),',
                r'    "maps": Measurement\((?:\n        .*)*\n    \),',
            ),
            "tests/infra/test_interfaces.py": (r'    "HTTP API": http_api,',),
            "tests/portal/test_two_owners.py": (
                r"^(TILES|COLLECTION|QUAD) = .*",
                r'^    \*\(\n        \("GET", f"/maps/(?:.*\n)*?    \),',
                r'^    \*\(\n        \("GET", f"/api/requests/\{\{id\}\}/tiles/(?:.*\n)*?    \),',
            ),
        },
    ),
    "pool": Removal(
        folders=(
            "worker/pool",
            "tests/mutants/pool.toml",
            "tests/worker/test_pool.py",
            "tests/worker/pool/test_runner.py",
        ),
        registered={
            "worker/__main__.py": (r"from worker\.pool\..*", (r"main\(pooled\)", "main()")),
            "pyproject.toml": ((r'"pool", "slots"', '"slots"'),),
            "infra/monitoring/alerts.yml": (
                r" +- alert: SwathmillReductionPoolFull\n(?: {8}.*\n)* {8}annotations: .*",
            ),
        },
        spoken_of={
            "docs/operations.md": (
                r"\| `swathmill_runner_slots`.*",
                r"\| `SwathmillReductionPoolFull` .*",
            ),
            "infra/monitoring/alerts_test.yml": (
                (r"^  - name: the reduction pool is full\n(?:    .*\n)+", ""),
                r".*(swathmill_runner_|SwathmillReductionPoolFull).*",
            ),
            "tests/infra/test_monitoring.py": (r'.*"worker" / "pool" / "metrics\.py",',),
        },
    ),
}


def copied(to: Path) -> None:
    """Copy this checkout: what is tracked, and what is built into it."""
    tracked = _listed("git", "ls-files")
    ignored = _listed("git", "ls-files", "--others", "--ignored", "--exclude-standard")
    built = [name for name in ignored if any(re.search(kind, name) for kind in _BUILT)]
    for name in (*tracked, *built):
        if name != _ITSELF and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def _listed(*command: str) -> list[str]:
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()


def take_out(removal: Removal, tree: Path) -> None:
    """Remove a feature from a tree. Raises ValueError where a pattern matches nothing."""
    for name, text in edited(removal, tree).items():
        (tree / name).write_text(text, "utf-8")
    for name in removal.folders:
        path = tree / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (tree / "tests" / "mutants").glob("*.toml"):
        entries = path.read_text("utf-8").split("\n[[fault]]\n")
        kept = [one for one in entries if _is_there(one, tree)]
        path.write_text("\n[[fault]]\n".join(kept), "utf-8")


def edited(removal: Removal, tree: Path) -> dict[str, str]:
    """Return the files that name a feature without it. Raises ValueError as `take_out` does."""
    texts: dict[str, str] = {}
    for lines in (removal.registered, removal.spoken_of):
        for name, patterns in lines.items():
            text = texts[name] if name in texts else (tree / name).read_text("utf-8")
            for pattern in patterns:
                text = _without(text, pattern, name)
            texts[name] = text
    return texts


def _without(text: str, pattern: str | tuple[str, str], name: str) -> str:
    found, by = pattern if isinstance(pattern, tuple) else (f"^{pattern}\n", "")
    changed, number = re.subn(found, by, text, flags=re.MULTILINE)
    if not number:
        raise ValueError(f"{name} has no line like {found}")
    return changed


def _is_there(entry: str, tree: Path) -> bool:
    """Whether the file and the test of a listed fault are in a tree."""
    named = re.findall(r'^(?:file|test) = "([^":]+)', entry, re.MULTILINE)
    return all((tree / name).exists() for name in named)


def shown(name: str, tests: Sequence[str], tree: Path) -> bool:
    """Take a feature out of a copy and check all else there; tell what fails."""
    copied(tree)
    take_out(REMOVALS[name], tree)
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tree, check=True)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    bin_folder = Path(sys.executable).parent
    commands: Sequence[Sequence[str]] = (
        (f"{bin_folder}/ruff", "check", "-q", "--fix-only", "--select", "F401,I001", "."),
        (f"{bin_folder}/ruff", "format", "-q", "."),
        (f"{bin_folder}/ruff", "check", "-q", "."),
        (f"{bin_folder}/mypy",),
        (f"{bin_folder}/lint-imports", "--no-cache"),
        (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-m", FAST, *tests),
    )
    failed = [one for one in commands if subprocess.call(one, cwd=tree, env=environment)]
    for one in failed:
        sys.stdout.write(f"without {name}: {' '.join(one[:4])} fails\n")
    sys.stdout.write(f"without {name}: {'all else passes' if not failed else 'NOT ALL PASSES'}\n")
    return not failed


def main() -> int:
    """Show for each feature that all else passes without it; 1 where it does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="*", help=f"of {', '.join(REMOVALS)}; none: each")
    parser.add_argument("--tests", nargs="*", default=_TESTS)
    arguments = parser.parse_args()
    if unknown := {*arguments.features} - {*REMOVALS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    passed = []
    for name in arguments.features or REMOVALS:
        with tempfile.TemporaryDirectory(prefix="swathmill-without-") as folder:
            passed.append(shown(name, arguments.tests, Path(folder)))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
