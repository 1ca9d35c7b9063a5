"""A real file server on loopback, by HTTP or HTTPS, that does wrong when it is told to."""

import datetime
import ipaddress
import re
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HDF4 = b"\x0e\x03\x13\x01"
_DESCRIBED = 22  # bytes: first bytes, a block of one descriptor


def granule(size: int, first: int = 0) -> bytes:
    """A whole HDF4 file of one data element; no two stretches of its values are alike.

    Others of the same size have another `first`.
    """
    numbers = range(first, first + size // 4 + 1)
    return hdf4(b"".join(n.to_bytes(4, "big") for n in numbers)[: size - _DESCRIBED])


def hdf4(values: bytes) -> bytes:
    """The smallest HDF4 file with these bytes as its one data element."""
    block = struct.pack(">HIHHII", 1, 0, 702, 1, _DESCRIBED, len(values))
    return HDF4 + block + values


def without_structure(data: bytes) -> bytes:
    """An HDF4 file whose tables of fields (tag 1962) are overwritten: whole, and not readable."""
    changed = bytearray(data)
    for offset, length in _elements(data, 1962):
        changed[offset : offset + length] = b"\xff" * length
    return bytes(changed)


def with_damaged_values(data: bytes, seed: int = 0) -> bytes:
    """An HDF4 file with inverted bytes in its compressed values (tag 40): only reading tells."""
    changed = bytearray(data)
    for offset, length in _elements(data, 40):
        for at in range(offset + 10 + seed, offset + length - 10, 101):
            changed[at] ^= 0xFF
    return bytes(changed)


def _elements(data: bytes, wanted: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each element of a tag."""
    block = len(HDF4)
    while block:
        count, following = struct.unpack_from(">HI", data, block)
        for at in range(block + 6, block + 6 + 12 * count, 12):
            tag, _, offset, length = struct.unpack_from(">HHII", data, at)
            if tag == wanted:
                yield offset, length
        block = following


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request as it came in."""

    path: str  # with the query
    headers: dict[str, str]  # names in lower case
    body: bytes = b""


@dataclass(kw_only=True)
class Served:
    """A file, and what makes it the same file next time."""

    data: bytes
    etag: str = '"v1"'
    modified: str = ""


Act = Callable[["Request"], None]


@dataclass(kw_only=True)
class FileServer:
    """Serves `files` by path with Range and If-Range. `acts` of a path come first, one a request;
    `always` acts for a path at every request."""

    url: str = ""
    context: ssl.SSLContext | None = None  # that trusts it; None for plain HTTP
    files: dict[str, Served] = field(default_factory=dict)
    acts: dict[str, list[Act]] = field(default_factory=dict)
    always: dict[str, Act] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    most: int = 0  # requests under way at once
    ended: threading.Event = field(default_factory=threading.Event)
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def paths(self) -> list[str]:
        """The paths asked for, in order."""
        return [urlsplit(asked.path).path for asked in self.asked]

    def enter(self, asked: Asked) -> Act | None:
        """Note a request; what to do about it other than to serve the file."""
        path = urlsplit(asked.path).path
        with self._lock:
            self.asked.append(asked)
            self._running += 1
            self.most = max(self.most, self._running)
            acts = self.acts.get(path)
            return acts.pop(0) if acts else self.always.get(path)

    def leave(self) -> None:
        with self._lock:
            self._running -= 1


class Request(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    files: FileServer
    sent: bytes

    def do_GET(self) -> None:
        """Do what was told, or serve the file."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.sent = self.rfile.read(int(headers.get("content-length", "0")))
        act = self.files.enter(Asked(path=self.path, headers=headers, body=self.sent))
        try:
            (act or serve)(self)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True
        finally:
            self.files.leave()

    def do_POST(self) -> None:
        """As GET; what came along is in `sent`."""
        self.do_GET()

    @property
    def file(self) -> Served | None:
        return self.files.files.get(urlsplit(self.path).path)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """A whole answer; underscores in names of headers stand for hyphens."""
        self.begin(status, len(body), **headers)
        self.wfile.write(body)

    def begin(self, status: int, length: int, **headers: str) -> None:
        """The head of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def serve(request: Request) -> None:
    """The file, or the range of it that is asked for."""
    send(request, lambda body: request.wfile.write(body))


def send(request: Request, write: Callable[[bytes], object]) -> None:
    """The right head for a file, and its body by `write`."""
    file = request.file
    if file is None:
        request.answer(404, b"no such file")
        return
    headers = {"Accept_Ranges": "bytes"}
    if file.etag:
        headers["ETag"] = file.etag
    if file.modified:
        headers["Last_Modified"] = file.modified
    start = _start(request, file)
    if start is None:
        request.begin(200, len(file.data), **headers)
        write(file.data)
    elif start >= len(file.data):
        request.answer(416, Content_Range=f"bytes */{len(file.data)}")
    else:
        end = _end(request, file)
        span = f"bytes {start}-{end - 1}/{len(file.data)}"
        request.begin(206, end - start, Content_Range=span, **headers)
        write(file.data[start:end])


def _end(request: Request, file: Served) -> int:
    last = request.headers.get("Range", "").rpartition("-")[2]
    return min(int(last) + 1, len(file.data)) if last else len(file.data)


def _start(request: Request, file: Served) -> int | None:
    match = re.fullmatch(r"bytes=(\d+)-\d*", request.headers.get("Range", ""))
    same = request.headers.get("If-Range", file.etag) in (file.etag, file.modified)
    return int(match[1]) if match and same else None


def status(code: int, body: bytes = b"", **headers: str) -> Act:
    """An answer of this status."""
    return lambda request: request.answer(code, body, **headers)


def redirect(to: str) -> Act:
    """An answer that sends elsewhere."""
    return lambda request: request.answer(302, Location=to)


def cut(after: int) -> Act:
    """The connection ends after so many bytes of the body."""

    def act(request: Request) -> None:
        send(request, lambda body: request.wfile.write(body[:after]))
        request.close_connection = True

    return act


def stall(after: int) -> Act:
    """Nothing more comes after so many bytes of the body."""

    def act(request: Request) -> None:
        send(request, lambda body: request.wfile.write(body[:after]))
        request.wfile.flush()
        request.files.ended.wait(30)
        request.close_connection = True

    return act


def silence(request: Request) -> None:
    """No answer at all."""
    request.files.ended.wait(30)
    request.close_connection = True


def nonsense(request: Request) -> None:
    """What is not HTTP."""
    request.wfile.write(b"SMTP/9 never heard of it\r\n\r\n")
    request.close_connection = True


def body(data: bytes, length: int | None = None, **headers: str) -> Act:
    """Status 200 with this body under this Content-Length."""

    def act(request: Request) -> None:
        request.begin(200, len(data) if length is None else length, **headers)
        request.wfile.write(data)
        request.close_connection = length is not None

    return act


@contextmanager
def file_server(tls: Path | None = None) -> Iterator[FileServer]:
    """A running server; HTTPS when given a folder for its certificate."""
    files = FileServer()
    handler = type("Handler", (Request,), {"files": files})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    scheme = "http"
    if tls is not None:
        scheme = "https"
        own = certificate(tls)
        inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        inside.load_cert_chain(own)
        server.socket = inside.wrap_socket(server.socket, server_side=True)
        files.context = ssl.create_default_context(cafile=str(own))
    files.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield files
    finally:
        files.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(folder: Path) -> Path:
    """A certificate of its own for 127.0.0.1, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path
