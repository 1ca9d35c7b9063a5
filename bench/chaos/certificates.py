"""Certificates of servers, signed by an authority that hosts are told to trust."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_PEM = serialization.Encoding.PEM
_LONG = dt.timedelta(days=30)  # a host's clock may be a day ahead


@dataclass(frozen=True, kw_only=True)
class Authority:
    """Signs certificates; its own lies in `file`."""

    folder: Path
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        signed = self._sign("rehearsal", self.key, dt.datetime.now(dt.UTC) + _LONG, constraints)
        self.file.write_bytes(signed)

    @property
    def file(self) -> Path:
        """Its own certificate, for those who trust it."""
        return self.folder / "authority.pem"

    def give(
        self, server: ssl.SSLContext, address: str, name: str, seconds: float | None = None
    ) -> None:
        """Give a server a new certificate for connections that are made from now on.

        `seconds` is for how long it is good.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        good = _LONG if seconds is None else dt.timedelta(seconds=seconds)
        names = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName(name)]
        )
        path = self.folder / f"{address}.pem"
        private = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path.write_bytes(self._sign(name, key, dt.datetime.now(dt.UTC) + good, names) + private)
        server.load_cert_chain(path)

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        until: dt.datetime,
        extension: x509.ExtensionType,
    ) -> bytes:
        made = (
            x509.CertificateBuilder()
            .subject_name(_called(name))
            .issuer_name(_called("rehearsal"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(dt.datetime.now(dt.UTC) - _LONG)
            .not_valid_after(until)
            .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        )
        return made.sign(self.key, hashes.SHA256()).public_bytes(_PEM)


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
