"""A region's file is read in a process of its own, and SQLite reads tables alone."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from processes.reading_rights import can_shut_in
from tasks.request.region import child, files
from tasks.request.region.child import Bounds, features_apart, read_apart
from tasks.request.region.files import RegionFileError, read_features, read_region
from tasks.request.region.region import Region

SQUARE = {"type": "Polygon", "coordinates": [[[5, 50], [8, 50], [8, 53], [5, 53], [5, 50]]]}
TABLES = """
CREATE TABLE gpkg_spatial_ref_sys (srs_id INTEGER, organization TEXT,
  organization_coordsys_id INTEGER, definition TEXT);
CREATE TABLE gpkg_geometry_columns (table_name TEXT, column_name TEXT, srs_id INTEGER);
INSERT INTO gpkg_spatial_ref_sys VALUES (4326, 'EPSG', 4326, '');
INSERT INTO gpkg_geometry_columns VALUES ('t', 'g', 4326);
"""


def geopackage(folder: Path, *statements: str) -> bytes:
    path = folder / "a.gpkg"
    with sqlite3.connect(path) as store:
        store.executescript(TABLES)
        for one in statements:
            store.execute(one)
    store.close()
    return path.read_bytes()


def test_it_reads_what_the_process_itself_would_read() -> None:
    data = json.dumps(SQUARE).encode()
    assert read_apart(data, "a.geojson") == read_region(data, "a.geojson")
    with pytest.raises(RegionFileError, match=r"a\.zip is a damaged or cut ZIP"):
        read_apart(b"PK\x03\x04", "a.zip")
    assert features_apart(data, "a.geojson") == read_features(data, "a.geojson")


@pytest.mark.parametrize(
    "view",
    [
        "CREATE VIEW t AS SELECT zeroblob(900000000) AS g, 1 AS fid",
        "CREATE VIEW t AS SELECT printf('%.900000000c', 'x') AS g, 1 AS fid",
        "CREATE VIEW t AS WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL SELECT g FROM n) "
        "SELECT g FROM n",
    ],
    ids=["zeroblob", "printf", "recursive"],
)
def test_a_layer_that_is_computed_is_refused(tmp_path: Path, view: str) -> None:
    """16 KB took the portal from 1.3 to 5.3 GB."""
    data = geopackage(tmp_path, view)
    with pytest.raises(RegionFileError, match="is no table of features but computed"):
        read_region(data, "a.gpkg")


def test_a_view_in_place_of_the_list_of_layers_is_refused(tmp_path: Path) -> None:
    data = geopackage(
        tmp_path,
        "DROP TABLE gpkg_geometry_columns",
        "CREATE TABLE t (g BLOB)",
        "CREATE VIEW gpkg_geometry_columns AS SELECT 't' AS table_name, 'g' AS column_name, "
        "4326 AS srs_id, printf('%.90000000c', 'x') AS x",
    )
    with pytest.raises(RegionFileError, match=r"cannot be read: .*(prohibited|not authorized)"):
        read_region(data, "a.gpkg")


def test_points_are_counted_before_geometries_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """5.2 million points kept the portal at work for more than 100 s."""
    points = {"type": "MultiPoint", "coordinates": [[5.0, 50.0]] * 300_000}
    data = json.dumps(points).encode()
    with monkeypatch.context() as patched:
        patched.setattr(files, "shape", None)  # no geometry is made
        with pytest.raises(RegionFileError, match="has 300,000 points, and a request 5,000 sites"):
            read_region(data, "a.geojson")
    few = {**points, "coordinates": [[5.0, 50.0]] * 5001}
    nested = {"type": "GeometryCollection", "geometries": [few, SQUARE]}
    read = read_region(json.dumps(nested).encode(), "a.geojson")
    assert read.geojson is not None  # of its polygon


def test_what_takes_too_much_is_refused_with_what_to_do() -> None:
    """Without the bounds the one is read, and the other one refused for its points."""
    points = {"type": "MultiPoint", "coordinates": [[5.0, 50.0]] * 100_000}
    for given, bounds in ((points, Bounds(memory=2**24)), (SQUARE, Bounds(seconds=0.001))):
        with pytest.raises(RegionFileError, match="simplify its polygons, or give those"):
            read_apart(json.dumps(given).encode(), "a.geojson", bounds)


def end_of(read: Callable[[bytes, str], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """Read by a function in a fork that has a second of processor and a gigabyte; how it ends."""
    monkeypatch.setattr(child, "read_region", read)
    monkeypatch.setattr(sys, "argv", ["", "region", str(2**30), "1", "a"])
    monkeypatch.setattr(sys, "stdin", Mock())
    reader = os.fork()
    if reader == 0:
        code = 70
        with suppress(BaseException):
            code = child.main()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1])


def test_the_process_ends_at_its_bound_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of(lambda *_: bytearray(2**31), monkeypatch) == 3


def test_the_process_ends_at_its_bound_of_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        while time.process_time() < 10:
            pass

    assert end_of(read, monkeypatch) in (-signal.SIGXCPU, -signal.SIGKILL)


HOSTILE = """
import os, socket, sys
from pathlib import Path
from tasks.request.region import child
from tasks.request.region.files import RegionFileError

secret, port = Path(sys.argv.pop(1)), int(sys.argv.pop(1))
ATTACKS = {
    "read": lambda: secret.read_text(),
    "list": lambda: os.listdir(secret.parent),
    "write": lambda: (secret.parent / "new").touch(),
    "environment": lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
    "memory": lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDONLY),
    "connect": lambda: socket.create_connection(("127.0.0.1", port), 1),
    "listen": lambda: socket.create_server(("127.0.0.1", 0)),
}

def hostile(data, name):
    held = []
    for attack, act in ATTACKS.items():
        try:
            act()
        except OSError:
            held.append(attack)
    raise RegionFileError(" ".join(held))

child.read_region = hostile
sys.exit(child.main())
"""


def test_a_file_that_takes_over_the_process_reaches_nothing(tmp_path: Path) -> None:
    if not can_shut_in():
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secrets.json"
    secret.write_text("key")
    words = ["region", str(2**30), "30", "a"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", HOSTILE, str(secret), str(port), *words],
            input=b"",
            capture_output=True,
            check=True,
        )
    held = json.loads(done.stdout)["wrong"].split()
    assert held == ["read", "list", "write", "environment", "memory", "connect", "listen"]
    assert [*tmp_path.iterdir()] == [secret]


def test_a_text_within_a_document_is_read_apart_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "shapely", None)  # this process parses nothing
    given = Region.model_validate({"geojson": "POLYGON ((5 50, 8 50, 8 53, 5 53, 5 50))"})
    assert given.geojson is not None
    assert given.geojson["type"] == "Polygon"
    with pytest.raises(ValidationError, match="cannot be read"):
        Region.model_validate({"geojson": "POLYGON ((5 50, 8"})


def test_the_process_has_nothing_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWATHMILL_SECRET", "key")
    given: list[dict[str, str]] = []
    run = subprocess.run

    def watched(*words: Any, **more: Any) -> Any:
        given.append(more["env"])
        return run(*words, **more)

    monkeypatch.setattr(subprocess, "run", watched)
    read_apart(json.dumps(SQUARE).encode(), "a.geojson")
    assert not [name for name in given[0] if name.startswith("SWATHMILL")]


def test_the_process_writes_no_file(tmp_path: Path) -> None:
    """Whoever takes it over by a file leaves nothing on the disk."""
    path = tmp_path / "written"
    code = """
import pathlib, sys
from tasks.request.region import child

child.read_region = lambda _data, name: pathlib.Path(name).write_bytes(b"a")
sys.exit(child.main())
"""
    bounds = ["region", str(Bounds().memory), str(Bounds().processor)]
    done = subprocess.run(
        [sys.executable, "-c", code, *bounds, str(path)],
        input=b"",
        capture_output=True,
        check=False,
    )
    refused = (b"File too large", b"Permission denied")  # by its bounds, or by Landlock before them
    assert any(one in done.stderr for one in refused)
    assert not path.exists() or path.stat().st_size == 0
