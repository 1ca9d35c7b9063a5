"""`swathmill view`: what it refuses, and that nothing of it is left."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from processes.proctree import alive, descendants
from swathmill import cli
from swathmill.commands import view
from tests.portal.scripted import client_of
from tests.waiting import until

pytestmark = pytest.mark.slow


def test_what_cannot_be_shown_is_refused(
    sample_archive: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refused(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["swathmill", "view", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 2
        return capsys.readouterr().err

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"Port {port} cannot be used" in refused(str(sample_archive), "--port", port)
    assert "holds no granules (.hdf" in refused(str(tmp_path))
    most = view._MOST_NAMED
    for number in range(most):
        (tmp_path / f"notes{number}.hdf").write_bytes(b"no granule")
    said = refused(str(tmp_path))
    assert "it is known which granule it is: notes0.hdf, " in said
    assert f"notes{most - 1}.hdf." in said
    (tmp_path / f"notes{most}.hdf").write_bytes(b"no granule")
    assert f"notes{most - 1}.hdf and 1 more." in refused(str(tmp_path))


@pytest.mark.integration
def test_ctrl_c_ends_all_of_it(sample_archive: Path, tmp_path: Path) -> None:
    folder, temporary = tmp_path / "granules", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    shutil.copy(min(sample_archive.rglob("MCD15A2.A2012065*.hdf")), folder)
    with subprocess.Popen(
        [sys.executable, "-m", "swathmill.cli", "view", str(folder), "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        # A shell has its children in the background ignore Ctrl-C; not here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        said = json.loads(_whole(process.stdout.readline))
        assert said["products"] == {"MCD15A2.005": 1}
        with client_of(said["address"]) as client:
            tile = client.get("/tiles/MCD15A2/Lai_1km/2012-03-05/4/7/5.npy")
            assert tile.status_code == 200
        family = descendants(process.pid)
        assert family
        assert [*temporary.iterdir()]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    until(lambda: not any(map(alive, family)), what="the end of its children")
    assert [*temporary.iterdir()] == []


@pytest.mark.proof
def test_a_second_ctrl_c_breaks_calls_off_without_a_word(
    sample_archive: Path, tmp_path: Path
) -> None:
    shutil.copy(min(sample_archive.rglob("MCD15A2.A2012065*.hdf")), tmp_path)
    with subprocess.Popen(
        [sys.executable, "-m", "swathmill.cli", "view", str(tmp_path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = urlsplit(json.loads(_whole(process.stdout.readline))["address"])
        place = (str(address.hostname), int(address.port or 0))
        family = descendants(process.pid)
        for one in family:  # so the call waits
            os.kill(one, signal.SIGSTOP)
        with socket.create_connection(place) as waiting:
            call = "GET /tiles/MCD15A2/Lai_1km/2012-03-05/4/7/5.npy HTTP/1.1"
            waiting.sendall(f"{call}\r\nHost: {address.netloc}\r\n\r\n".encode())
            with client_of(address.geturl()) as client:
                assert client.get("/").status_code == 200  # the call has come by now
            process.send_signal(signal.SIGINT)
            until(lambda: not _listens(place), what="that no more calls are taken")
            process.send_signal(signal.SIGINT)
            said = process.stderr.read()
            assert process.wait(60) == 0
    assert "Traceback" not in said
    assert "Ended." in said
    until(lambda: not any(map(alive, family)), what="the end of its children")


def _listens(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place).close()
    except OSError:
        return False
    return True


def _whole(line: Callable[[], str]) -> str:
    """Read a JSON document that is printed over several lines."""
    text = ""
    while not text or text.count("{") > text.count("}"):
        text += line()
    return text
