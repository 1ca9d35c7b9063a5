"""Copy a request's results to storage of its owner: an Azure container by SAS URL, or S3.

What opens that storage comes with the call and is used in it alone: it is neither kept nor logged,
and no error repeats it. A call copies for some seconds; its answer says where the next goes on.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from portal.results.result_files import ResultFile, ResultReader
from portal.serving.documents import decode
from portal.serving.problems import BadCallError, PortalError
from tasks.answers.answer import Answer
from tasks.network_hosts import HTTPS, AllowedHosts, Endpoint, read_endpoint

SECONDS = 20.0  # that one call copies; a file that has begun is ended
_CHUNK = 4 * 2**20
# The public cloud's and the sovereign clouds' blobs; Amazon's S3.
_AZURE = (
    ".blob.core.windows.net",
    ".blob.core.usgovcloudapi.net",
    ".blob.core.chinacloudapi.cn",
)
_AMAZON = (".amazonaws.com",)
AMAZON = "https://s3.{region}.amazonaws.com"


class CopyFailedError(PortalError):
    """The owner's storage took no file."""

    status = HTTPStatus.BAD_GATEWAY


class CopyOrder(BaseModel):
    """Where to copy to, and what opens it. `after` is the last path that is there already."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    to: SecretStr = Field(
        description="SAS URL of an Azure container, which may create and write: "
        "`https://ACCOUNT.blob.core.windows.net/CONTAINER?sv=...`, or with a folder after the "
        "container; or `s3://BUCKET/FOLDER`."
    )
    access_key: SecretStr = Field(SecretStr(""), description="S3: id of the access key.")
    secret_key: SecretStr = Field(SecretStr(""), description="S3: its secret.")
    session_token: SecretStr = Field(SecretStr(""), description="S3: of temporary keys.")
    region: str = Field("us-east-1", pattern="^[a-z0-9-]{1,40}$", description="S3: region.")
    endpoint: str = Field(
        "", max_length=300, description="S3: address of a store that is not Amazon's."
    )
    after: str = Field("", max_length=2000, description="`after` of the last answer.")


class CopyAnswer(Answer):
    """What a call has copied. With `left`, call again with `after`."""

    copied: int
    bytes: int
    left: int
    after: str


def read_order(body: bytes) -> CopyOrder:
    """Read the body of a call. Raises BadCallError, which does not repeat it."""
    try:
        return CopyOrder.model_validate(decode(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadCallError(
            f"The order to copy cannot be used: {field or 'it'}: {first['msg']}.",
            "Correct it (docs/http-api.md).",
            field=field,
        ) from None


class Sink(Protocol):
    """Storage that files are put into."""

    def put(self, path: str, size: int, sha256: str, parts: Iterator[bytes]) -> None:
        """Put a file, whole or not at all; an earlier one of this path is replaced."""
        ...


def open_sink(order: CopyOrder, allowed: AllowedHosts) -> Sink:
    """Return the storage that an order names. Raises BadCallError for what cannot be it."""
    address = urlsplit(order.to.get_secret_value())
    if address.scheme == "s3":
        return _open_s3(order, allowed)
    if address.scheme in ("https", "http"):
        return _open_azure(order, allowed)
    raise BadCallError(
        "Results can be copied to a SAS URL of Azure (https://...) or to s3://BUCKET/FOLDER.",
        "Correct `to`.",
        field="to",
    )


def copy(
    reader: ResultReader,
    files: Sequence[ResultFile],
    sink: Sink,
    *,
    after: str,
    goes_on: Callable[[], bool],
) -> CopyAnswer:
    """Copy results in the order of their paths, from after `after` on, while `goes_on` says so.

    Each file is checked against its SHA-256 while it is read; a damaged one is not put.

    Raises:
        CopyFailedError: the storage does not take a file.
        GoneError: a result is lost.
    """
    waiting = sorted((one for one in files if one.path > after), key=lambda one: one.path)
    copied = sent = 0
    for one in waiting:
        if copied and not goes_on():
            break
        now = reader.current(one)
        with _named(one.path):
            sink.put(one.path, now.file.size, now.file.sha256, reader.whole(now))
        copied, sent, after = copied + 1, sent + now.file.size, one.path
    return CopyAnswer(copied=copied, bytes=sent, left=len(waiting) - copied, after=after)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Say which file was refused and the storage's code, never its words: they may repeat keys."""
    try:
        yield
    except PortalError:
        raise
    except Exception as error:
        if not _of_storage(error):
            raise
        code = getattr(error, "error_code", "") or type(error).__name__
        raise CopyFailedError(
            f"The storage did not take {path}: {getattr(code, 'value', code)}.",
            "Look whether the link or keys are still good and may create and write there; then "
            "copy again.",
        ) from None


def _of_storage(error: Exception) -> bool:
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return bool(modules & {"azure", "botocore", "aiobotocore", "aiohttp"}) or isinstance(
        error, OSError
    )


# --- which hosts ---


def check_host(
    scheme: str, host: str, port: int | None, known: Sequence[str], allowed: AllowedHosts
) -> None:
    """Refuse a host that is neither one of the clouds' nor allowed, or lies in a private network.

    Otherwise whoever may copy could have the portal call services of this installation.

    Raises:
        BadCallError: it is refused.
    """
    try:
        named = read_endpoint(f"{host}:{port}" if port else host)
    except ValueError:
        raise _refused(host, "is not a host's name") from None
    own = Endpoint(named.host, port or (HTTPS if scheme == "https" else 80))
    listed = own in allowed.endpoints
    if not listed and not (scheme == "https" and own.port == HTTPS and host.endswith(tuple(known))):
        raise _refused(host, "is not one to which results can be copied here")
    try:
        found = socket.getaddrinfo(named.host, own.port, type=socket.SOCK_STREAM)
    except OSError:
        raise _refused(host, "cannot be found") from None
    for address in {str(one[4][0]).partition("%")[0] for one in found}:
        if not allowed.permits(str(ipaddress.ip_address(address))):
            raise _refused(host, "has an address in a private network")


def _refused(host: str, why: str) -> BadCallError:
    return BadCallError(
        f"The host {host[:100]!r} {why}.",
        "Name storage of Azure or Amazon, or ask the operator to allow it (SWATHMILL_COPY_HOSTS).",
        field="to",
    )


# --- Azure ---


def _netloc(host: str, port: int | None) -> str:
    """Write a checked host and port as an address has them."""
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _open_azure(order: CopyOrder, allowed: AllowedHosts) -> Sink:
    address = urlsplit(order.to.get_secret_value())
    host = (address.hostname or "").lower()
    try:
        port = address.port
    except ValueError:
        raise _refused(host, "has a port that is not a number") from None
    check_host(address.scheme, host, port, _AZURE, allowed)
    parts = [unquote(part) for part in address.path.split("/") if part]
    # An emulator has the account in the path.
    account = [] if host.endswith(_AZURE) else parts[:1]
    container, folder = parts[len(account) :][:1], parts[len(account) + 1 :]
    if not container or "sig" not in parse_qs(address.query) or address.username:
        raise BadCallError(
            "The address of the container has no container, or no signature (sig=...).",
            "Make a shared access signature that may create and write, and give its whole URL.",
            field="to",
        )
    # Only where it is used: a portal over files does without the SDK.
    from azure.storage.blob import ContainerClient

    url = "/".join([f"{address.scheme}://{_netloc(host, port)}", *account])
    client = ContainerClient(
        url,
        container[0],
        credential=address.query,
        permit_redirects=False,
        connection_timeout=10,
        read_timeout=60,
        retry_total=3,
        max_single_put_size=_CHUNK,
        max_block_size=_CHUNK,
    )

    @dataclass(frozen=True)
    class Container:
        def put(self, path: str, size: int, sha256: str, parts: Iterator[bytes]) -> None:
            client.upload_blob(
                "/".join([*folder, path]),
                parts,
                length=size,
                overwrite=True,
                metadata={"sha256": sha256},
            )

    return Container()


# --- S3 ---


def _open_s3(order: CopyOrder, allowed: AllowedHosts) -> Sink:
    address = urlsplit(order.to.get_secret_value())
    key, secret = order.access_key.get_secret_value(), order.secret_key.get_secret_value()
    # Without keys the library would look for those of this process.
    if not address.hostname or not key or not secret:
        raise BadCallError(
            "A bucket of S3 needs its name, the id of an access key and its secret.",
            "Give `to` as s3://BUCKET/FOLDER, `access_key` and `secret_key`.",
            field="to" if not address.hostname else "access_key",
        )
    own = urlsplit(order.endpoint or AMAZON.format(region=order.region))
    host = (own.hostname or "").lower()
    try:
        port = own.port
    except ValueError:
        raise _refused(host, "has a port that is not a number") from None
    if own.username or own.password or "\\" in own.netloc:
        raise _refused(host, "has more than a host and a port")
    check_host(own.scheme, host, port, _AMAZON, allowed)
    try:
        from s3fs import S3FileSystem
    except ImportError:
        raise BadCallError(
            "This portal cannot speak to S3.", "Ask the operator to install swathmill[s3]."
        ) from None
    # A file system is usually kept for the next call: this one has keys in it.
    system = S3FileSystem(
        key=key,
        secret=secret,
        token=order.session_token.get_secret_value() or None,
        endpoint_url=f"{own.scheme}://{_netloc(host, port)}",
        client_kwargs={"region_name": order.region},
        config_kwargs={"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 3}},
        skip_instance_cache=True,
        use_listings_cache=False,
    )
    folder = address.path.strip("/")

    @dataclass(frozen=True)
    class Bucket:
        def put(self, path: str, size: int, sha256: str, parts: Iterator[bytes]) -> None:
            name = "/".join(filter(None, (address.netloc, folder, path)))
            file = system.open(
                name, "wb", block_size=max(2 * _CHUNK, size // 5000), autocommit=False,
                Metadata={"sha256": sha256},
            )  # fmt: skip
            try:
                for part in parts:
                    file.write(part)
                file.close()
                file.commit()
            except BaseException:
                file.discard()
                raise

    return Bucket()
