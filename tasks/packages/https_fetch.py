"""Fetch a file that a user names by its address, from hosts that the operator allows, by HTTPS.

The host's name is looked up once, and the connection goes to the very address that was judged; so a
name that means another address the next time leads nowhere else. Redirects are judged likewise.
"""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

from tasks.errors import SwathmillError
from tasks.network_hosts import AllowedHosts, read_endpoint

_MOST_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_SECONDS = 30.0  # for each answer and each piece
_MOST_SECONDS = 900.0
_PIECE = 1 << 20
_IN_ADDRESSES = "/?%:@!$&'()*+,;=[]"  # kept in a path and query (RFC 3986)


class AddressRefusedError(SwathmillError):
    """The address may not be fetched, or gave no file; the message says why and what to do."""


def fetch(address: str, reach: AllowedHosts, to: Path, most: int) -> None:
    """Fetch a file of at most so many bytes.

    Raises:
        AddressRefusedError: the address is not allowed, does not answer with a file, or sends more.
    """
    end = time.monotonic() + _MOST_SECONDS
    try:
        for _ in range(_MOST_REDIRECTS + 1):
            connection, target = _connected(address, reach)
            try:
                connection.request("GET", target, headers={"User-Agent": "swathmill"})
                answer = connection.getresponse()
                if answer.status in _REDIRECTS:
                    address = urljoin(address, answer.headers.get("Location", ""))
                    continue
                if answer.status != 200:
                    raise AddressRefusedError(
                        f"{address} answers {answer.status} {answer.reason}. Check the address; "
                        "it must need no sign-in."
                    )
                _keep(answer, to, most, end, address)
                return
            finally:
                connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise AddressRefusedError(f"{address} cannot be fetched: {error}. Try again.") from error
    raise AddressRefusedError(f"{address} redirects too often. Give the address of the file.")


def _keep(answer: http.client.HTTPResponse, to: Path, most: int, end: float, address: str) -> None:
    size = 0
    with to.open("xb") as out:
        while part := answer.read1(_PIECE):
            size += len(part)
            if size > most:
                raise AddressRefusedError(
                    f"{address} sends more than {most >> 20} MiB. Cut the raster to your region."
                )
            if time.monotonic() > end:
                raise AddressRefusedError(
                    f"{address} takes longer than {_MOST_SECONDS:g} s. Upload the file instead."
                )
            out.write(part)
    if answer.length:  # what is left of Content-Length: the library says nothing of it
        raise AddressRefusedError(
            f"{address} broke off after {size:,} of {size + answer.length:,} bytes. Try again."
        )


class _Connection(http.client.HTTPSConnection):
    """A connection to one judged address of a host."""

    def __init__(self, host: str, port: int, address: str) -> None:
        self._own = ssl.create_default_context()
        super().__init__(host, port, timeout=_SECONDS, context=self._own)
        self._address = address

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), _SECONDS)
        self.sock = self._own.wrap_socket(plain, server_hostname=self.host)


def _connected(address: str, reach: AllowedHosts) -> tuple[_Connection, str]:
    """Judge an address; return a connection to its host, and what to ask it for."""
    try:
        parts = urlsplit(address)
        if parts.scheme != "https" or parts.username or parts.password:
            raise AddressRefusedError(
                f"{address[:200]!r} is not a plain https address. Give one, or upload the file."
            )
        endpoint = read_endpoint(parts.netloc)
    except ValueError as error:
        raise AddressRefusedError(f"{error}. Give an https address, or upload the file.") from None
    if endpoint not in reach.endpoints:
        raise AddressRefusedError(
            f"nothing may be fetched from {endpoint} here. Upload the file, or ask the operator to "
            "allow the host (SWATHMILL_NETWORK_HOSTS)."
        )
    allowed = next((one for one in _addresses(endpoint.host, endpoint.port, reach)), "")
    if not allowed:
        raise AddressRefusedError(f"{endpoint} has no public address. Upload the file.")
    query = f"?{parts.query}" if parts.query else ""
    target = quote(f"{parts.path or '/'}{query}", safe=_IN_ADDRESSES)
    return _Connection(endpoint.host, endpoint.port, allowed), target


def _addresses(host: str, port: int, reach: AllowedHosts) -> Iterator[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    yield from (str(where[0]) for *_, where in found if reach.permits(str(where[0])))
