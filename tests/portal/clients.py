"""Run programs of others, unchanged, by `python -m tests.portal.clients PYTHON`.

PYTHON has what `requirements-clients.lock` names: the STAC API validator, odc-stac, rasterio, whose
GDAL reads STACIT and /vsicurl, and openapi-python-client, which generates a client from the
portal's description: it submits a request and reads it back. They are apart from the environment of
the tests, which they would double; pystac-client and OWSLib are in it (test_standards.py). If there
is a `gdalinfo` on PATH, it is run, too.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from portal.serving import tokens
from tests.portal.deliveries import ADA, deliver
from tests.portal.scripted import SECRET, LivePortal, live_portal, live_runtime, settings
from tests.portal.submissions import submitted

LAYER = "Lai_1km"
REGION = {
    "type": "Polygon",
    "coordinates": [[[-8, 50.5], [6, 50.5], [6, 58.5], [-8, 58.5], [-8, 50.5]]],
}
CLASSES = ("core", "collections", "features", "item-search")

OPEN = """
import sys, odc.stac, pystac_client, rasterio
url, token, collection, layer = sys.argv[1:]
reading = {"GDAL_HTTP_AUTH": "BEARER", "GDAL_HTTP_BEARER": token}
reading["GDAL_DISABLE_READDIR_ON_OPEN"] = "EMPTY_DIR"
files = f"{url}/api/requests/{collection}/results/MCD15A2.005/{layer}/MCD15A2.005.{layer}"
"""
CUBE = f"""{OPEN}
head = {{"Authorization": f"Bearer {{token}}"}}
search = pystac_client.Client.open(url, headers=head).search(collections=[collection])
items = sorted((item for item in search.items() if item.id != "all"), key=lambda one: one.id)
with rasterio.Env(**reading):
    cube = odc.stac.load(items, bands=[layer, "Fpar_1km"])
    assert cube[layer].shape == (3, 160, 280), cube.sizes
    for number, item in enumerate(items):
        with rasterio.open(item.assets[layer].href) as raster:
            assert (raster.read(1) == cube[layer][number].values).all(), item.id
print(f"{{dict(cube.sizes)}}, equal to the files")
"""
STACIT = f"""{OPEN}
moment = "2012-01-09T12:00:00Z"
with rasterio.Env(**reading):
    search = f"{{url}}/search?collections={{collection}}&datetime={{moment}}"
    with rasterio.open(f'STACIT:"{{search}}":asset={{layer}}') as mosaic:
        whole = mosaic.read(1)
    with rasterio.open(f"/vsicurl/{{files}}.2012-01-09.tif") as raster:
        assert (raster.read(1) == whole).all()
print(f"GDAL {{rasterio.__gdal_version__}}: {{whole.shape}} equal pixels")
"""
GENERATED = """
import datetime
from generated import AuthenticatedClient
from generated.api.requests import requests_result, requests_results, requests_status
from generated.api.requests import requests_submit
from generated.models import ProblemAnswer, Request, RequestAnswer, RequestGridChoice
from generated.models import RequestProductChoice, RequestRegion, RequestTime
url, token, finished, layer = sys.argv[1:]
wanted = Request(
    title="By a generated client",
    products=[RequestProductChoice(name="MCD15A2", collection="5", layers=[layer])],
    region=RequestRegion(bbox=[-8.0, 50.5, 6.0, 58.5]),
    time=RequestTime(start=datetime.date(2012, 1, 1), end=datetime.date(2012, 4, 30)),
    grid=RequestGridChoice(crs="EPSG:4326", resolution=0.01),
)
with AuthenticatedClient(base_url=url, token=token) as client:
    made = requests_submit.sync(client=client, body=wanted)
    assert isinstance(made, RequestAnswer) and made.state == "submitted", made
    assert requests_status.sync(made.id, client=client) == made
    wanted.grid.crs = "EPSG:99999"
    refused = requests_submit.sync(client=client, body=wanted)
    assert isinstance(refused, ProblemAnswer) and refused.field == "grid.crs", refused
    results = requests_results.sync(finished, client=client)
    for one in results:
        file = requests_result.sync_detailed(finished, one.name, client=client)
        assert len(file.content) == one.size, one
print(f"a request submitted and read back, {len(results)} results read, one error with its field")
"""


def main(python: Path) -> int:
    """Run each program, and say what it said; return the exit status."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    wrong = 0
    with tempfile.TemporaryDirectory() as name, live_portal(live_runtime(), settings()) as portal:
        collection = submitted(portal.runtime)
        deliver(portal.runtime, collection, Path(name))
        for what, run in _programs(python, portal, collection).items():
            done = run()
            wrong += done.returncode != 0
            sys.stdout.write(f"{what}: {'as it should' if not done.returncode else 'WRONG'}\n")
            lines = done.stdout.splitlines()
            shown = lines if done.returncode else lines[:3]
            sys.stdout.writelines(f"  {line}\n" for line in shown)
    return int(wrong > 0)


def _programs(
    python: Path, portal: LivePortal, collection: str
) -> dict[str, Callable[[], "subprocess.CompletedProcess[str]"]]:
    token = tokens.issue(SECRET, ADA)
    address = (portal.url, token, collection, LAYER)
    found = {
        "stac-api-validator": lambda: _validate(python, portal, collection, token),
        "odc-stac": lambda: _ran([str(python), "-c", CUBE, *address]),
        "GDAL, STACIT and /vsicurl": lambda: _ran([str(python), "-c", STACIT, *address]),
        "a generated client": lambda: _generated(python, address),
    }
    gdalinfo = shutil.which("gdalinfo")
    if gdalinfo is not None:
        words = f'STACIT:"{portal.url}/search?collections={collection}":asset={LAYER}'
        found["gdalinfo"] = lambda: _ran([gdalinfo, words], token)
    return found


def _generated(python: Path, address: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Generate a client from the portal's description, and use it."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(python.with_name("openapi-python-client")), "generate", "--meta=none"]
        words += [f"--url={address[0]}/api/openapi.json", f"--output-path={folder}/generated"]
        made = _ran(words)
        left_out = [
            line for line in made.stdout.splitlines() if "omitted" in line or "will not" in line
        ]
        if made.returncode or left_out:
            return subprocess.CompletedProcess(words, 1, made.stdout)
        return _ran(
            [
                str(python),
                "-Wignore",
                "-c",
                f"import sys; sys.path.insert(0, {folder!r}){GENERATED}",
                *address,
            ]
        )


def _validate(
    python: Path, portal: LivePortal, collection: str, token: str
) -> "subprocess.CompletedProcess[str]":
    words = [str(python.with_name("stac-api-validator")), f"--root-url={portal.url}"]
    words += [f"--conformance={name}" for name in CLASSES]
    words += [f"--collection={collection}", f"--geometry={json.dumps(REGION)}"]
    words += [f"--auth-bearer-token={token}", "--validate-pagination", "--log-level=ERROR"]
    said = _ran(words).stdout.partition("Errors:")[2].splitlines()
    errors = [line for line in said if line.startswith("- ")]
    # Without a network there are no schemas; test_standards.py compares with those of pystac.
    unreached = [line for line in errors if "schemas.stacspec.org" in line and "resolve" in line]
    wrong = [line for line in errors if line not in unreached]
    text = "\n".join([*wrong, f"{len(unreached)} comparisons without their schemas", ""])
    return subprocess.CompletedProcess(words, len(wrong), text)


def _ran(words: Sequence[str], token: str = "") -> "subprocess.CompletedProcess[str]":
    headers = {"GDAL_HTTP_HEADERS": f"Authorization: Bearer {token}"} if token else {}
    return subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "no_proxy": "127.0.0.1", **headers},
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
