"""Files fetched by address: only from allowed hosts, at public addresses, by HTTPS, bounded."""

import socket
from pathlib import Path
from typing import Any

import pytest

from tasks.network_hosts import read_allowed
from tasks.packages import https_fetch
from tasks.packages.https_fetch import AddressRefusedError, fetch

PUBLIC = "93.184.216.34"


class Answer:
    """An answer of a host, as http.client gives it."""

    def __init__(self, status: int, content: bytes = b"", location: str = "") -> None:
        self.status, self.reason = status, "said"
        self.headers = {"Location": location}
        self.length: int | None = None
        self._content = content

    def read1(self, most: int) -> bytes:
        part, self._content = self._content[:most], self._content[most:]
        return part


class Hosts:
    """Hosts that answer in turn; notes which addresses were connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Answer, address: str) -> None:
        self.answers = [*answers]
        self.connected: list[tuple[str, str]] = []
        self.targets: list[str] = []

        def look_up(host: str, port: int, **_: Any) -> list[Any]:
            del host
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        hosts = self

        class Connection:
            def __init__(self, host: str, port: int, address: str) -> None:
                del port
                hosts.connected.append((host, address))

            def request(self, method: str, target: str, headers: dict[str, str]) -> None:
                del headers
                assert method == "GET"
                assert target.startswith("/")
                assert target.isascii()
                hosts.targets.append(target)

            def getresponse(self) -> Answer:
                return hosts.answers.pop(0)

            def close(self) -> None:
                pass

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr(https_fetch, "_Connection", Connection)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://data.example.org/x.tif", "not a plain https address"),
        ("file:///etc/passwd", "not a plain https address"),
        ("https://ada:secret@data.example.org/x", "not a plain https address"),
        ("https://127.0.0.1/x", "addresses cannot be named"),
        ("https://2130706433/x", "addresses cannot be named"),
        ("https://[::1]/x", "addresses cannot be named"),
        ("https://other.example.org/x", "nothing may be fetched from other.example.org"),
        ("https://data.example.org:8443/x", "nothing may be fetched"),
    ],
)
def test_addresses_that_are_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, words: str
) -> None:
    hosts = Hosts(monkeypatch, Answer(200, b"x"), address=PUBLIC)
    with pytest.raises(AddressRefusedError, match=words):
        fetch(address, read_allowed("data.example.org"), tmp_path / "x", 100)
    assert hosts.connected == []


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "168.63.129.16"])
def test_an_allowed_name_that_means_a_private_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    hosts = Hosts(monkeypatch, Answer(200, b"x"), address=address)
    with pytest.raises(AddressRefusedError, match="has no public address"):
        fetch("https://data.example.org/x", read_allowed("data.example.org"), tmp_path / "x", 100)
    assert hosts.connected == []


def test_a_file_comes_from_the_address_that_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(monkeypatch, Answer(200, b"raster"), address=PUBLIC)
    fetch("https://data.example.org/x?y=1", read_allowed("data.example.org"), tmp_path / "x", 100)
    assert (tmp_path / "x").read_bytes() == b"raster"
    assert hosts.connected == [("data.example.org", PUBLIC)]


def test_letters_beyond_ascii_are_written_as_addresses_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = Hosts(monkeypatch, Answer(200, b"raster"), address=PUBLIC)
    address = "https://data.example.org/é%20h?a=ü&b=%2F"
    fetch(address, read_allowed("data.example.org"), tmp_path / "x", 100)
    assert hosts.targets == ["/%C3%A9%20h?a=%C3%BC&b=%2F"]


def test_a_host_that_sends_for_too_long_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hosts(monkeypatch, Answer(200, b"raster"), address=PUBLIC)
    monkeypatch.setattr(https_fetch, "_MOST_SECONDS", -1.0)
    with pytest.raises(AddressRefusedError, match="takes longer"):
        fetch("https://data.example.org/x", read_allowed("data.example.org"), tmp_path / "x", 100)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([Answer(302, location="https://other.example.org/x")], "nothing may be fetched"),
        ([Answer(302, location="http://data.example.org/x")], "not a plain https address"),
        ([Answer(302, location="/x")] * 4, "redirects too often"),
        ([Answer(302, location="https://[x/")], "cannot be fetched"),
        ([Answer(404)], "answers 404"),
        ([Answer(200, b"x" * 101)], "sends more than"),
    ],
)
def test_what_a_host_answers_is_held_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[Answer], words: str
) -> None:
    Hosts(monkeypatch, *answers, address=PUBLIC)
    with pytest.raises(AddressRefusedError, match=words):
        fetch("https://data.example.org/x", read_allowed("data.example.org"), tmp_path / "x", 100)


@pytest.mark.parametrize("more", [0, 1])
def test_so_many_redirects_are_followed_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    moved = [Answer(302, location="/y")] * (https_fetch._MOST_REDIRECTS + more)
    hosts = Hosts(monkeypatch, *moved, Answer(200, b"x"), address=PUBLIC)
    reach = read_allowed("data.example.org")
    if more:
        with pytest.raises(AddressRefusedError, match=r"redirects too often\. Give the address"):
            fetch("https://data.example.org/x", reach, tmp_path / "x", 100)
    else:
        fetch("https://data.example.org/x", reach, tmp_path / "x", 100)
    assert len(hosts.connected) == 4


@pytest.mark.parametrize("size", [100, 101])
def test_a_file_has_at_most_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    Hosts(monkeypatch, Answer(200, b"x" * size), address=PUBLIC)
    reach = read_allowed("data.example.org")
    if size > 100:
        with pytest.raises(AddressRefusedError, match="sends more than"):
            fetch("https://data.example.org/x", reach, tmp_path / "x", 100)
    else:
        fetch("https://data.example.org/x", reach, tmp_path / "x", 100)
    assert (tmp_path / "x").stat().st_size <= 100
