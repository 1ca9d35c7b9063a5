"""Granules in the bucket of their archive: keys by the archive's endpoint, else over HTTPS.

The dialogue is the one that programs of earthaccess and Cumulus' API describe: the endpoint takes
the token or sends to the sign-in, which comes back with a code for a cookie, and answers with JSON.
"""

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest

from archives.errors import LicenceNotAcceptedError
from archives.fetch import direct
from archives.fetch.direct import DirectReader, direct_link, with_direct_link
from archives.fetch.http import Manners
from archives.fetch.limits import LocalLimits
from archives.kinds.cmr import CmrArchive
from archives.model import GranuleRecord
from modis.collection import Collection
from tests.archives.catalogues import (
    QUICK,
    TOKEN,
    Cmr,
    Json,
    credentials,
    downloader,
    minutes,
    swath_name,
    umm,
    umm_collection,
    web,
)
from tests.archives.cmr_searches import DAY
from tests.archives.servers import (
    Act,
    FileServer,
    Request,
    Served,
    body,
    file_server,
    granule,
    redirect,
    status,
)

pytestmark = pytest.mark.integration
REGION = "us-west-2"
SECRETS = ("ASIAKEYID", "the-secret-of-the-key", "the-session-token", TOKEN)
DATA = [granule(40_000), granule(40_000, first=7)]
NAMES = [swath_name(start) for start in minutes(2)]
EULA = b'{"error": "EULA Acceptance Failure", "resolution_url": "https://urs.example/accept"}'


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and refusals of other tests are not known."""
    monkeypatch.setattr(direct, "_KEPT", direct._Kept())


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as running:
        yield running


def keys(lasting: timedelta = timedelta(hours=1)) -> bytes:
    key, secret, token, _ = SECRETS
    said = {"accessKeyId": key, "secretAccessKey": secret, "sessionToken": token}
    # As Cumulus' API spells it: with a space, and no zone.
    until = datetime.now(UTC) + lasting
    return json.dumps({**said, "expiration": f"{until:%Y-%m-%d %H:%M:%S}"}).encode()


def collection(keys_at: str, region: str = REGION) -> Json:
    made = umm_collection("MYD04_L2", "6.1", "LAADS", "2002-07-04T00:00:00.000Z")
    made["umm"]["DirectDistributionInformation"] = {
        "Region": region,
        "S3BucketAndObjectPrefixNames": ["a-bucket/MYD04_L2"],
        "S3CredentialsAPIEndpoint": keys_at,
    }
    return made


def archive(
    server: FileServer, bucket: str, *, region: str = REGION, s3: str = "http://127.0.0.1:9"
) -> CmrArchive:
    """A CMR of two granules, in the bucket and on the server, whose keys the server gives."""
    its = collection(f"{server.url}/s3credentials", region)
    items = []
    for start, name, data in zip(minutes(2), NAMES, DATA, strict=True):
        item = umm(name, start, url=f"{server.url}/data/{name}", data=data)
        item["meta"]["collection-concept-id"] = its["meta"]["concept-id"]
        item["umm"]["RelatedUrls"][0]["URL"] = f"s3://{bucket}/MYD04 L2/{name}"
        items.append(item)
        server.files[f"/data/{name}"] = Served(data=data)
    own = credentials(server)
    manners = Manners(
        credentials=own,
        limits=LocalLimits(rate=10_000.0, connections=1, patience=1.0),
        timing=QUICK,
        context=None,
        sleep=lambda _: None,
    )
    return CmrArchive(
        web(own, server),
        downloader(own, server),
        url=Cmr(collections=[its], granules=items).mount(server),
        direct=DirectReader(REGION, downloader(own, server), manners, service=s3),
    )


def records(of: CmrArchive) -> list[GranuleRecord]:
    return list(of.search("MYD04_L2", Collection("61"), DAY, DAY))


def over_https(server: FileServer) -> list[str]:
    return [path for path in server.paths() if path.startswith("/data/")]


def bucket_of_moto(port: int, name: str) -> str:
    """Fill a bucket of the S3 server, which takes any keys; return the server's address."""
    address = f"http://127.0.0.1:{port}"
    httpx.put(f"{address}/{name}").raise_for_status()
    for each, data in zip(NAMES, DATA, strict=True):
        httpx.put(f"{address}/{name}/MYD04%20L2/{each}", content=data).raise_for_status()
    return address


def by_cookie(request: Request) -> None:
    """The keys for who comes with the cookie of the sign-in; to the sign-in with all others."""
    if "accessToken=given" in request.headers.get("Cookie", ""):
        request.answer(200, keys())
    else:
        redirect("/oauth/authorize?client_id=x&redirect_uri=here")(request)


def sign_in(request: Request) -> None:
    known = request.headers.get("Authorization") == f"Bearer {TOKEN}"
    (redirect("/redirect?code=1") if known else status(401))(request)


def test_granules_come_from_the_bucket_by_keys_of_the_endpoint(
    server: FileServer,
    s3_port: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="archives")
    s3 = bucket_of_moto(s3_port, "an-archive-direct")
    server.always["/s3credentials"] = by_cookie
    server.always["/oauth/authorize"] = sign_in
    server.always["/redirect"] = lambda request: request.answer(
        302, Location="/s3credentials", Set_Cookie="accessToken=given"
    )
    of = archive(server, "an-archive-direct", s3=s3)
    listed = records(of)
    for record, data in zip(listed, DATA, strict=True):
        # The record is of no secret, and others read it as an address over HTTPS.
        assert record.url.startswith(f"{server.url}/data/{record.name}#s3=an-archive-direct")
        assert of.fetch(record, tmp_path / record.name).path.read_bytes() == data
        parts = of.in_parts(record)
        assert parts.read([(10, 20), (39_000, 40_000)]) == [data[10:20], data[39_000:]]
        assert (parts.size(), bool(parts.edition)) == (len(data), True)
    assert over_https(server) == []
    assert server.paths().count("/oauth/authorize") == 1
    assert not any(secret in f"{caplog.text}{listed}{vars(of)}" for secret in SECRETS)
    away = CmrArchive(web(credentials(server), server), downloader(credentials(server), server))
    assert away.fetch(listed[0], tmp_path / "away").path.read_bytes() == DATA[0]
    assert over_https(server) == [f"/data/{NAMES[0]}"]


def test_keys_are_asked_for_again_before_they_end(
    server: FileServer, s3_port: int, tmp_path: Path
) -> None:
    s3 = bucket_of_moto(s3_port, "an-archive-anew")
    server.always["/s3credentials"] = body(keys(timedelta(minutes=9)))
    of = archive(server, "an-archive-anew", s3=s3)
    for record in records(of):
        of.fetch(record, tmp_path / record.name)
    assert server.paths().count("/s3credentials") == 2
    assert over_https(server) == []


def test_what_the_endpoint_refuses_comes_over_https_and_is_told(
    server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refusals: dict[str, Act] = {
        "the token is missing, expired": status(401),
        "licence to be accepted first: sign in and accept it at https://urs.example/accept": status(
            403, EULA
        ),
        "application to be approved first": redirect("/approve_app?client_id=x"),
        "sends us to sign in": body(b"<!DOCTYPE html><html>sign in</html>"),
        "without keys that can be read": body(keys().replace(b"sessionToken", b"another")),
        "keys that can be read (RecursionError)": body(b"[" * 60_000),
        "answered 500": status(500),
    }
    for number, (said, refusal) in enumerate(refusals.items()):
        of = archive(server, f"an-archive-refused-{number}")
        record = records(of)[0]
        caplog.clear()
        server.always["/s3credentials"] = refusal
        to = tmp_path / "granule"
        assert of.fetch(record, to).path.read_bytes() == DATA[0]
        assert of.in_parts(record).read([(0, 9)]) == [DATA[0][:9]]
        # Told once: for a while the endpoint is not asked for each granule.
        assert caplog.text.count(said) == 1
        assert not any(secret in caplog.text for secret in SECRETS)
    of = archive(server, "an-archive-refused")
    server.always["/s3credentials"] = status(403, EULA)
    server.always[f"/data/{record.name}"] = status(403)
    with pytest.raises(LicenceNotAcceptedError, match="accept"):
        of.fetch(records(of)[0], tmp_path / "none")


def test_a_bucket_that_refuses_is_not_asked_for_each_granule(
    server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As S3 answers outside the region: whoever runs there is told, once."""
    server.always["/s3credentials"] = body(keys())
    denied = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
    with file_server() as s3:
        for name in NAMES:
            s3.always[f"/far-away/MYD04%20L2/{name}"] = status(403, denied)
        of = archive(server, "far-away", s3=s3.url)
        for record, data in zip(records(of), DATA, strict=True):
            assert of.fetch(record, tmp_path / record.name).path.read_bytes() == data
            assert of.in_parts(record).read([(0, 9)]) == [data[:9]]
        (asked,) = s3.asked
        said = parse_qs(urlsplit(asked.path).query)
        assert said["X-Amz-Credential"][0].endswith("/us-west-2/s3/aws4_request")
        assert said["X-Amz-Security-Token"] == [SECRETS[2]]
        assert "authorization" not in asked.headers
    assert not any(secret in caplog.text for secret in SECRETS)
    assert caplog.text.count("take #region=us-west-2 out of SWATHMILL_SOURCES") == 1


def test_only_the_own_region_and_hosts_of_the_token_count(server: FileServer) -> None:
    far = archive(server, "a-bucket", region="us-east-1")
    assert [direct_link(record.url) for record in records(far)] == [None, None]
    near = records(archive(server, "a-bucket"))[0]
    found = direct_link(near.url)
    assert found is not None
    assert (found.bucket, found.key) == ("a-bucket", f"MYD04 L2/{near.name}")
    for bucket in ("elsewhere.example#", "a@b", "elsewhere.example?", "a:b", "a"):
        named = with_direct_link("https://h/f", f"s3://{quote(bucket)}/key", "https://k")
        led = named.replace(quote(quote(bucket)), quote(bucket))
        assert direct_link(led) is None, "a signed address would lead to another host"
    with file_server() as other:
        reader = archive(other, "a-bucket")._direct
        assert reader is not None
        assert reader.link(near.url) is None  # the token is not for that host
