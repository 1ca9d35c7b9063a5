"""A client of the portal's HTTP API, for the commands about requests."""

import hashlib
import io
import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import JsonValue, TypeAdapter, ValidationError

from archives.fetch.proxies import ProxiedTransport
from reprojection.files import AnyPath, as_paths
from swathmill.answers import (
    PackageVersion,
    Problem,
    RequestStatus,
    SharedPackage,
    SharedRaster,
    SupportsGeo,
    Upload,
)
from swathmill.errors import ApiError, BrokenOffError, RefusedError
from swathmill.job import Job
from tasks.answers.answer import Answer
from tasks.answers.polygons import PolygonsAnswer
from tasks.answers.requests import FailureAnswer, SpendingAnswer
from tasks.answers.results import GapAnswer, ResultAnswer
from tasks.errors import BlobMissingError, CorruptBlobError, RequestRefusedError, StoreError
from tasks.request.document import Request, parse_request
from tasks.request.request_file import load_request
from tasks.storage.blobs import split_blob
from tasks.storage.file_blobs import FileBlobs

TIMEOUT_SECONDS = 60.0
PUSH_SECONDS = 420.0  # of an upload, whose Python dependencies are resolved meanwhile
PAGE = 1000  # results or failures of one answer
COPY_SECONDS = 1800.0  # of one call that copies results, which ends after the file in hand
BUSY_SECONDS = 5.0  # between two tries while others copy
_BUSY_TRIES = 24
RASTER_SECONDS = 1800.0  # of rasters, which are fetched, read and rewritten meanwhile
CHUNK_BYTES = 1 << 20
POLYGON_SECONDS = 180.0  # of polygons, which are read and computed meanwhile
KEPT_SECONDS = 2.0  # of an idle connection: fewer than the portal keeps it
WAIT_SECONDS = 20.0  # for a change
AGAIN_SECONDS = 0.5  # between two tries of a portal that does not answer
UNREACHABLE_SECONDS = 120.0
_FETCH_AGAIN = "Fetch it again: swathmill results."


class _Copied(Answer):
    """What one call has copied, and where the next goes on."""

    copied: int
    left: int
    after: str


_T = TypeVar("_T")
_U = TypeVar("_U", SharedPackage, SharedRaster)
Preview = Mapping[str, JsonValue]
_Form = list[tuple[str, tuple[str | None, str | IO[bytes]]]]
_PREVIEW: TypeAdapter[Preview] = TypeAdapter(Mapping[str, JsonValue])
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_STATUS = TypeAdapter(RequestStatus)
_OBJECT = TypeAdapter(dict[str, Any])
_REQUESTS = TypeAdapter(list[RequestStatus])
_GAPS = TypeAdapter(list[GapAnswer])
_FAILURES = TypeAdapter(list[FailureAnswer])
_RESULTS = TypeAdapter(list[ResultAnswer])
_COPIED = TypeAdapter(_Copied)


@dataclass(frozen=True, kw_only=True)
class Client:
    """Call one portal's HTTP API, on behalf of whoever the token was given to.

    Several threads may use one client. It keeps its connections from call to call.

    Each call raises RefusedError when the portal refuses what was asked (4xx), naming field and
    remedy, and ApiError when the portal cannot be reached or fails.

    Attributes:
        url: The portal's address; SWATHMILL_PORTAL_URL, else http://127.0.0.1:8000, by default.
        token: What `swathmill sign-in NAME --token` prints; SWATHMILL_TOKEN by default.
        transport: How httpx sends requests; None, the default, is over the network.
        timeout: Seconds without an answer after which a call has failed, 60 by default.
        blobs: The portal's storage, if it is files of this machine: results are copied from there.
    """

    url: str = field(
        default_factory=lambda: os.environ.get("SWATHMILL_PORTAL_URL", "http://127.0.0.1:8000")
    )
    token: str = field(default_factory=lambda: os.environ.get("SWATHMILL_TOKEN", ""), repr=False)
    transport: httpx.BaseTransport | None = None
    timeout: float = TIMEOUT_SECONDS
    blobs: FileBlobs | None = None

    def submit(self, request: Request | Mapping[str, object] | AnyPath, *, key: str = "") -> Job:
        """Hand in a request; it has been accepted when this returns.

        Args:
            request: The request, its document, or the path of its document in YAML or JSON.
            key: Called again with the same non-empty key, it makes no second request.
        """
        if isinstance(request, str | os.PathLike):
            request = load_request(request)
        elif not isinstance(request, Request):
            request = parse_request(request)
        answer = self._send(
            "POST",
            "/api/requests",
            document=_document(request),
            headers={"Idempotency-Key": key} if key else {},
        )
        return Job(client=self, status=self._read(_STATUS, answer))

    def job(self, request_id: str) -> Job:
        """Return a request that was submitted before.

        Args:
            request_id: Its id.
        """
        return Job(client=self, status=self.status(request_id))

    def follow(self, request_id: str) -> Iterator[RequestStatus]:
        """Yield where a request stands, each time that has changed, until it has ended.

        A portal that does not answer is asked again for two minutes.

        Args:
            request_id: Its id.
        """
        last: RequestStatus | None = None
        for status in self.looks(request_id):
            if status is not last:
                yield status
            last = status

    def looks(self, request_id: str) -> Iterator[RequestStatus]:
        """Yield the same after each look of up to 20 s, changed or not, until it has ended.

        Args:
            request_id: Its id.
        """
        last: RequestStatus | None = None
        heard = time.monotonic()
        while last is None or not last.state.ended:
            try:
                last = self.status(request_id, unlike=last)
            except ApiError:
                if time.monotonic() - heard > UNREACHABLE_SECONDS:
                    raise
                time.sleep(AGAIN_SECONDS)
                continue
            heard = time.monotonic()
            yield last

    def preview(self, request: Request) -> Preview:
        """Ask what a request would take: granules, tasks, bytes, gaps. Nothing is kept.

        Args:
            request: The request.
        """
        answer = self._send(
            "POST", "/api/requests", document=_document(request), parameters={"dry_run": "true"}
        )
        return self._read(_PREVIEW, answer)

    def status(self, request_id: str, *, unlike: RequestStatus | None = None) -> RequestStatus:
        """Ask where a request stands.

        Args:
            request_id: Its id, as `submit` returned it.
            unlike: An earlier answer. The portal answers as soon as there is another, or after
                20 s; then this one is returned.
        """
        if unlike is None or not unlike.etag:
            answer = self._send("GET", _path(request_id))
        else:
            answer = self._send(
                "GET",
                _path(request_id),
                parameters={"wait": f"{WAIT_SECONDS:g}"},
                headers={"If-None-Match": unlike.etag},
            )
            if answer.status_code == HTTPStatus.NOT_MODIFIED:
                return unlike
        status = self._read(_STATUS, answer)
        return status.model_copy(update={"etag": answer.headers.get("etag", "")})

    def spending(self, request_id: str) -> SpendingAnswer:
        """Ask what was spent on a request so far: measured, and in money where there are prices.

        Args:
            request_id: Its id.
        """
        answer = self._send("GET", _path(request_id, "spending"))
        return self._read(TypeAdapter(SpendingAnswer), answer)

    def requests(self) -> list[RequestStatus]:
        """List the owner's requests, newest first."""
        return self._read(_REQUESTS, self._send("GET", "/api/requests"))

    def as_json(self, request_id: str = "") -> JsonValue:
        """Return all that the portal says of a request, as JSON types.

        Args:
            request_id: Its id; "", the default, asks for all of the owner's requests.
        """
        path = _path(request_id) if request_id else "/api/requests"
        return self._read(_JSON, self._send("GET", path))

    def operations(self) -> dict[str, Any]:
        """Return what the operators' page shows, as JSON types; the token is an operator's."""
        return self._read(_OBJECT, self._send("GET", "/api/operations"))

    def gaps(self, request_id: str) -> list[GapAnswer]:
        """List all that a request asked for and cannot get.

        Args:
            request_id: Its id.
        """
        return list(self._pages(_GAPS, _path(request_id, "gaps")))

    def failures(self, request_id: str) -> list[FailureAnswer]:
        """List all of a request's tasks that failed for good.

        Args:
            request_id: Its id.
        """
        return list(self._pages(_FAILURES, _path(request_id, "failures")))

    def results(self, request_id: str) -> list[ResultAnswer]:
        """List the files of a request that are finished.

        Args:
            request_id: Its id.
        """
        return list(self._pages(_RESULTS, _path(request_id, "results")))

    def polygons(
        self,
        request_id: str,
        polygons: Mapping[str, object] | SupportsGeo | AnyPath,
        *,
        layers: Sequence[str] = (),
        since: str = "",
        until: str = "",
    ) -> PolygonsAnswer:
        """Compute mean, spread, valid share and count of layers within polygons, by date.

        Args:
            request_id: Its id.
            polygons: The path of a file (GeoJSON, KML, GeoPackage, zipped shapefile, CSV of sites),
                GeoJSON as a mapping, or what has `__geo_interface__`, as a GeoDataFrame has;
                polygons and points in degrees.
            layers: Names of layers, such as Lai_1km; all by default.
            since: Only dates from this one on; "", the default, has no first one.
            until: Only dates up to this one; "", the default, has no last one.

        Raises:
            OSError: the file cannot be read.
        """
        if isinstance(polygons, str | os.PathLike):
            content = Path(polygons).read_bytes()
        else:
            given = polygons if isinstance(polygons, Mapping) else polygons.__geo_interface__
            content = json.dumps(given).encode()
        answer = self._send(
            "POST",
            _path(request_id, "polygons"),
            parameters={"layer": [*layers], "start": since, "end": until},
            upload=io.BytesIO(content),
            seconds=POLYGON_SECONDS,
        )
        return self._read(TypeAdapter(PolygonsAnswer), answer)

    def copy_results(
        self,
        request_id: str,
        to: str,
        *,
        access_key: str = "",
        secret_key: str = "",
        session_token: str = "",
        region: str = "",
        endpoint: str = "",
        progress: Callable[[int, int], None] = lambda _copied, _left: None,
    ) -> int:
        """Have the portal copy all finished results to your own storage; return how many.

        Args:
            request_id: Its id.
            to: SAS URL of an Azure container that may create and write, or `s3://BUCKET/FOLDER`.
            access_key: S3: id of the access key.
            secret_key: S3: its secret.
            session_token: S3: of temporary keys.
            region: S3: region; "", the default, means us-east-1.
            endpoint: S3: address of a store that is not Amazon's.
            progress: Called with the numbers of files that are copied and left.

        Raises:
            RefusedError: the storage or its host is refused, or the storage takes a file no more.
        """
        given = {
            "to": to,
            "access_key": access_key,
            "secret_key": secret_key,
            "session_token": session_token,
            "region": region,
            "endpoint": endpoint,
        }
        order = {name: value for name, value in given.items() if value}
        copied = 0
        while True:
            answer = self._read(_COPIED, self._copy_some(request_id, json.dumps(order)))
            copied += answer.copied
            progress(copied, answer.left)
            if not answer.left:
                return copied
            order["after"] = answer.after

    def _copy_some(self, request_id: str, order: str) -> httpx.Response:
        """Have the portal copy for a while; wait for a turn where others copy."""
        for turn in range(_BUSY_TRIES):
            if turn:
                time.sleep(BUSY_SECONDS)
            try:
                answer = self._http.post(
                    _path(request_id, "copies"),
                    content=order,
                    headers={"Content-Type": "application/json"},
                    timeout=max(self.timeout, COPY_SECONDS),
                )
            except httpx.TransportError as error:
                raise self._unreachable(error) from error
            if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
                break
        _raise_for(answer)
        return answer

    def cancel(self, request_id: str) -> RequestStatus:
        """Stop a request; its finished results stay, and what other requests want goes on.

        Args:
            request_id: Its id.
        """
        return self.order(request_id, "cancel")

    def order(self, request_id: str, what: str) -> RequestStatus:
        """Have a request cancelled, paused, resumed or confirmed; return where it stands then.

        Args:
            request_id: Its id.
            what: "cancel", "pause", "resume" or "confirm".
        """
        return self._read(_STATUS, self._send("POST", _path(request_id, what)))

    def retry(self, request_id: str, *, category: str = "", task: str = "") -> RequestStatus:
        """Try again what failed; return the request that does it.

        Args:
            request_id: The id of the request whose tasks failed.
            category: Only failures of this category; "", the default, means of all.
            task: Only the task with this key; "", the default, means all.
        """
        answer = self._send(
            "POST",
            _path(request_id, "retry"),
            parameters={"category": category, "task": task},
        )
        return self._read(_STATUS, answer)

    def change(
        self,
        request_id: str,
        *,
        labels: Sequence[str] | None = None,
        group: str | None = None,
        standing: int | None = None,
    ) -> RequestStatus:
        """Change what is said of a request besides its document; return the request.

        Args:
            request_id: Its id.
            labels: Its labels; None, the default, leaves them as they are.
            group: The group whose members may read it; "" is nobody, None, the default, as it is.
            standing: Days after which it goes on with new data, at the earliest; 0 ends that, None,
                the default, leaves it as it is.
        """
        given = {
            "labels": None if labels is None else [*labels],
            "group": group,
            "standing": standing,
        }
        body = json.dumps({name: value for name, value in given.items() if value is not None})
        return self._read(_STATUS, self._send("PATCH", _path(request_id), document=body))

    def inputs(self, task: str, to: AnyPath, *, request: str = "") -> None:
        """Download what a run of a reduction was given, as a ZIP, whole or not at all.

        Args:
            task: The run's task key.
            to: The file.
            request: The request that the run is of; "", the default, means one of your newest.

        Raises:
            OSError: the file cannot be written.
        """
        name = quote(task, safe="")
        place = f"{_path(request, f'runs/{name}')}" if request else f"/api/tasks/{name}"
        with _whole(to) as draft:
            self._fetch(f"{place}/inputs.zip", draft, lambda _: None)

    def push_package(self, archive: AnyPath) -> SharedPackage:
        """Upload a package, as a version of one's own; a new package is private.

        Args:
            archive: A zip or a tar of the package's folder.
        """
        with Path(archive).open("rb") as upload:
            answer = self._send("POST", "/api/packages", upload=upload, seconds=PUSH_SECONDS)
        return self._read(TypeAdapter(SharedPackage), answer)

    def push_raster(
        self, files: AnyPath | Iterable[AnyPath], said: Mapping[str, str] | None = None
    ) -> SharedRaster:
        """Upload a raster, as a version of one's own; a new raster is private.

        Args:
            files: GeoTIFFs, or one netCDF-4 file; none where `said` has an address.
            said: Name, version, url, layers, classes, units, dates, period, as the API takes them.
        """
        with ExitStack() as opened:
            # A form without files is sent as one with files, too.
            form: _Form = [(name, (None, text)) for name, text in (said or {}).items()]
            for one in as_paths(files):
                form.append(("file", (one.name, opened.enter_context(one.open("rb")))))
            answer = self._send("POST", "/api/rasters", form=form, seconds=RASTER_SECONDS)
        return self._read(TypeAdapter(SharedRaster), answer)

    def uploads(self, kind: type[_U]) -> list[_U]:
        """List the uploads of a kind that one may use, without their versions.

        Args:
            kind: SharedPackage or SharedRaster.
        """
        found: TypeAdapter[list[_U]] = TypeAdapter(list[kind])  # type: ignore[valid-type]
        return self._read(found, self._send("GET", f"/api/{kind.place}"))

    def upload(self, kind: type[_U], reference: str) -> _U:
        """Find an upload with its versions, or with the one version that is named.

        Args:
            kind: SharedPackage or SharedRaster.
            reference: NAME or OWNER/NAME, each perhaps with @VERSION.
        """
        path = f"/api/{kind.place}/find"
        answer = self._send("GET", path, parameters={"reference": reference})
        return self._read(TypeAdapter(kind), answer)

    def open_link(self, kind: type[_U], link: str) -> _U:
        """Take up an upload that somebody shares by a link.

        Args:
            kind: SharedPackage or SharedRaster.
            link: The link.
        """
        answer = self._send("POST", f"/api/{kind.place}/open", parameters={"link": link})
        return self._read(TypeAdapter(kind), answer)

    def share(self, upload: _U, visibility: str, *, renew: bool = False) -> _U:
        """Say who sees one's package or raster.

        Args:
            upload: The package or the raster.
            visibility: "private", "link" or "everyone".
            renew: Whether a new link takes the place of the old one; False by default.
        """
        answer = self._send(
            "POST",
            f"/api/{upload.place}/{upload.id}/share",
            parameters={"visibility": visibility, "renew": str(renew).lower()},
        )
        return self._read(TypeAdapter(type(upload)), answer)

    def delete(self, upload: Upload, version: str = "") -> None:
        """Delete one's package or raster, or one version of it.

        Args:
            upload: The package or the raster.
            version: The version; "", the default, means all.
        """
        one = f"/versions/{quote(version, safe='')}" if version else ""
        self._send("DELETE", f"/api/{upload.place}/{upload.id}{one}")

    def deprecate(self, package: SharedPackage, version: str, why: str) -> SharedPackage:
        """Advise against a version of one's package.

        Args:
            package: The package.
            version: The version.
            why: The reason; "" takes it back.
        """
        path = f"/api/packages/{package.id}/versions/{quote(version, safe='')}/deprecate"
        answer = self._send("POST", path, parameters={"why": why})
        return self._read(TypeAdapter(SharedPackage), answer)

    def download_package(self, version: PackageVersion, to: AnyPath) -> None:
        """Download the archive of a version, a tar, whole or not at all.

        Args:
            version: A version of a package.
            to: The file.

        Raises:
            ApiError: it arrived damaged, or the portal cannot be reached.
            OSError: the file cannot be written.
        """
        with _whole(to) as draft:
            if self._fetch(version.archive_url, draft, lambda _: None) != version.digest:
                raise ApiError("The package arrived damaged.", "Fetch it again.")

    def download(
        self,
        result: ResultAnswer,
        folder: AnyPath,
        *,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Path:
        """Download a result into a folder, under its own name, whole or not at all.

        A file that is there already with the right checksum is not fetched again.

        Args:
            result: One of `results`.
            folder: The folder, which is made where it is absent.
            progress: Called with the number of bytes of each chunk as it comes.

        Returns:
            The file.

        Raises:
            ApiError: the file arrived damaged, or the portal cannot be reached.
            OSError: the file cannot be written.
        """
        target = _inside(Path(folder), result.name)
        if target.is_file() and _sha256(target) == result.sha256:
            progress(result.size)
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with _whole(target) as draft:
            if self._copied(result, draft):
                progress(result.size)
            else:
                self._fetch_whole(result, draft, progress)
        return target

    def _pages(self, kind: TypeAdapter[list[_T]], path: str) -> Iterator[_T]:
        """Yield a list that the portal gives in pages: no answer holds up others for long."""
        parameters = {"limit": f"{PAGE}"}
        while parameters:
            answer = self._send("GET", path, parameters=parameters)
            yield from self._read(kind, answer)
            following = answer.links.get("next", {}).get("url", "")
            parameters = dict(httpx.URL(following).params)

    def _read(self, kind: TypeAdapter[_T], answer: httpx.Response) -> _T:
        try:
            return kind.validate_json(answer.content)
        except ValidationError as error:
            raise ApiError(
                f"The server at {self.url} is not a portal of this version of Swathmill.",
                "Name the portal's address with SWATHMILL_PORTAL_URL.",
            ) from error

    def _copied(self, result: ResultAnswer, to: Path) -> bool:
        """Copy a result from storage; where that fails, the portal has the reason."""
        if self.blobs is None or not result.blob:
            return False
        try:
            self.blobs.copy_file(*split_blob(result.blob), to, result.sha256)
        except (BlobMissingError, CorruptBlobError, StoreError):
            return False
        return True

    def _fetch_whole(self, result: ResultAnswer, to: Path, progress: Callable[[int], None]) -> None:
        try:
            digest = self._fetch(result.url, to, progress)
        except BrokenOffError:  # by the network, or by the portal, which now tells the reason
            digest = self._fetch(result.url, to, progress)
        if digest != result.sha256:
            raise ApiError(
                f"{result.name} arrived damaged: its checksum differs from the announced one.",
                _FETCH_AGAIN,
            )

    def _fetch(self, url: str, to: Path, progress: Callable[[int], None]) -> str:
        """Write the content of an address into a file; return its SHA-256."""
        digest = hashlib.sha256()
        with to.open("wb") as out:
            for chunk in self._stream(url):
                digest.update(chunk)
                out.write(chunk)
                progress(len(chunk))
        return digest.hexdigest()

    def _send(
        self,
        method: str,
        path: str,
        *,
        document: str | None = None,
        parameters: Mapping[str, str | list[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        upload: IO[bytes] | None = None,
        form: _Form | None = None,
        seconds: float = 0.0,
    ) -> httpx.Response:
        """Send a call with a document, an upload or a form; `seconds` raises the time limit."""
        try:
            answer = self._http.request(
                method,
                path,
                params=parameters,
                content=document or upload,
                files=form,
                headers={
                    **({"Content-Type": "application/json"} if document else {}),
                    **(headers or {}),
                },
                timeout=max(self.timeout, seconds),
            )
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise self._unreachable(error) from error
        _raise_for(answer)
        return answer

    def _stream(self, url: str) -> Iterator[bytes]:
        try:
            with self._http.stream("GET", url) as answer:
                if answer.next_request is not None:  # the file is in storage
                    yield from self._stream_storage(answer.next_request.url)
                    return
                yield from _chunks(answer)
        except httpx.RemoteProtocolError as error:
            raise BrokenOffError(f"The download broke off ({error}).", _FETCH_AGAIN) from error
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _stream_storage(self, url: httpx.URL) -> Iterator[bytes]:
        """Yield a file from its signed link; storage gets no token of the portal."""
        try:
            with self._storage.stream("GET", url, follow_redirects=True) as answer:
                yield from _chunks(answer)
        except httpx.RemoteProtocolError:
            raise
        except httpx.TransportError as error:
            raise ApiError(
                f"The storage at {url.host} does not answer ({error}).", _FETCH_AGAIN
            ) from error

    @cached_property
    def _http(self) -> httpx.Client:
        """Connections to the portal, which are closed when this client is no longer used."""
        try:
            made = self._made()
        except httpx.InvalidURL as error:
            raise self._unreachable(error) from error
        weakref.finalize(self, made.close)
        return made

    @cached_property
    def _storage(self) -> httpx.Client:
        """Connections to storage, whose certificates are always verified."""
        limits = httpx.Limits(keepalive_expiry=KEPT_SECONDS)
        local = httpx.HTTPTransport(limits=limits)  # storage on this machine needs no proxy
        made = httpx.Client(
            transport=self.transport or ProxiedTransport(limits=limits),
            timeout=self.timeout,
            mounts={} if self.transport else {"all://127.0.0.1": local},
        )
        weakref.finalize(self, made.close)
        return made

    def _made(self) -> httpx.Client:
        # Nothing but this address is asked; reading all certificates takes time.
        verify = not self.url.startswith("http://")
        limits = httpx.Limits(keepalive_expiry=KEPT_SECONDS)
        # The portal of a stack is on this machine: a proxy of the environment is not for it.
        local = self.url.startswith("http://127.0.0.1")
        transport = None if local else ProxiedTransport(verify, limits)
        return httpx.Client(
            base_url=self.url,
            transport=self.transport or transport,
            timeout=self.timeout,
            limits=limits,
            verify=verify,
            trust_env=False,
            headers={
                "Authorization": f"Bearer {self.token}",
                "User-Agent": f"swathmill/{version('swathmill')}",
            },
        )

    def _unreachable(self, error: Exception) -> ApiError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ApiError(
                f"The certificate of the portal at {self.url} is not accepted ({error}).",
                "Its operator renews one that has expired. For an authority of one's own, name its "
                "file in SSL_CERT_FILE.",
            )
        return ApiError(
            f"The portal at {self.url} does not answer ({error}).",
            "Start a stack with `swathmill up`, or name another portal with SWATHMILL_PORTAL_URL.",
        )


def _path(request_id: str, part: str = "") -> str:
    """Return the address of a request; no id can lead to anything else."""
    name = quote(request_id, safe="").replace(".", "%2E") or "%20"
    return f"/api/requests/{name}" + (f"/{part}" if part else "")


def _document(request: Request) -> str:
    return request.model_dump_json(exclude_defaults=True)


def _chunks(answer: httpx.Response) -> Iterator[bytes]:
    if answer.is_error:
        answer.read()
    _raise_for(answer)
    yield from answer.iter_bytes(CHUNK_BYTES)


def _raise_for(answer: httpx.Response) -> None:
    if not answer.is_error:
        return
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        problem = Problem(title=f"HTTP {answer.status_code}", detail=answer.text[:300])
    what = problem.detail or problem.title
    if answer.status_code < 500:
        raise RefusedError(
            field=problem.field,
            problem=what,
            remedy=problem.remedy,
            status=answer.status_code,
            also=tuple(RequestRefusedError(e.field, e.detail, e.remedy) for e in problem.also),
        )
    raise ApiError(f"The portal failed: {what}", problem.remedy or "See the portal's log.")


@contextmanager
def _whole(to: AnyPath) -> Iterator[Path]:
    """Yield a file beside `to` that takes its name when all of it is there, else is deleted."""
    whole = Path(to)
    draft = whole.with_name(f".{whole.name}.part")
    try:
        yield draft
        draft.replace(whole)
    finally:
        draft.unlink(missing_ok=True)


def _inside(folder: Path, name: str) -> Path:
    target = (folder / name).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise ApiError(
            f"The portal names a result {name!r}, which lies outside {folder}.",
            "It was not written. Report this.",
        )
    return target


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
