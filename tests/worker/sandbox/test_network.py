"""The network of a package: the hosts that it names and the operator allows, by a proxy alone."""

import datetime as dt
import multiprocessing
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tasks.bag.categories import Category
from tasks.network_hosts import AllowedHosts, read_allowed
from tasks.packages.packages import pack
from tests.worker.mill import Mill
from tests.worker.sandbox.test_sandbox import BOUNDS, places, run
from tests.worker.sandbox.test_shipped import group, reduction
from tests.worker.test_packages import make
from worker.sandbox import sandbox
from worker.sandbox.messages import Failed, Succeeded
from worker.sandbox.sandbox import Places

__all__ = ["places"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(sandbox.probe_bubblewrap()), reason="there is a network in the tier bubblewrap alone"
    ),
]

GO = """
import http.client, os, socket, sys
out = open(sys.argv[2] + "/out.txt", "w")
host, _, port = os.environ["HTTPS_PROXY"].removeprefix("http://").partition(":")
def get(target, path="/"):
    name, _, number = target.rpartition(":")
    tunnel = http.client.HTTPConnection(host, int(port), timeout=10)
    tunnel.set_tunnel(name, int(number))
    tunnel.request("GET", path)
    return tunnel.getresponse()
def attempt(what, action):
    try:
        said = action()
    except OSError as error:
        said = f"{type(error).__name__} {error}"
    print(what, said, file=out, sep=": ")
"""


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "https://evil.example.org/")
        self.end_headers()
        self.wfile.write(b"the host's data")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Server(HTTPServer):
    request_queue_size = 64


@pytest.fixture
def host() -> Iterator[int]:
    """The port of a web server on 127.0.0.1."""
    server = Server(("127.0.0.1", 0), Answers)
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever)
    process.start()
    yield server.server_port
    process.kill()
    process.join()
    server.server_close()


@pytest.fixture
def secure_host(tmp_path: Path, places: Places) -> Iterator[int]:
    """The port of a web server with TLS, whose authority's certificate the package has."""
    (tmp_path / "tls").mkdir()
    make_certificates(places.package / "authority.pem", tmp_path / "tls" / "localhost.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls" / "localhost.pem")
    server = Server(("127.0.0.1", 0), Answers)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    process = multiprocessing.get_context("fork").Process(target=server.serve_forever)
    process.start()
    yield server.server_port
    process.kill()
    process.join()
    server.server_close()


def make_certificates(authority: Path, server: Path) -> None:
    """Write an authority's certificate, and one of it for localhost with its key."""
    now = dt.datetime.now(dt.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in ("ca", "server")]
    pem = serialization.Encoding.PEM
    for key, name, path in zip(keys, names, (authority, server), strict=True):
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=path is authority, path_length=None), True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), False)
            .sign(keys[0], hashes.SHA256())
        )
        path.write_bytes(certificate.public_bytes(pem))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with server.open("ab") as file:
        file.write(keys[1].private_bytes(pem, *private))


@pytest.fixture
def bystander(host: int) -> Iterator[None]:
    """A server on the same port of 127.0.0.2, which nobody may reach."""
    with socket.create_server(("127.0.0.2", host)) as server:
        server.setblocking(False)
        yield
        with suppress(BlockingIOError):
            raise AssertionError(f"a connection arrived: {server.accept()}")


def reach(*hosts: str, networks: str = "127.0.0.1/32") -> AllowedHosts:
    return read_allowed(",".join((*hosts, networks)))


def go(places: Places, script: str, allowed: AllowedHosts) -> dict[str, str]:
    text = run("bubblewrap", places, GO + script, replace(BOUNDS, reach=allowed))
    return dict(line.split(": ", 1) for line in text.splitlines())


def answers(monkeypatch: pytest.MonkeyPatch, *addresses: list[str]) -> None:
    """Have the name server answer each question with the next addresses, the last ones for ever."""
    left = [*addresses]

    def getaddrinfo(_name: str, port: int, *_: object, **__: object) -> object:
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_a_host_that_both_name_is_reached(places: Places, host: int) -> None:
    script = f'attempt("said", lambda: get("localhost:{host}").read().decode())'
    assert go(places, script, reach(f"localhost:{host}")) == {"said": "the host's data"}


CURL = "curl --silent --show-error --max-time 20 --cacert authority.pem {}"
R = (
    "Rscript -e \"Sys.setenv(CURL_CA_BUNDLE='authority.pem');"
    "download.file('{}', file.path(Sys.getenv('TMPDIR'), 'said'), 'libcurl', quiet=TRUE);"
    "cat(readLines(file.path(Sys.getenv('TMPDIR'), 'said'), warn=FALSE))\""
)
URLLIB = (
    'python -c "import ssl, urllib.request as u;'
    "trusted = ssl.create_default_context(cafile='authority.pem');"
    "print(u.urlopen('{}', context=trusted, timeout=20).read().decode(), end='')\""
)


@pytest.mark.parametrize("program", [CURL, R, URLLIB], ids=["curl", "R", "Python"])
def test_programs_speak_tls_through_the_proxy(
    places: Places, secure_host: int, program: str
) -> None:
    """To the host alone: its certificate has to be for the name that the package asked for."""
    if shutil.which(program.split()[0]) is None:
        pytest.skip(f"{program.split()[0]} is not installed")
    script = f"""
import subprocess
for what, name in (("named", "localhost"), ("other", "evil.example.org")):
    done = subprocess.run({program!r}.format(f"https://{{name}}:{secure_host}/"), shell=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    attempt(what, lambda: " ".join(done.stdout.split()))
"""
    found = go(places, script, reach(f"localhost:{secure_host}"))
    assert found["named"] == "the host's data"
    assert "403" in found["other"] or "cannot open URL" in found["other"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_a_host_with_anothers_certificate_is_not_trusted(
    places: Places, secure_host: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, ["127.0.0.1"])
    script = f"""
import subprocess
done = subprocess.run({CURL.format(f"https://data.example.org:{secure_host}/")!r}.split(),
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
attempt("said", lambda: " ".join(done.stdout.split()))
"""
    found = go(places, script, reach(f"data.example.org:{secure_host}"))
    assert "no alternative certificate subject name matches" in found["said"]


@pytest.mark.usefixtures("bystander")
def test_other_hosts_and_ports_are_refused(places: Places, host: int) -> None:
    targets = [
        *("evil.example.org:443", f"localhost:{host ^ 1}", f"localhost.evil.example.org:{host}"),
        *(f"127.0.0.1:{host}", f"127.0.0.2:{host}", f"2130706433:{host}", f"0x7f.1:{host}"),
        *("169.254.169.254:80", "[::ffff:169.254.169.254]:80", "metadata.google.internal:80"),
    ]
    script = f"for one in {targets}: attempt(one.replace(':', '-'), lambda: get(one).read())"
    found = go(places, script, reach(f"localhost:{host}"))
    assert len(found) == len(targets)
    assert all("403" in said for said in found.values()), found


def test_a_redirect_leads_to_no_other_host(places: Places, host: int) -> None:
    script = f"""
answer = get("localhost:{host}", "/away")
attempt("status", lambda: answer.status)
attempt("there", lambda: get(answer.headers["Location"].split("/")[2] + ":443").read())
"""
    found = go(places, script, reach(f"localhost:{host}"))
    assert found["status"] == "302"
    assert "403 the package does not name the host evil.example.org" in found["there"]


@pytest.mark.parametrize(
    "address", ["127.0.0.2", "169.254.169.254", "10.0.0.1", "168.63.129.16", "::1"]
)
def test_a_name_that_means_an_address_of_this_installation_is_refused(
    places: Places, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    answers(monkeypatch, [address])
    script = 'attempt("said", lambda: get("data.example.org:443").read())'
    found = go(places, script, reach("data.example.org"))
    assert "403 data.example.org has an address that is not public" in found["said"]


@pytest.mark.usefixtures("bystander")
def test_a_name_is_looked_up_once(
    places: Places, monkeypatch: pytest.MonkeyPatch, host: int
) -> None:
    """DNS rebinding: what the name means the next time is of no use."""
    answers(monkeypatch, ["127.0.0.1"], ["127.0.0.2"])
    target = f"data.example.org:{host}"
    script = f"""
attempt("first", lambda: get("{target}").read().decode())
attempt("then", lambda: get("{target}").read().decode())
"""
    found = go(places, script, reach(target))
    assert found["first"] == "the host's data"
    assert "403" in found["then"]


@pytest.mark.usefixtures("bystander")
def test_a_forbidden_address_among_others_is_not_tried(
    places: Places, monkeypatch: pytest.MonkeyPatch, host: int
) -> None:
    answers(monkeypatch, ["127.0.0.2", "127.0.0.1"])
    target = f"data.example.org:{host}"
    script = f'attempt("said", lambda: get("{target}").read().decode())'
    assert go(places, script, reach(target))["said"] == "the host's data"


@pytest.mark.usefixtures("bystander")
def test_only_tcp_to_the_proxy_is_there(places: Places, host: int) -> None:
    script = f"""
def kind(*what):
    socket.socket(*what).close()
    return "done"
for name, what in (
    ("UDP", (socket.AF_INET, socket.SOCK_DGRAM)), ("raw", (socket.AF_INET, socket.SOCK_RAW)),
    ("MPTCP", (socket.AF_INET, socket.SOCK_STREAM, 262)),
    ("IPv6", (socket.AF_INET6, socket.SOCK_STREAM)),
    ("Unix", (socket.AF_UNIX, socket.SOCK_STREAM)), ("netlink", (socket.AF_NETLINK, 3)),
):
    attempt(name, lambda: kind(*what))
attempt("TCP", lambda: kind(socket.AF_INET, socket.SOCK_STREAM))
attempt("bind", lambda: socket.socket().bind(("127.0.0.1", 0)))
attempt("listen", lambda: socket.socket().listen())
attempt("the host", lambda: socket.create_connection(("127.0.0.1", {host}), 5))
attempt("bystander", lambda: socket.create_connection(("127.0.0.2", {host}), 5))
attempt("internet", lambda: socket.create_connection(("93.184.215.14", 443), 5))
attempt("DNS", lambda: socket.getaddrinfo("example.org", 443))
"""
    found = go(places, script, reach(f"localhost:{host}"))
    refused = ("UDP", "raw", "MPTCP", "IPv6", "Unix", "netlink", "bind", "listen")
    assert [name for name in refused if "PermissionError" not in found[name]] == []
    assert found["TCP"] == "done"
    assert "ConnectionRefusedError" in found["the host"]
    assert "ConnectionRefusedError" in found["bystander"]
    assert "unreachable" in found["internet"]
    assert "gaierror" in found["DNS"]


def test_orders_that_are_none_end_with_their_connection(places: Places, host: int) -> None:
    script = f"""
def send(data):
    with socket.create_connection((host, int(port)), 10) as to:
        to.sendall(data)
        to.shutdown(socket.SHUT_WR)
        return to.recv(200).decode().partition("\\r\\n")[0]
attempt("get", lambda: send(b"GET http://localhost:{host}/ HTTP/1.1\\r\\n\\r\\n"))
attempt("no port", lambda: send(b"CONNECT localhost HTTP/1.1\\r\\n\\r\\n"))
attempt("user", lambda: send(b"CONNECT evil@localhost:{host} HTTP/1.1\\r\\n\\r\\n"))
attempt("bytes", lambda: send(bytes(range(256)) * 4 + b"\\r\\n\\r\\n"))
attempt("long", lambda: send(b"CONNECT " + b"x" * 10**5))
attempt("nothing", lambda: send(b""))
attempt("still", lambda: get("localhost:{host}").read().decode())
"""
    found = go(places, script, reach(f"localhost:{host}"))
    assert "405 only CONNECT is known here: use https" in found["get"]
    assert "403" in found["no port"]
    assert "403" in found["user"]
    assert "405" in found["bytes"]
    assert "200" not in found["long"] + found["nothing"]
    assert found["still"] == "the host's data"


def test_many_connections_are_bounded(places: Places, host: int) -> None:
    script = f"""
held = []
def open_all():
    for _ in range(60):
        to = socket.create_connection((host, int(port)), 10)
        held.append(to)
        to.sendall(b"CONNECT localhost:{host} HTTP/1.1\\r\\n\\r\\n")
    return sorted({{to.recv(99).decode().split()[1] for to in held}})
attempt("said", open_all)
"""
    assert go(places, script, reach(f"localhost:{host}"))["said"] == "['200', '503']"


CONNECTS = """
import http.client, os, sys
def get():
    host, _, port = os.environ["HTTPS_PROXY"].removeprefix("http://").partition(":")
    tunnel = http.client.HTTPConnection(host, int(port))
    tunnel.set_tunnel("localhost", PORT)
    tunnel.request("GET", "/")
    return tunnel.getresponse().read().decode()
open(sys.argv[2] + "/said.txt", "w").write(get())
"""


@pytest.mark.parametrize(
    ("tier", "allowed", "refused"),
    [
        ("bubblewrap", "localhost:{port}, 127.0.0.0/8", ""),
        ("bubblewrap", "", "names hosts that packages may not connect to here: localhost:"),
        ("bubblewrap", "localhost, 127.0.0.0/8", "names hosts that packages may not connect to"),
        ("limits", "localhost:{port}, 127.0.0.0/8", "has none in the tier limits"),
    ],
)
def test_a_package_has_the_network_that_it_and_the_operator_name(
    tmp_path: Path, host: int, tier: sandbox.Tier, allowed: str, refused: str
) -> None:
    own = make(
        tmp_path / "own",
        "name: own\ncommand: [python, run.py]\noutputs: [said.txt]\n"
        f"network: ['localhost:{host}']\n",
    )
    (own / "run.py").write_text(CONNECTS.replace("PORT", str(host)), "utf-8")
    mill = Mill(tmp_path, tmp_path, sandbox=tier)
    hosts = allowed.format(port=host)
    mill.settings = mill.settings.model_copy(update={"network_hosts": hosts})
    archive = pack(own)
    mill.world.put_package(archive)
    spec = reduction(group(mill), archive.digest).model_copy(update={"outputs": ("said.txt",)})
    said = mill.attempt(spec)
    if refused:
        assert isinstance(said, Failed)
        assert (said.category, refused in said.message) == (Category.CHOICE_REFUSED, True), said
    else:
        assert isinstance(said, Succeeded), said
        assert mill.fetch(said.files[0]).read_text() == "the host's data"
