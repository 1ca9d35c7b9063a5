"""Results by signed links straight from storage, and by the portal where storage cannot sign."""

import base64
import datetime as dt
import hashlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from azure.storage.blob import BlobClient, BlobServiceClient, UserDelegationKey

from swathmill.client import Client
from tasks.bag.runtime import Runtime
from tasks.service.connect import connect_storage
from tasks.storage.blobs import ARTIFACTS, Served
from tasks.storage.signed_links import LinkSigner
from tests.portal.scripted import (
    LivePortal,
    live_portal,
    put_result,
    settings,
)
from tests.portal.submissions import submitted

DATA = b"0123456789" * 100
LAYER = "MCD15A2.005/Lai_1km"


def test_memory_and_files_send_results_by_the_portal(runtime: Runtime) -> None:
    with live_portal(runtime, settings(result_link_minutes="5")) as portal:
        request = submitted(runtime)
        put_result(runtime, request, LAYER, "one.tif", DATA)
        with portal.client() as client:
            answer = client.get(f"/api/requests/{request}/results/{LAYER}/one.tif")
        assert (answer.status_code, answer.content) == (200, DATA)
        policy = answer.headers["Content-Security-Policy"]
        assert "connect-src 'self';" in policy


@pytest.fixture
def linked(azurite: str) -> Iterator[LivePortal]:
    """A portal over Azurite that signs links."""
    with live_portal(connect_storage(azurite), settings(result_link_minutes="5")) as portal:
        yield portal


@pytest.mark.integration
def test_a_result_is_read_straight_from_storage(linked: LivePortal) -> None:
    runtime = linked.runtime
    request = submitted(runtime)
    put_result(runtime, request, LAYER, "one é.tif", DATA)
    path = f"/api/requests/{request}/results/{LAYER}/one é.tif"
    with linked.client() as client:
        answer = client.get(path)
        assert answer.status_code == 307
        assert answer.headers["Cache-Control"] == "no-store"
        digest = hashlib.sha256(DATA).hexdigest()
        assert answer.headers["ETag"] == f'"{digest}"'
        again = client.get(path, headers={"If-None-Match": f'"{digest}"'})
        assert again.status_code == 304
        assert client.head(path).status_code == 307
    link = answer.headers["Location"]
    whole = httpx.get(link, trust_env=False)
    assert whole.content == DATA
    assert "one%20%C3%A9.tif" in whole.headers["Content-Disposition"]
    assert whole.headers["Content-Type"].startswith("image/tiff")
    part = httpx.get(link, headers={"Range": "bytes=3-5"}, trust_env=False)
    assert (part.status_code, part.content) == (206, b"345")
    with linked.guest() as nobody:
        assert nobody.get(path).status_code == 401


@pytest.mark.integration
def test_a_link_opens_one_blob_to_read_and_ends(azurite: str) -> None:
    blobs = connect_storage(azurite).blobs
    assert hasattr(blobs, "signed_link")
    for name in ("link/a", "link/b"):
        blobs.put_bytes(ARTIFACTS, name, DATA)
    served = Served(disposition="attachment", media_type="text/plain")
    link = blobs.signed_link(ARTIFACTS, "link/a", 60.0, served)
    assert httpx.get(link, trust_env=False).status_code == 200
    assert httpx.get(link.replace("link/a", "link/b"), trust_env=False).status_code == 403
    assert httpx.delete(link, trust_env=False).status_code == 403
    over = blobs.signed_link(ARTIFACTS, "link/a", -60.0, served)
    assert httpx.get(over, trust_env=False).status_code == 403


@pytest.mark.integration
def test_what_storage_has_lost_is_said_before_a_link_is_made(linked: LivePortal) -> None:
    runtime = linked.runtime
    request = submitted(runtime)
    key = put_result(runtime, request, LAYER, "gone.tif", DATA)
    runtime.blobs.delete(ARTIFACTS, f"{key}/claim/gone.tif")
    with linked.client() as client:
        answer = client.get(f"/api/requests/{request}/results/{LAYER}/gone.tif")
    assert answer.status_code == 410


@pytest.mark.integration
def test_the_command_follows_links_and_checks_what_it_reads(
    linked: LivePortal, tmp_path: Path
) -> None:
    request = submitted(linked.runtime)
    put_result(linked.runtime, request, LAYER, "one.tif", DATA)
    with linked.client() as known:
        token = known.headers["Authorization"].removeprefix("Bearer ")
    client = Client(url=linked.url, token=token)
    (found,) = client.results(request)
    assert client.download(found, tmp_path).read_bytes() == DATA


class Delegating:
    """An account that is reached by an identity: it gives keys to sign links with."""

    url = "https://mine.blob.core.windows.net/"
    account_name = "mine"

    def __init__(self) -> None:
        self.credential = SimpleNamespace(get_token=None)
        self.asked: list[tuple[dt.datetime, dt.datetime]] = []

    def get_user_delegation_key(
        self, key_start_time: dt.datetime, key_expiry_time: dt.datetime
    ) -> UserDelegationKey:
        self.asked.append((key_start_time, key_expiry_time))
        key = UserDelegationKey()  # type: ignore[no-untyped-call]
        key.signed_oid, key.signed_tid = "oid", "tid"
        key.signed_start, key.signed_expiry = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        key.signed_service, key.signed_version = "b", "2025-01-05"
        key.value = base64.b64encode(b"k" * 32).decode()
        return key


def test_an_identity_asks_for_a_key_to_sign_with_and_keeps_it_for_a_day() -> None:
    account = Delegating()
    signer = LinkSigner(cast(BlobServiceClient, account))
    blob = BlobClient(account.url, "artifacts", "key/claim/a b.tif")
    served = Served(disposition="attachment", media_type="image/tiff")
    for _ in range(3):
        link = urlsplit(signer.link(blob, 300.0, served))
    assert link.path == "/artifacts/key/claim/a%20b.tif"
    signed = parse_qs(link.query)
    assert (signed["skoid"], signed["sp"], signed["spr"]) == (["oid"], ["r"], ["https"])
    ((_, until),) = account.asked
    ends = dt.datetime.fromisoformat(signed["se"][0])
    assert ends < until < ends + dt.timedelta(days=7)  # the longest that Azure gives
    signer.link(blob, 2 * 86400.0, served)
    assert len(account.asked) == 2
    assert signer.origin == "https://mine.blob.core.windows.net"


def test_a_renewal_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Delegating()
    signer = LinkSigner(cast(BlobServiceClient, account))
    blob = BlobClient(account.url, "artifacts", "a")
    served = Served(disposition="attachment", media_type="image/tiff")
    signer.link(blob, 300.0, served)
    with monkeypatch.context() as away:
        away.setattr(account, "get_user_delegation_key", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            signer.link(blob, 2 * 86400.0, served)
    signer.link(blob, 2 * 86400.0, served)
    assert len(account.asked) == 2


def test_an_account_with_a_signature_for_a_key_signs_none() -> None:
    account = Delegating()
    account.credential = SimpleNamespace(signature="sv=...")
    signer = LinkSigner(cast(BlobServiceClient, account))
    served = Served(disposition="attachment", media_type="image/tiff")
    assert signer.link(BlobClient(account.url, "artifacts", "a"), 300.0, served) == ""
