"""Files fetched by address from a real HTTPS server, whose certificates a CA of the test signs."""

import datetime as dt
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tasks.network_hosts import AllowedHosts, read_allowed
from tasks.packages.https_fetch import AddressRefusedError, fetch

HOST = "localhost"
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
_PEM = serialization.Encoding.PEM


@dataclass(frozen=True, kw_only=True)
class Authority:
    """A CA, and the folder of what it signs."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def of(cls, folder: Path) -> "Authority":
        one = cls(
            folder=folder,
            key=ec.generate_private_key(ec.SECP256R1()),
            name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a CA")]),
        )
        (folder / "ca.pem").write_bytes(one._sign(one.name, one.key, ca=True))
        return one

    @property
    def file(self) -> Path:
        return self.folder / "ca.pem"

    def certificate(self, host: str = HOST, until: dt.datetime = NOW + DAY) -> Path:
        """Make a host's certificate, with its key, in one file."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.folder / f"{host}.pem"
        path.write_bytes(self._sign(name, key, host=host, until=until) + private)
        return path

    def _sign(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        ca: bool = False,
        host: str = "",
        until: dt.datetime = NOW + DAY,
    ) -> bytes:
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 30 * DAY)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(own, critical=False)
        )
        if host:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            made = made.add_extension(names, critical=False)
        return made.sign(self.key, hashes.SHA256()).public_bytes(_PEM)


@dataclass
class Server:
    """A running server: what it answers by path, and the paths it was asked for."""

    port: int = 0
    answers: dict[str, tuple[int, dict[str, str], bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"https://{HOST}:{self.port}{path}"

    def allowed(self, networks: str = "127.0.0.0/8, ::1/128") -> AllowedHosts:
        return read_allowed(
            f"{HOST}:{self.port}, {networks}" if networks else f"{HOST}:{self.port}"
        )


@contextmanager
def serving(certificate: Path) -> Iterator[Server]:
    """Run a server with a certificate."""
    running = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            running.asked.append(self.path)
            status, headers, content = running.answers[self.path]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # a client that does not trust the certificate hangs up

    server = Quiet((HOST, 0), Handler)
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(certificate)
    server.socket = inside.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    running.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.of(tmp_path_factory.mktemp("authority"))


@pytest.fixture(autouse=True)
def _trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an operator trusts a CA of his own: OpenSSL reads this variable."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[Server]:
    with serving(authority.certificate()) as running:
        yield running


@pytest.fixture
def content(server: Server) -> bytes:
    content = bytes(range(256)) * 20_000  # several reads
    server.asked.clear()
    server.answers = {
        "/x.tif?sig=1": (200, {"Content-Length": str(len(content))}, content),
        "/moved": (302, {"Location": "/x.tif?sig=1"}, b""),
        "/round": (302, {"Location": "/round"}, b""),
        "/elsewhere": (302, {"Location": "https://other.example.org/x.tif"}, b""),
        "/plain": (302, {"Location": f"http://{HOST}:{server.port}/x.tif"}, b""),
        "/metadata": (302, {"Location": "https://169.254.169.254/latest"}, b""),
        "/broken": (200, {"Content-Length": "1000"}, b"half of it"),
        "/secret": (401, {}, b"sign in"),
    }
    return content


def test_a_file_comes_over_a_checked_connection(
    server: Server, content: bytes, tmp_path: Path
) -> None:
    fetch(server.url("/x.tif?sig=1"), server.allowed(), tmp_path / "x", len(content))
    assert (tmp_path / "x").read_bytes() == content
    fetch(server.url("/moved"), server.allowed(), tmp_path / "y", len(content))
    assert (tmp_path / "y").read_bytes() == content
    assert server.asked == ["/x.tif?sig=1", "/moved", "/x.tif?sig=1"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/round", "redirects too often"),
        ("/elsewhere", r"nothing may be fetched from other\.example\.org"),
        ("/plain", "not a plain https address"),
        ("/metadata", "addresses cannot be named"),
        ("/broken", "broke off after 10 of 1,000 bytes"),
        ("/secret", "answers 401"),
        ("/x.tif?sig=1", "sends more than 4 MiB"),
    ],
)
@pytest.mark.usefixtures("content")
def test_what_the_server_answers_is_refused(
    server: Server, tmp_path: Path, path: str, words: str
) -> None:
    with pytest.raises(AddressRefusedError, match=words):
        fetch(server.url(path), server.allowed(), tmp_path / "x", 4 << 20)


def test_a_redirect_to_another_port_of_the_host_is_refused(
    server: Server, content: bytes, authority: Authority, tmp_path: Path
) -> None:
    """As to a service of the installation that listens beside it."""
    with serving(authority.certificate()) as beside:
        server.answers["/beside"] = (302, {"Location": beside.url("/x.tif?sig=1")}, b"")
        beside.answers = {"/x.tif?sig=1": (200, {}, content)}
        with pytest.raises(AddressRefusedError, match="nothing may be fetched from localhost:"):
            fetch(server.url("/beside"), server.allowed(), tmp_path / "x", len(content))
        assert beside.asked == []


@pytest.mark.usefixtures("content")
def test_a_private_address_is_not_connected_to(server: Server, tmp_path: Path) -> None:
    with pytest.raises(AddressRefusedError, match="has no public address"):
        fetch(server.url("/moved"), server.allowed(networks=""), tmp_path / "x", 100)
    assert server.asked == []


@pytest.mark.parametrize(
    ("host", "until", "words"),
    [
        (HOST, NOW - DAY, "certificate has expired"),
        ("other.example.org", NOW + DAY, "Hostname mismatch"),
    ],
)
def test_a_wrong_certificate_ends_it_before_anything_is_asked(
    authority: Authority, tmp_path: Path, host: str, until: dt.datetime, words: str
) -> None:
    with serving(authority.certificate(host, until)) as wrong:
        wrong.answers = {"/x.tif": (200, {}, b"x")}
        with pytest.raises(AddressRefusedError, match=words):
            fetch(wrong.url("/x.tif"), wrong.allowed(), tmp_path / "x", 100)
        assert wrong.asked == []


@pytest.mark.usefixtures("content")
def test_a_certificate_of_an_unknown_authority_is_refused(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority.of(tmp_path).file))
    with pytest.raises(AddressRefusedError, match="certificate verify failed"):
        fetch(server.url("/moved"), server.allowed(), tmp_path / "x", 100)
    assert server.asked == []
