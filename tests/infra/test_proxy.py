"""The proxy that ships bounds what the portal bounds, and says for whom it calls.

What needs nginx is skipped where it is absent.
"""

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fastapi import FastAPI, Request, Response

from portal.http_server import Limits
from tests.serving import serving_app
from tests.waiting import until

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "infra" / "proxy" / "nginx.conf"
CHART = ROOT / "infra" / "helm" / "swathmill"
NGINX = shutil.which("nginx")


def stated(name: str) -> str:
    (found,) = re.findall(rf"^ *{name} (.*);$", CONFIGURATION.read_text("utf-8"), re.MULTILINE)
    return str(found)


def test_the_proxy_has_the_bounds_of_the_portal() -> None:
    limits = Limits()
    number, size = stated("large_client_header_buffers").split()
    assert int(number) * int(size.removesuffix("k")) * 1024 == limits.head
    assert stated("client_header_timeout") == f"{limits.seconds:g}s"
    assert stated("client_body_timeout") == f"{limits.seconds:g}s"
    assert int(stated("limit_conn connections")) < limits.connections
    assert stated("client_max_body_size") == "1100m"


def test_the_proxy_replaces_what_callers_say_of_their_address_and_logs_no_query() -> None:
    assert stated("proxy_set_header X-Forwarded-For") == "$remote_addr"
    text = CONFIGURATION.read_text("utf-8")
    assert "$request " not in text
    assert "$request_uri" not in text
    assert "$args" not in text


def test_the_ingress_has_the_same_limits_and_its_network_alone_is_believed() -> None:
    values: Any = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    told = {
        name.rpartition("/")[2]: value for name, value in values["ingress"]["annotations"].items()
    }
    assert told["limit-connections"] == stated("limit_conn connections")
    assert f"rate={told['limit-rps']}r/s" in stated("limit_req_zone")
    burst = int(told["limit-rps"]) * int(told["limit-burst-multiplier"])
    assert f"burst={burst} " in stated("limit_req")
    assert told["proxy-body-size"] == stated("client_max_body_size")
    for name in ("proxy_request_buffering", "proxy_buffering", "proxy_read_timeout"):
        assert told[name.replace("_", "-")] == stated(name).removesuffix("s")
    settings = (CHART / "templates" / "settings.yaml").read_text("utf-8")
    assert 'ternary .Values.trustedProxies "" .Values.ingress.enabled' in settings
    ingress = (CHART / "templates" / "ingress.yaml").read_text("utf-8")
    assert ".Values.ingress.annotations" in ingress


@pytest.fixture
def served() -> list[str]:
    """The static files that what is behind the proxy was asked for."""
    return []


@pytest.fixture
def proxy(tmp_path: Path, served: list[str]) -> Iterator[tuple[str, ssl.SSLContext]]:
    """The shipped configuration on this machine, in front of what tells who calls."""
    app = FastAPI()

    @app.get("/who")
    def who(request: Request) -> list[str]:
        return [request.client.host if request.client else "", request.url.scheme]

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        served.append(name)
        return Response(name, headers={"Cache-Control": "public, max-age=300"})

    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out",
         certificate],
        check=True,
        capture_output=True,
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving_app(app, None, "127.0.0.1") as url:
        text = CONFIGURATION.read_text("utf-8")
        for old, new in (
            ("server portal:8000", f"server {url.removeprefix('http://')}"),
            ("listen 8443", f"listen 127.0.0.1:{port}"),
            ("/tmp/", f"{tmp_path}/"),
            ("/certificates/", f"{tmp_path}/"),
            ("/dev/stdout", f"{tmp_path}/calls.log"),
            ("/dev/stderr", f"{tmp_path}/errors.log"),
            ("_timeout 20s", "_timeout 1s"),
            ("rate=50r/s", "rate=5r/s"),
            ("burst=500", "burst=50"),
        ):
            assert old in text
            text = text.replace(old, new)
        if os.getuid() == 0:  # else another user serves, who cannot write here
            text = f"user root;\n{text}"
        (tmp_path / "nginx.conf").write_text(text)
        command = [str(NGINX), "-p", str(tmp_path), "-c", "nginx.conf", "-e", "errors.log"]
        with subprocess.Popen([*command, "-g", "daemon off;"]) as process:
            context = ssl.create_default_context(cafile=str(certificate))
            address = f"https://localhost:{port}"

            def is_there() -> bool:
                try:
                    return httpx.get(f"{address}/who", verify=context).is_success
                except httpx.TransportError:
                    return False

            until(is_there, what="the proxy answers")
            yield address, context
            process.terminate()


def test_the_proxy_keeps_static_files_and_nothing_else() -> None:
    text = CONFIGURATION.read_text("utf-8")
    (kept,) = re.findall(r"location (\S+) \{[^}]*proxy_cache ", text)
    assert kept == "/static/"


@pytest.mark.skipif(NGINX is None, reason="nginx is absent")
def test_static_files_come_from_the_proxy_once_it_has_them(
    proxy: tuple[str, ssl.SSLContext], served: list[str]
) -> None:
    address, context = proxy
    with httpx.Client(base_url=address, verify=context, trust_env=False) as client:
        for name in ("page.js?v=1", "page.css", "page.js?v=2"):
            for _ in range(5):
                assert client.get(f"/static/{name}").text == name.partition("?")[0]
    assert served == ["page.js", "page.css", "page.js"]


@pytest.mark.skipif(NGINX is None, reason="nginx is absent")
def test_the_proxy_itself(proxy: tuple[str, ssl.SSLContext], tmp_path: Path) -> None:
    address, context = proxy
    host, port = "localhost", int(address.rpartition(":")[2])
    with httpx.Client(base_url=address, verify=context, trust_env=False) as client:
        forged = {"X-Forwarded-For": "198.51.100.1", "X-Forwarded-Proto": "http"}
        assert client.get("/who", headers=forged).json() == ["127.0.0.1", "https"]
        assert client.get("/who?token=secret").status_code == 200
        assert client.get("/who", headers={"X": "a" * 9000}).status_code == 400
        many = {f"X{number}": "a" * 7000 for number in range(12)}
        assert client.get("/who", headers=many).status_code == 400
        statuses: list[int] = []

        def call() -> None:
            with httpx.Client(base_url=address, verify=context, trust_env=False) as own:
                statuses.extend(own.get("/who").status_code for _ in range(60))

        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(statuses) == {200, 429}
    with (
        socket.create_connection((host, port)) as plain,
        context.wrap_socket(plain, server_hostname=host) as silent,
    ):
        silent.settimeout(20)
        silent.sendall(b"GET /who HTTP/1.1\r\nHost: x\r\n")
        assert silent.recv(1000) == b""
    log = (tmp_path / "calls.log").read_text()
    assert '"GET /who" 200' in log
    assert "secret" not in log
