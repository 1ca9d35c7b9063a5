"""The hosts that a package may reach: those that it names and that the operator allows.

An operator may also name networks. The address of a host may be private only if it lies in one of
them: otherwise whoever answers for a name could lead a package to a service of this installation.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MOST_HOSTS = 32
HTTPS = 443
# The last label begins with a letter, so that no address is taken for a name (RFC 1123, 2.1; also
# not one in the forms of inet_aton(3), as 2130706433 and 0x7f.1).
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
ENDPOINT = rf"^(?:{_LABEL}\.)*[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])?(?::[1-9][0-9]{{0,4}})?$"
"""A host's name in lower case, and a port if it is not that of HTTPS."""
_ENDPOINT = re.compile(ENDPOINT)
_MOST_NAME = 253
_MOST_PORT = 65535
# Public by its number, and yet an address within Azure: it serves virtual machines.
_NEVER = (ipaddress.ip_network("168.63.129.16/32"),)
# NAT64 (RFC 6052): the last four bytes are an IPv4 address.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, order=True)
class Endpoint:
    """A host by its name, and a TCP port of it."""

    host: str
    port: int

    def __str__(self) -> str:
        return self.host if self.port == HTTPS else f"{self.host}:{self.port}"


def read_endpoint(text: str) -> Endpoint:
    """Read `HOST` or `HOST:PORT`; a dot at the end and upper case mean nothing.

    Raises:
        ValueError: it is none, an address among others; says so.
    """
    name, colon, port = text.lower().partition(":")
    host = name.removesuffix(".")
    plain = host + colon + port
    if not _ENDPOINT.fullmatch(plain) or len(host) > _MOST_NAME or int(port or HTTPS) > _MOST_PORT:
        raise ValueError(f"{text!r} is not a host's name, or HOST:PORT; addresses cannot be named")
    return Endpoint(host=host, port=int(port or HTTPS))


@dataclass(frozen=True)
class AllowedHosts:
    """What an operator allows: hosts, and networks in which their addresses may lie."""

    endpoints: frozenset[Endpoint] = frozenset()
    networks: tuple[Network, ...] = ()

    def refused(self, wanted: Iterable[str]) -> tuple[str, ...]:
        """Return those of the hosts that a package names which are not allowed."""
        return tuple(one for one in wanted if read_endpoint(one) not in self.endpoints)

    def permits(self, address: str) -> bool:
        """Tell whether a host may have this address."""
        found = _plain(ipaddress.ip_address(address))
        if any(found in network for network in self.networks):
            return True
        return (
            found.is_global
            and not found.is_multicast
            and not any(found in network for network in _NEVER)
        )


def read_allowed(text: str) -> AllowedHosts:
    """Read an operator's list: hosts and networks, separated by commas.

    Raises:
        ValueError: an entry is neither; names it.
    """
    endpoints, networks = [], []
    for entry in filter(None, (one.strip() for one in text.split(","))):
        if "/" in entry:
            networks.append(ipaddress.ip_network(entry))
        else:
            endpoints.append(read_endpoint(entry))
    return AllowedHosts(frozenset(endpoints), tuple(networks))


def not_allowed(package: str, refused: Iterable[str]) -> tuple[str, str]:
    """Say that a package names hosts which the operator does not allow, and what to do."""
    return (
        f"{package} names hosts that packages may not connect to here: {', '.join(refused)}.",
        "Leave them out of `network`, or ask the operator to allow them (SWATHMILL_NETWORK_HOSTS).",
    )


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    inner = address.ipv4_mapped or address.sixtofour
    return inner if inner is not None else address
