"""The processes as Azure runs them: an identity and no key, TLS to storage and to Redis.

The identity endpoint of Container Apps is imitated. Azurite asks for its tokens over HTTPS and
checks what they say, though not who signed them. Redis has TLS and a password that an address must
escape.
"""

import base64
import datetime as dt
import ipaddress
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from portal.serving import tokens
from reprojection.sample.sample import write_sample_archive
from swathmill.errors import StackError
from swathmill.stack import ports, programs
from tests.waiting import until

pytestmark = [pytest.mark.proof, pytest.mark.integration]

ROOT = Path(__file__).parents[2]
ACCOUNT = "devstoreaccount1"
OBJECT = "22222222-2222-2222-2222-222222222222"
HEADER = "header-of-the-identity"
PASSWORD = "p@ss/word+of:redis="
SECRET = "s" * 40
PATIENCE = 300.0  # seconds for a request of 23 tasks; the machine may be busy


class IdentityEndpoint:
    """Hands out tokens as Container Apps does: to whoever knows the header, for one resource."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, list[str]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                if self.headers.get("X-IDENTITY-HEADER") != HEADER:
                    self.send_error(401)
                    return
                endpoint.asked.append(query)
                body = json.dumps(_token(query["resource"][0])).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/msi/token"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _token(resource: str) -> dict[str, str]:
    now = int(time.time())
    claims = {
        "aud": resource,
        "iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/",
        **{"iat": now, "nbf": now - 60, "exp": now + 3600},
        # Whose key signs links.
        "oid": OBJECT,
        "tid": "33333333-3333-3333-3333-333333333333",
    }
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return {
        "access_token": f"{text}.c2lnbmF0dXJl",
        "expires_on": str(now + 3600),
        "resource": resource,
        "token_type": "Bearer",
    }


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of 127.0.0.1 and its key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


@dataclass
class Rig:
    """Servers and processes; `environment` is what apps.bicep gives a process."""

    folder: Path
    identity: IdentityEndpoint
    environment: dict[str, str]
    portal_url: str
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *command: str, **more: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**_bare(), **self.environment, **more},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _bare() -> dict[str, str]:
    """This environment without what would name other storage, proxies or identities."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SWATHMILL_", "AZURE_", "IDENTITY_", "MSI_"))
        and "proxy" not in name.lower()
    }


def without_tls(redis: Path) -> bool:
    """Whether a Redis does not know the directives of TLS."""
    asked = subprocess.run(
        [redis, "-"], input="tls-port 0\nport 0\nno-such-directive", capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return "tls-port" in asked.stderr + asked.stdout


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    try:
        node, azurite = programs.node(), programs.azurite()
    except StackError as error:
        pytest.skip(str(error))
    redis = programs.redis_server()
    if redis is None or without_tls(redis):
        pytest.skip("there is no Redis with TLS: apt install redis-server")
    folder = tmp_path_factory.mktemp("identity")
    certificate, key = write_certificate(folder)
    blob, queue, table, redis_port, portal = ports.choose(5, preferred=[])
    with ExitStack() as stack:
        identity = IdentityEndpoint()
        stack.callback(identity.close)
        endpoints = {"Blob": blob, "Queue": queue, "Table": table}
        made = Rig(
            folder=folder,
            identity=identity,
            portal_url=f"http://127.0.0.1:{portal}",
            environment={
                "REQUESTS_CA_BUNDLE": str(certificate),
                "SSL_CERT_FILE": str(certificate),
                "IDENTITY_ENDPOINT": identity.url,
                "IDENTITY_HEADER": HEADER,
                "AZURE_CLIENT_ID": "11111111-1111-1111-1111-111111111111",
                "SWATHMILL_STORAGE": ";".join(
                    f"{name}Endpoint=https://127.0.0.1:{port}/{ACCOUNT}/"
                    for name, port in endpoints.items()
                ),
                "SWATHMILL_REDIS_URL": f"rediss://:{quote(PASSWORD, safe='')}@127.0.0.1:"
                f"{redis_port}/0?ssl_cert_reqs=required",
                "SWATHMILL_ARCHIVE": "abfs://modis/granules",
                "SWATHMILL_SOURCES": "folder",
                "SWATHMILL_PORTAL_URL": f"http://127.0.0.1:{portal}",
                "SWATHMILL_PORTAL_ADDRESS": f"127.0.0.1:{portal}",
                "SWATHMILL_EARTHDATA_TOKEN": "none",
                "SWATHMILL_SANDBOX": "limits",
                "SWATHMILL_GRACE_SECONDS": "1",
            },
        )
        stack.callback(made.stop)
        made.start(
            "azurite",
            *(str(node), str(azurite), "--silent", "--skipApiVersionCheck", "--disableTelemetry"),
            *("--cert", str(certificate), "--key", str(key), "--oauth", "basic"),
            *("--location", str(folder / "azurite"), "--blobPort", str(blob)),
            *("--queuePort", str(queue), "--tablePort", str(table)),
        )
        settings = folder / "redis.conf"
        settings.write_text(
            f'bind 127.0.0.1\nport 0\ntls-port {redis_port}\ntls-cert-file "{certificate}"\n'
            f'tls-key-file "{key}"\ntls-auth-clients no\nsave ""\nrequirepass {PASSWORD}\n'
        )
        made.start("redis", str(redis), str(settings))
        until(lambda: all(map(ports.answers, (blob, queue, table, redis_port))), 60.0, "servers")
        _fill_archive(made)
        yield made


def _fill_archive(rig: Rig) -> None:
    """Put the sample archive into a container, as the holder of the account does."""
    write_sample_archive(rig.folder / "sample")
    script = """
import pathlib, sys
from azure.identity import DefaultAzureCredential
from azure.storage.blob import BlobServiceClient
client = BlobServiceClient(sys.argv[1], credential=DefaultAzureCredential())
container = client.create_container("modis")
folder = pathlib.Path(sys.argv[2])
for path in folder.rglob("*"):
    if path.is_file():
        with path.open("rb") as file:
            container.upload_blob(f"granules/{path.relative_to(folder)}", file)
"""
    address = rig.environment["SWATHMILL_STORAGE"].partition("=")[2].partition(";")[0]
    subprocess.run(
        [sys.executable, "-c", script, address, str(rig.folder / "sample")],
        env={**_bare(), **rig.environment},
        check=True,
        timeout=120,
    )


def test_a_request_completes_with_an_identity_and_no_key(rig: Rig) -> None:
    for name in ("manager", "worker", "portal"):
        module = {"manager": "service_manager"}.get(name, name)
        rig.start(
            name,
            *(sys.executable, "-P", "-m", module),
            SWATHMILL_DATA_DIR=str(rig.folder / name),
            SWATHMILL_RESULT_LINK_MINUTES="5",
            **({} if name == "worker" else {"SWATHMILL_SECRET": SECRET}),
        )
    until(lambda: _answers(f"{rig.portal_url}/healthz"), 120.0, rig.log("portal"))
    written = yaml.safe_load((ROOT / "examples" / "sample.yaml").read_text("utf-8"))
    document = json.loads(json.dumps(written, default=str))  # days are texts in JSON
    token = tokens.issue(SECRET, "ada@example.org")
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=rig.portal_url, headers=headers, trust_env=False, timeout=60) as api:
        answer = api.post("/api/requests", json=document)
        assert answer.status_code == 202, answer.text
        request = answer.json()["id"]
        until(
            lambda: api.get(f"/api/requests/{request}").json()["state"].startswith("complete"),
            PATIENCE,
            rig.log("manager")[-2000:] + rig.log("worker")[-2000:],
        )
        assert api.get(f"/api/requests/{request}").json()["state"] == "complete"
        _check_link(rig, api, request)
    assert {query["resource"][0] for query in rig.identity.asked} == {"https://storage.azure.com"}
    assert {query["client_id"][0] for query in rig.identity.asked} == {
        rig.environment["AZURE_CLIENT_ID"]
    }
    for name in ("portal", "manager", "worker"):
        assert '"level": "error"' not in rig.log(name)


def _check_link(rig: Rig, api: httpx.Client, request: str) -> None:
    """The identity signs links to results, without a key.

    Azurite 3.35 gives the key for it, and computes the signature as services did before 2026: it
    opens nothing by such a link of the present SDK.
    """
    found = next(
        one
        for one in api.get(f"/api/requests/{request}/results").json()
        if one["name"].endswith(".tif")
    )
    answer = api.get(found["url"])
    assert answer.status_code == 307, answer.text
    link = urlsplit(answer.headers["Location"])
    assert f"{link.scheme}://{link.netloc}" in rig.environment["SWATHMILL_STORAGE"]
    signed = parse_qs(link.query)
    assert signed["skoid"] == [OBJECT]
    assert signed["sp"] == ["r"]


def test_a_process_without_the_identity_says_so(rig: Rig) -> None:
    environment = {**_bare(), **rig.environment, "IDENTITY_HEADER": "another"}
    environment["AZURE_TOKEN_CREDENTIALS"] = "ManagedIdentityCredential"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "worker"],
        env={**environment, "SWATHMILL_DATA_DIR": str(rig.folder / "stranger")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 78
    assert "no identity" in done.stderr


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False, timeout=10).status_code == 200
    except httpx.HTTPError:
        return False
