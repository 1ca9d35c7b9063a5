"""`python -m tests.removal [FEATURE ...]`: take a feature out of a copy; all else passes there.

`make proofs ONLY=removal`. What is removed is the feature's folders, the lines that register it,
and what tests and pages over all features say of it. Then ruff, mypy, the import contracts and the
quick tests of all else run in the copy: those whose imports lead to a file that was changed, and
those that read the tree by paths (`--tests` names files or folders instead; `tests` is all).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.proofs import FAST, ROOT
from tests.touched import touched

OF_ALL = (
    "tests/test_removal.py",
    "tests/counts/test_counts.py",
    "tests/infra/test_roles.py",
)
"""They compare a whole checkout with this table, with what it costs and with what it imports."""

_BUILT = (r"^\.mypy_cache/", r"\.so$", r"places\.zip$", r"^portal/static/vendor/", r"^build/moto/")
_LISTED = "d0266ee56a54cbd0266ee50a54cb803b4874b380197d6cca3be1e4cbe6da798a"
"""The key of a list of sites in the tests of keys."""


def _test(name: str) -> tuple[str, str]:
    """Take a test out, with its decorators."""
    return rf"^(?:@(?:(?!def ).*\n)*)?def {name}\((?:.*\n)*?(?=\n\n\S|\Z)", ""


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
            "tests/portal/description/test_api_description.py": (
                r'        \("/api/requests/\{request_id\}/copies", .*',
            ),
            "tests/portal/test_two_owners.py": (r".*/api/requests/\{id\}/(scripts|zarr|copies).*",),
            "tests/reprojection/formats/test_own_values.py": (r'    "portal/elsewhere/.*',),
        },
    ),
    "polygons": Removal(
        folders=(
            "portal/polygons",
            "portal/static/polygons.js",
            "portal/templates/polygons.html",
            "portal/templates/polygons_as_csv.html",
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
    "sites": Removal(
        folders=(
            "examples/measured-sites.yaml",
            "examples/sites.yaml",
            "portal/sites",
            "portal/templates/comparison.html",
            "portal/templates/request_sites.html",
            "portal/templates/sites.html",
            "reprojection/warp/sites.py",
            "service_manager/planner/sites.py",
            "tasks/bag/site_specs.py",
            "tasks/comparison.py",
            "tasks/request/compared.py",
            "tasks/request/measurements.py",
            "tasks/request/region/site_regions.py",
            "worker/phases/sites",
            "tests/acceptance/test_evapotranspiration.py",
            "tests/acceptance/test_measured_sites.py",
            "tests/infra/test_ceilings.py",  # a ceiling is named in a test of parts, which goes
            "tests/mutants/measurements.toml",
            "tests/portal/site_tables.py",
            "tests/portal/sites",
            "tests/reprojection/test_site_quality.py",
            "tests/reprojection/warp/test_sites.py",
            "tests/service_manager/planner/test_planner_sites.py",
            "tests/service_manager/planner/test_site_cells.py",
            "tests/tasks/request/test_measurements.py",
            "tests/worker/phases/sites",
            "tests/worker/phases/test_parts.py",
            "tests/browser/test_example_in_browser.py",
        ),
        registered={
            "portal/features.py": (r".*\bsites\b.*",),
            "portal/submit/estimates.py": (
                r"from tasks\.request\.sites import .*",
                (r"len\(parse_sites\(request\.region\.sites\)\) if .* else 0", "0"),
            ),
            "portal/submit/forms.py": (
                (r"return _with_measurements\((.*), request\)", r"return \1"),
                (r"def _with_measurements(?:.*\n)*?(?=def )", ""),
                (r"    elif region\.sites is not None:\n(?:        .*\n)*", ""),
                r'        \("measurements", _measurements\),',
                (r"def _measurements(?:.*\n)*?(?=LOOKS)", ""),
                (
                    r'    if form\.region_kind == "sites":\n        if not(?:.*\n)*?(?=    edges)',
                    "",
                ),
            ),
            "portal/submit/region_page.py": (
                (
                    r"    if region\.sites is None:\n        (yield .*)\n"
                    r"        return\n(?:    .*\n)*",
                    r"    \1\n",
                ),
            ),
            "portal/templates/new.html": (
                (
                    r'  <fieldset class="card">\n    <legend>How: measurements<'
                    r"(?:.*\n)*?  </fieldset>\n",
                    "",
                ),
            ),
            "portal/templates/region.html": (
                (r', \("sites", "Sites"\)', ""),
                (r'  <div class="field" {{ part\("sites"\) }}>\n(?:    .*\n)*  </div>\n', ""),
            ),
            "pyproject.toml": ((r" \| sites\"", '"'), (r" \| comparison", "")),
            "service_manager/planner/plan_stream.py": (
                r"from service_manager\.planner\.sites .*",
                r"from tasks\.request\.compared .*",
                r"        check_outputs\(.*",
                (r"\(SitesPlan\.of,\)", "()"),
                (r" or request\.read_at is not None", ""),
            ),
            "swathmill/commands/requests.py": (
                r"    MeasurementsOption,",
                r"    measurements: MeasurementsOption = None,",
                (r", measurements or \(\)", ""),
            ),
            "swathmill/commands/run.py": (
                r"    MeasurementsOption,",
                r"    measurements: MeasurementsOption = None,",
                (r", measurements or \(\)", ""),
            ),
            "swathmill/commands/shared/options.py": (
                (r"MeasurementsOption = (?:.*\n)*?\]\n\n", ""),
            ),
            "tasks/bag/kinds.py": (r"from .* SiteSpec", (r"\n    \| SiteSpec,", ",")),
            "tasks/request/checks.py": (
                r"from tasks\.request\.compared .*",
                r"    check_measurements\(resolved\)",
            ),
            "tasks/request/notes.py": (
                r"from tasks\.request\.compared .*",
                r"    notes \+= measurement_notes.*",
            ),
            "tasks/request/document.py": (
                (r"from tasks\.request\.measurements import \((?:.*\n)*?\)\n", ""),
                (r"class Compared\((?:.*\n)*?(?=def _steps)", ""),
                (r"    measurements: Annotated\[(?:.*\n)*?    \] = None\n", ""),
                r"        measurements: Measurements at sites.*",
                (r"    @property\n    def read_at(?:.*\n)*?(?=    @property)", ""),
            ),
            "tasks/request/region/region.py": (
                (r', "sites"\)', ")"),
                (r'frozenset\(\{"sites"\}\)', "frozenset[str]()"),
                (r"    sites: Annotated\[(?:.*\n)*?    \] = None\n", ""),
                (r'    @field_validator\("sites"\)\n(?:.*\n)*?(?=\n    @)', ""),
            ),
            "tasks/request/region/kinds.py": (
                r"from tasks\.request\.region\.site_regions .*",
                (r', "sites": SITES', ""),
            ),
            "tasks/request/request_file.py": (
                r"from tasks\.request\.measurements .*",
                (
                    r"import Compared, Request, Time, compared, parse_request",
                    "import Request, parse_request",
                ),
                (
                    r", measurements: Sequence\[AnyPath\] = \(\)\n\)",
                    "\n)",
                ),
                r"        measurements: Tables .*",
                r"    document = _with_measurements.*",
                r"_LOOK = .*",
                (r"\n\ndef _with_measurements(?:.*\n)*", "\n"),
            ),
            "worker/phases/parts.py": (
                r"from worker\.phases\.sites\..*",
                (r"    if sites is not None:\n        with suppress.*\n.*\n", "    del sites\n"),
            ),
            "worker/slots/making.py": (
                r"from worker\.phases\.sites .*",
                r"    \*\*sites\.MAKERS,",
                r"    \*\*sites\.COPIERS,",
            ),
        },
        spoken_of={
            "docs/threat-model.md": (
                (r"`portal/sites/[a-z_]+\.py`,( |$)", ""),
                (r", `tasks/request/measurements\.py`", ""),
                (r" `worker/phases/sites/[a-z_]+\.py`,", ""),
            ),
            "portal/templates/request.html": (
                (r"sites=made\.region\.sites is not none, ", ""),
                (r"made\.region\.sites", "made.region.in_place"),
            ),
            "docs/requests.md": (r"\| `measurements` \|.*",),
            "docs/sites.md": ((r"```yaml\n(?:.*\n)*?```\n", ""),),
            "tests/acceptance/test_healing.py": (r'    "sites": \{"region".*',),
            "tests/browser/gallery.py": (
                r"from tests\.portal\.site_tables .*",
                (r'    ids\["sites"\] = (?:.*\n)*?    \)\n', ""),
            ),
            "tests/acceptance/test_one_bad_tile.py": (
                _test("test_sites_are_read_in_its_neighbour"),
            ),
            "tests/portal/serving/test_problems.py": (r'        f"/requests/\{name\}/sites": .*',),
            "tests/fuzz/parsers.py": (
                r"from tasks\.request\.measurements .*",
                (r"MEASURED = \((?:.*\n)*?\)\n", ""),
                (r'    "measurements": Parser\((?:.*\n)*?    \),\n', ""),
            ),
            "tests/infra/test_interfaces.py": (r'    "(Request document|HTTP API|Rows)": .*',),
            "tests/portal/test_bad_inputs.py": ((r"geojson, place or sites", "geojson or place"),),
            "tests/portal/submit/test_forms.py": (
                (r'    \{\n        \*\*PLAIN,\n        "region": \{"sites"(?:.*\n)*?    \},\n', ""),
                (r'    \{\n        \*\*PLAIN,\n        "measurements"(?:.*\n)*?    \},\n', ""),
            ),
            "tests/portal/submit/test_new_page.py": (
                _test("test_the_summary_says_what_is_made_of_sites"),
                _test("test_an_empty_list_of_compared_layers_names_its_section"),
            ),
            "tests/portal/submit/test_region_page.py": (
                _test("test_polygons_with_ids_become_sites_where_sites_are_asked_for"),
                (r'    table = "id,lat,lon\\n(?:.*\n)*?    \]\n', ""),
            ),
            "tests/portal/test_two_owners.py": (r'            "/sites",',),
            "tests/reprojection/test_partial_loss.py": (
                r"from reprojection\.warp\.sites .*",
                _test("test_at_sites_a_layer_is_lost_and_the_other_read"),
                (r"^def seen\((?:.*\n)*?(?=\n\n\S)", ""),
            ),
            "tests/service_manager/plans/test_plan_writer.py": (
                r"from tasks\.bag\.site_specs .*",
                (r'        \(SitesSpec(?:.*\n)*?.*"table of the sites"\),\n', ""),
            ),
            "tests/tasks/bag/test_categories.py": (  # a test of the example provokes one of them
                (
                    r'parametrize\("category", Category\)',
                    'parametrize("category", [c for c in Category if c.name != "TOO_FEW_VALUES"])',
                ),
            ),
            "tests/tasks/bag/test_task_keys.py": (
                r"from tasks\.bag\.site_specs .*",
                r"SITES = .*",
                (r"EXTRACT = ExtractSpec\((?:.*\n)*?\)\n", ""),
                (r"NEAR = ExtractNearSpec\((?:.*\n)*?\)\n", ""),
                _test(
                    "test_what_is_read_where_it_lies_is_that_file_and_lies_with_its_first_granule"
                ),
                (r"SITES\.key", f'"{_LISTED}"'),
                r"    (SITES|EXTRACT|NEAR|TableSpec\(.*),",
                rf'    "({_LISTED}|86762ceb[78c]b.*)",',
            ),
            "tests/service_manager/planner/test_planner_windows.py": (
                (r'        \{\n            "measurements": \{(?:.*\n)*?        \},\n', ""),
            ),
            "tests/tasks/request/region/test_files.py": (r".*\.region\.sites == .*",),
            "tests/tasks/request/test_record_products.py": (
                (
                    r"        \(\n            INDEX,\n            \{\n"
                    r'                "measurements(?:.*\n)*?        \),\n',
                    "",
                ),
            ),
            "tests/tasks/request/test_heading.py": (
                (r'        \(\n            \{"region": \{"sites"(?:.*\n)*?        \),\n', ""),
            ),
            "tests/tasks/request/test_request_document.py": (
                (r"geojson, place or sites", "geojson or place"),
                (
                    r"        \(\n            \{\n"
                    r'                "region": \{"sites"(?:.*\n)*?        \),\n',
                    "",
                ),
                (r'    "measurements\.compare": \((?:.*\n)*?    \),\n', ""),
                r'    "measurements\.tolerance": .*',
                r"        \(100, lambda n: _measured.*",
                (r"def _measured(?:.*\n)*?(?=def )", ""),
            ),
            "tests/tasks/request/test_sites.py": (
                _test("test_what_is_no_list_of_sites"),
                _test("test_what_concerns_rasters_alone_is_refused"),
                _test("test_overpasses_of_sites_are_always_rows_of_their_own"),
                _test("test_a_request_comes_back_as_it_was_stored"),
                _test("test_a_file_is_read_from_the_folder_of_the_request"),
            ),
            "tests/tasks/test_plain_text.py": (
                _test("test_requests_and_tables_are_read_by_their_mark"),
            ),
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
            "tests/browser/gallery.py": (
                r"from tests\.portal\.viewer\..*",
                r"        viewed_folder\(made\) as .*",
                (r"def _viewed\(page: Page\)(?:.*\n)*?    \S.*\n(?=\n\n\S)\n\n", ""),
                r'    "viewer": \(State\(.*',
            ),
            "bench/__main__.py": (
                r'    "views": Measurement\((?:\n        .*)*\n    \),',
                r'    "maps": Measurement\((?:\n        .*)*\n    \),',
            ),
            "tests/infra/test_documentation_links.py": (
                (r"\{\*MEASUREMENTS, ", '{*MEASUREMENTS, "views", "maps", '),
                (r"\{\*PROOFS, ", '{*PROOFS, "other-programs", '),
                (r"commands = command_names\(\)", 'commands = {*command_names(), "view"}'),
            ),
            "tests/infra/test_interfaces.py": (r'    "HTTP API": http_api,',),
            "tests/portal/description/test_api_description.py": (r'        \("/(tiles|maps)/.*',),
            "tests/proofs.py": ((r'    "other-programs": Proof\((?:.*\n)*?    \),\n', ""),),
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
            "worker/__main__.py": (
                (r"from functools import partial\n\n", ""),
                r"from worker\.pool\..*",
                (r"partial\(main, pooled\)", "main"),
            ),
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
            "tests/worker/test_continued_runs.py": (
                r"from tests\.worker\.test_pool .*",
                _test("test_a_run_in_the_pool_goes_on_on_another_runner"),
            ),
        },
    ),
}


def copied(to: Path) -> None:
    """Copy this checkout: what is tracked, and what is built into it."""
    tracked = _listed("git", "ls-files")
    ignored = _listed("git", "ls-files", "--others", "--ignored", "--exclude-standard")
    built = [name for name in ignored if any(re.search(kind, name) for kind in _BUILT)]
    for name in (*tracked, *built):
        if name not in OF_ALL and (ROOT / name).is_file():
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
    """Whether the file of a listed fault, its old text there and its test are in a tree."""
    (fault,) = tomllib.loads(f"[[fault]]\n{entry.removeprefix('[[fault]]')}")["fault"]
    if not fault:  # what stands above the first
        return True
    test, _, function = fault.get("test", fault["file"]).partition("::")
    if not all((tree / name).is_file() for name in (fault["file"], test)):
        return False
    name = function.rpartition("::")[2].partition("[")[0]
    old = fault["old"] in (tree / fault["file"]).read_text("utf-8")
    return old and f"def {name}" in (tree / test).read_text("utf-8")


def shown(name: str, tests: Sequence[str], tree: Path) -> bool:
    """Take a feature out of a copy and check all else there; tell what fails."""
    removal = REMOVALS[name]
    copied(tree)
    take_out(removal, tree)
    tests = tests or touched(tree, (*removal.registered, *removal.spoken_of))
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
    parser.add_argument("--tests", nargs="*", default=())
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
