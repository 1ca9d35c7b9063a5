"""The Earthdata Login token, and which hosts may see it."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import SecretStr

EARTHDATA_HOSTS = (
    "urs.earthdata.nasa.gov",
    "ladsweb.modaps.eosdis.nasa.gov",
    "data.lpdaac.earthdatacloud.nasa.gov",
    "data.laadsdaac.earthdatacloud.nasa.gov",
    "data.nsidc.earthdatacloud.nasa.gov",
)
"""Earthdata Login itself, and the hosts of LAADS, LP DAAC and NSIDC for MODIS and VIIRS."""

_PORTS = {"https": 443, "http": 80}


class Credentials:
    """Gives the bearer token to its own hosts alone.

    Asked for each address anew, redirects too: what a host redirects to (CloudFront, S3) bears its
    permission in the address, must not learn the token, and refuses a request with two permissions.
    """

    def __init__(self, token: SecretStr, hosts: Iterable[str] = EARTHDATA_HOSTS) -> None:
        """`hosts` are names, with `:port` where it is not that of https."""
        self._token = token
        self._hosts = frozenset(host.strip().lower() for host in hosts if host.strip())

    def __repr__(self) -> str:
        return f"Credentials(token={'set' if self.given else 'none'}, hosts={sorted(self._hosts)})"

    @property
    def given(self) -> bool:
        """Whether there is a token at all."""
        return bool(self._token.get_secret_value())

    def headers(self, url: str) -> Mapping[str, str]:
        """What permits a request to this very address: Authorization, or nothing."""
        if not self.given or not self._own(url):
            return {}
        return {"Authorization": f"Bearer {self._token.get_secret_value()}"}

    def _own(self, url: str) -> bool:
        parts = urlsplit(url)
        try:
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        # In clear text the token goes nowhere but to this machine itself.
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
            return False
        port = port or _PORTS[parts.scheme]
        return f"{host}:{port}" in self._hosts or (port == _PORTS["https"] and host in self._hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
