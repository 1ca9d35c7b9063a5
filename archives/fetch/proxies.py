"""The proxies of the environment: which one a call takes, and what cannot be used.

The variables are those of curl: `http_proxy`, `https_proxy` and `all_proxy`, in small or capital
letters, and `no_proxy`, a list of hosts that need none. Its entries are names (with all names below
them), addresses, networks (`10.0.0.0/8`), each with a port or not, or `*`. The HTTP library reads
them too, but ends every call for one entry that it does not know.
"""

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

import httpx

from archives.fetch.answers import bare_url

_SCHEMES = ("http", "https", "all")
_SOCKS = ("socks5", "socks5h")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](?::(?P<port>\d+))?")
_WITH_PORT = re.compile(r"(?P<host>[^:]+):(?P<port>\d+)")
_ELSE = "name an HTTP proxy there, or exempt hosts by NO_PROXY"


class UnusableProxyError(httpx.ProxyError):
    """The environment names a proxy for this host that cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """An entry of NO_PROXY: a host or network, and perhaps its port. `*` is every host."""

    host: str
    port: int | None = None

    def covers(self, host: str, port: int) -> bool:
        """Tell whether a host needs no proxy by this entry."""
        if self.port not in (None, port):
            return False
        if self.host == "*":
            return True
        try:
            return ip_address(host) in ip_network(self.host, strict=False)
        except (ValueError, TypeError):  # one of the two is a name
            return host == self.host or host.endswith(f".{self.host}")


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A proxy as the environment names it: the variable, the address, and why it is of no use."""

    variable: str
    url: str
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """The proxies of an environment, by scheme or `all`, and who needs none.

    `passed_over` has the entries of NO_PROXY that mean nothing.
    """

    by_scheme: Mapping[str, Proxy]
    exempt: tuple[Exemption, ...] = ()
    passed_over: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Proxies":
        """Read the variables of an environment."""
        found = (_read(scheme, environment) for scheme in _SCHEMES)
        proxies = dict(zip(_SCHEMES, found, strict=True))
        listed = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        words = [word for word in re.split(r"[,\s]+", listed) if word]
        entries = {word: _exemption(word) for word in words}
        return cls(
            by_scheme={scheme: proxy for scheme, proxy in proxies.items() if proxy is not None},
            exempt=tuple(entry for entry in entries.values() if entry is not None),
            passed_over=tuple(word for word, entry in entries.items() if entry is None),
        )

    def of_url(self, url: httpx.URL) -> Proxy | None:
        """Return the proxy that a call takes; None if it goes to the host itself."""
        proxy = self.by_scheme.get(url.scheme) or self.by_scheme.get("all")
        port = url.port or (443 if url.scheme == "https" else 80)
        host = url.host.lower().rstrip(".")
        if proxy is None or any(entry.covers(host, port) for entry in self.exempt):
            return None
        return proxy


class ProxiedTransport(httpx.BaseTransport):
    """Sends each request by the proxy of its host, or straight.

    A request that would take a proxy which cannot be used raises UnusableProxyError.
    """

    def __init__(
        self, verify: ssl.SSLContext | bool = True, limits: httpx.Limits | None = None
    ) -> None:
        self._proxies = Proxies.of(os.environ)
        self._verify = verify
        self._limits = limits or httpx.Limits()
        self._made: dict[str, httpx.HTTPTransport] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        proxy = self._proxies.of_url(request.url)
        if proxy is not None and proxy.problem:
            raise UnusableProxyError(
                f"no connection to {request.url.host}: {proxy.problem}; {_ELSE}", request=request
            )
        return self._transport(proxy.url if proxy is not None else "").handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._made.values():
            transport.close()

    def _transport(self, proxy: str) -> httpx.HTTPTransport:
        if proxy not in self._made:
            # Of the environment it takes SSL_CERT_FILE and SSL_CERT_DIR, and no proxy.
            self._made[proxy] = httpx.HTTPTransport(
                verify=self._verify, limits=self._limits, proxy=proxy or None
            )
        return self._made[proxy]


def _read(scheme: str, environment: Mapping[str, str]) -> Proxy | None:
    """Read the variable of a scheme; of both spellings the one in small letters counts."""
    names = [f"{scheme}_proxy", f"{scheme}_proxy".upper()]
    if scheme == "http" and "REQUEST_METHOD" in environment:
        names.pop()  # of a CGI program, a header of the request sets it
    for name in names:
        value = environment.get(name, "").strip()
        if value:
            url = value if "://" in value else f"http://{value}"
            problem = _problem(url)
            said = f"{name} names the proxy {bare_url(url)}, which cannot be used: {problem}"
            return Proxy(variable=name, url=url, problem=said if problem else "")
    return None


def _problem(url: str) -> str:
    """Say why a proxy cannot be used; "" if it can."""
    try:
        parts = urlsplit(url)
        scheme, host, _port = parts.scheme.lower(), parts.hostname, parts.port
        httpx.Proxy(url)
    except (ValueError, httpx.InvalidURL) as error:
        unknown = "Unknown scheme" in str(error)
        return "it is neither HTTP nor SOCKS 5" if unknown else "it is no address"
    if not host:
        return "it is no address"
    if scheme in _SOCKS and find_spec("socksio") is None:
        return "SOCKS needs the Python package socksio, which is not installed beside Swathmill"
    return ""


def _exemption(word: str) -> Exemption | None:
    """Read an entry of NO_PROXY; None if it means nothing."""
    word = word.partition("://")[2].rstrip("/") if "://" in word else word
    if word == "*":
        return Exemption(host="*")
    port = None
    if (match := _BRACKETED.fullmatch(word) or _WITH_PORT.fullmatch(word)) is not None:
        word, port = match["host"], int(match["port"]) if match["port"] else None
    try:
        return Exemption(host=str(ip_network(word, strict=False)), port=port)
    except ValueError:
        name = word.removeprefix("*").removeprefix(".").lower().rstrip(".")
        return Exemption(host=name, port=port) if _NAME.fullmatch(name) else None
