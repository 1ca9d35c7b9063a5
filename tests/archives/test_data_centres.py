"""Links as each data centre's records have them: the one over HTTPS is fetched, with the token.

The forms are those of docs/archives.md, "What was checked of each data centre"; the items are ours.
"""

from datetime import UTC, datetime
from urllib.parse import urlsplit

from pydantic import SecretStr

from archives.fetch.credentials import Credentials
from archives.formats.umm import record_of
from modis.collection import Collection
from tests.archives.catalogues import umm

START = datetime(2024, 1, 1, tzinfo=UTC)
LP, NSIDC = "lp-prod-protected", "nsidc-cumulus-prod-protected/MODIS"
LINKS = (
    ("data.lpdaac.earthdatacloud.nasa.gov", f"{LP}/MOD13A2.061/{{stem}}", "MOD13A2", "061"),
    ("data.laadsdaac.earthdatacloud.nasa.gov", "prod-lads/MOD03", "MOD03", "061"),
    ("data.nsidc.earthdatacloud.nasa.gov", f"{NSIDC}/MOD10A1F/61/2024/001", "MOD10A1F", "061"),
    ("nrt3.modaps.eosdis.nasa.gov", "api/v2/content/archives", "MOD11_L2", "061"),
    ("ladsweb.modaps.eosdis.nasa.gov", "archive/allData/6/MYD021KM/2019/051", "MYD021KM", "006"),
)


def test_the_link_over_https_is_fetched_and_gets_the_token() -> None:
    token = Credentials(SecretStr("t"))
    for host, folder, product, collection in LINKS:
        stem = f"{product}.A2024001.h18v04.{collection}.2024010000000"
        path = f"{folder.format(stem=stem)}/{stem}.hdf"
        item = umm(f"{stem}.hdf", START, url=f"https://{host}/{path}")
        links = item["umm"]["RelatedUrls"]
        direct = {"URL": f"s3://{path}", "Type": "GET DATA VIA DIRECT ACCESS"}
        keys = {
            "URL": f"https://{host}/s3credentials",
            "Type": "VIEW RELATED INFORMATION",
            "Description": "api endpoint to retrieve temporary credentials",
        }
        # The order of links is each centre's own.
        for order in ([direct, keys, *links], [*links, keys, direct]):
            item["umm"]["RelatedUrls"] = order
            record = record_of(item, product, Collection(collection), "cmr")
            assert record is not None
            assert record.url == f"https://{host}/{path}"
            assert token.headers(record.url) == {"Authorization": "Bearer t"}
        item["umm"]["RelatedUrls"] = [direct, keys]
        assert record_of(item, product, Collection(collection), "cmr") is None
        assert not token.headers(f"s3://{urlsplit(host).path}/{path}")
