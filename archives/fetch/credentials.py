"""The Earthdata Login token, and the hosts that may receive it."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from pydantic import SecretStr

from archives.errors import SourcesSettingError

EARTHDATA_HOSTS = (
    "urs.earthdata.nasa.gov",
    "ladsweb.modaps.eosdis.nasa.gov",
    "data.lpdaac.earthdatacloud.nasa.gov",
    "data.laadsdaac.earthdatacloud.nasa.gov",
    "data.nsidc.earthdatacloud.nasa.gov",
    "archive.podaac.earthdata.nasa.gov",
    "obdaac-tea.earthdatacloud.nasa.gov",
    "oceandata.sci.gsfc.nasa.gov",
    "nrt3.modaps.eosdis.nasa.gov",
)
"""Earthdata Login itself, and the hosts of LAADS, LP DAAC, NSIDC, PO.DAAC, OB.DAAC and LANCE for
MODIS and VIIRS; on what each rests: docs/archives.md."""

_SENT = re.compile("[!-~]*")
_PORTS = {"https": 443, "http": 80}


class Credentials:
    """Gives the bearer token only to its own hosts.

    It is asked again for each address, also for redirects: the hosts they lead to (CloudFront, S3)
    accept a permission in the address, must not learn the token, and refuse a request with two
    permissions.
    """

    def __init__(self, token: SecretStr, hosts: Iterable[str] = EARTHDATA_HOSTS) -> None:
        """Remember the token and its hosts: names, with `:port` if it is not that of https.

        Raises SourcesSettingError for a token that cannot be sent: the HTTP client would show it.
        """
        self._token = SecretStr(token.get_secret_value().strip())
        if not _SENT.fullmatch(self._token.get_secret_value()):
            raise SourcesSettingError(
                "SWATHMILL_EARTHDATA_TOKEN has a space, a line break or a character beyond ASCII: "
                "copy the token again"
            )
        self._hosts = frozenset(host.strip().lower() for host in hosts if host.strip())

    def __repr__(self) -> str:
        return f"Credentials(token={'set' if self.given else 'none'}, hosts={sorted(self._hosts)})"

    @property
    def given(self) -> bool:
        """True if a token is set."""
        return bool(self._token.get_secret_value())

    def headers(self, url: str) -> Mapping[str, str]:
        """Return the headers that permit a request to this address: Authorization, or none."""
        if not self.given or not self._own(url):
            return {}
        return {"Authorization": f"Bearer {self._token.get_secret_value()}"}

    def _own(self, url: str) -> bool:
        parts = urlsplit(url)
        try:
            host, port = (parts.hostname or "").lower(), parts.port
        except ValueError:
            return False
        # Without TLS the token is only sent to this machine.
        if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
            return False
        port = port or _PORTS[parts.scheme]
        return f"{host}:{port}" in self._hosts or (port == _PORTS["https"] and host in self._hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
