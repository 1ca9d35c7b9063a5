"""Several sources as one: order, editions, failures, and where a granule is fetched."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pydantic import SecretStr

from archives.errors import (
    ArchiveError,
    ConnectionFailedError,
    DownloadFailedError,
    NotPublishedError,
    ServerBusyError,
    SourcesSettingError,
    TokenRefusedError,
)
from archives.fetch.credentials import Credentials
from archives.fetch.limits import LocalLimits
from archives.kinds.cmr import CmrArchive
from archives.kinds.folder import FolderArchive
from archives.kinds.ftp import FtpArchive
from archives.kinds.laads import LaadsArchive
from archives.kinds.pool import PoolArchive
from archives.kinds.stac import StacArchive
from archives.model import Fetched, GranuleRecord, Holding, Progress, newest_editions
from archives.registry import ChainSettings, make_sources, parse_chains, source_name
from archives.sources import Sources
from modis.box import LonLatBox
from modis.collection import Collection
from modis.tile import Tile
from tests.service_manager.shelf import tile_granule

FIRST = date(2018, 1, 1)
TEN = date(2018, 1, 10)


def tile(day: int, *, made: str = "1", collection: str = "61", source: str = "") -> GranuleRecord:
    start = datetime(2018, 1, day, tzinfo=UTC)
    name = f"MOD13A2.A{start:%Y%j}.h18v04.{collection:0>3}.{made:0>13}.hdf"
    return GranuleRecord(
        name=name,
        product="MOD13A2",
        collection=Collection(collection),
        start=start,
        end=start + timedelta(days=1),
        tile=Tile(18, 4),
        boundary=None,
        production_time=f"{made:0>13}",
        size=4,
        checksum=None,
        checksum_type=None,
        url=f"{source}/{name}",
        day_night="",
        source=source,
    )


@dataclass(kw_only=True)
class Shelf:
    """A source over given records, that fails when its day comes."""

    name: str
    authoritative: bool = False
    records: list[GranuleRecord] = field(default_factory=list)
    fails_on: date | None = None
    gives: ArchiveError | None = None
    asked: list[tuple[date, date]] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def search(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> Iterator[GranuleRecord]:
        del box
        self.asked.append((start_day, end_day))
        for record in sorted(self.records, key=lambda r: r.start):
            if self.fails_on is not None and record.start_day >= self.fails_on:
                raise ConnectionFailedError(f"{self.name} is away")
            wanted = (record.product, record.collection) == (product, collection)
            if wanted and start_day <= record.start_day <= end_day:
                yield replace(record, source=self.name, url=f"{self.name}/{record.name}")

    def holdings(self, product: str) -> list[Holding]:
        if self.fails_on is not None:
            raise ConnectionFailedError(f"{self.name} is away")
        collections = {r.collection for r in self.records if r.product == product}
        return [
            Holding(product=product, collection=Collection(c), first=FIRST, last=TEN)
            for c in sorted(collections)
        ]

    def fetch(self, record: GranuleRecord, to: Path, progress: Progress | None = None) -> Fetched:
        del progress
        self.fetched.append(record.url)
        if self.gives is not None:
            raise self.gives
        to.write_bytes(b"data")
        return Fetched(path=to, size=4)


@dataclass(kw_only=True)
class Telling(Shelf):
    """A source that says whether it has changed."""

    says: str = "same"

    def stamp(
        self,
        product: str,
        collection: str,
        start_day: date,
        end_day: date,
        box: LonLatBox | None = None,
    ) -> str:
        return f"{product} {collection} {start_day} {end_day} {box} {self.says}"


def days(*numbers: int, **how: str) -> list[GranuleRecord]:
    return [tile(day, **how) for day in numbers]


def search(*chain: Shelf, collection: str = "61", end: date = TEN) -> list[tuple[int, str, str]]:
    found = Sources(chain).search("MOD13A2", collection, FIRST, end)
    return [(r.start.day, r.source, r.production_time.lstrip("0")) for r in found]


def test_an_authoritative_source_completes_one_that_is_not() -> None:
    near = Shelf(name="near", records=days(2, 4))
    far = Shelf(name="far", records=days(1, 2, 3, 4), authoritative=True)
    never = Shelf(name="never", records=days(1, 5))
    assert search(near, far, never) == [
        (1, "far", "1"),
        (2, "near", "1"),
        (3, "far", "1"),
        (4, "near", "1"),
    ]
    assert not never.asked


def test_what_has_changed_is_known_when_each_source_of_the_product_knows() -> None:
    dumb = Shelf(name="dumb", records=days(1))
    one, two = (Telling(name=name, records=days(1)) for name in ("one", "two"))
    chain = Sources([one, two], {"MYD04_L2": [one, dumb]})
    first = chain.stamp("MOD13A2", "61", FIRST, TEN)
    assert first
    assert chain.stamp("MOD13A2", "61", FIRST, TEN) == first
    two.says = "other"
    assert chain.stamp("MOD13A2", "61", FIRST, TEN) not in ("", first)
    assert chain.stamp("MYD04_L2", "61", FIRST, TEN) == ""


def test_searches_that_do_without_a_source_are_counted() -> None:
    bad = Shelf(name="bad", records=days(1, 2), fails_on=date(2018, 1, 2))
    chain = Sources([bad, Shelf(name="good", records=days(1, 2))])
    assert len([*chain.search("MOD13A2", "61", FIRST, TEN)]) == 2
    assert chain.failures == 1


def test_the_newest_edition_wins_wherever_it_is() -> None:
    near = Shelf(name="near", records=days(1, 2, made="1"))
    far = Shelf(name="far", records=[*days(1, made="2"), *days(2, made="1")], authoritative=True)
    assert search(near, far) == [(1, "far", "2"), (2, "near", "1")]
    newer = Shelf(name="near", records=days(1, made="3"))
    assert search(newer, far) == [(1, "near", "3"), (2, "far", "1")]


def test_a_standard_granule_goes_before_one_of_near_real_time() -> None:
    """Whenever each was produced: a standard one is the record, and what replaces it as well."""
    standard = tile_granule(date(2026, 11, 20), 18, 3, "MOD09GA", "61", made="1")
    near = replace(standard, name=f"{standard.name[:-4]}.NRT.hdf", production_time="9" * 13)
    assert newest_editions([near, standard]) == newest_editions([standard, near]) == [standard]
    assert newest_editions([near]) == [near]


def test_collections_never_mix() -> None:
    near = Shelf(name="near", records=days(1, collection="6", made="9"))
    far = Shelf(name="far", records=days(1, 2, collection="61"), authoritative=True)
    assert search(near, far) == [(1, "far", "1"), (2, "far", "1")]
    assert search(near, far, collection="6") == [(1, "near", "9")]


def test_an_authoritative_source_without_any_is_not_the_last_word() -> None:
    empty = Shelf(name="empty", records=days(1, collection="6"), authoritative=True)
    full = Shelf(name="full", records=days(1, 2))
    assert search(empty, full) == [(1, "full", "1"), (2, "full", "1")]
    assert search(empty, Shelf(name="also")) == []


def test_a_source_that_fails_half_way_is_taken_over() -> None:
    first = Shelf(name="first", records=days(1, 2, 3, 4), authoritative=True, fails_on=FIRST)
    first.fails_on = date(2018, 1, 3)
    second = Shelf(name="second", records=days(1, 2, 3, 4, 5), authoritative=True)
    third = Shelf(name="third", records=days(1), authoritative=True)
    assert search(first, second, third) == [
        (1, "first", "1"),
        (2, "first", "1"),
        (3, "second", "1"),
        (4, "second", "1"),
        (5, "second", "1"),
    ]
    # It failed when it was asked for the third day, in the middle of the second.
    assert second.asked == [(date(2018, 1, 2), TEN)]
    assert not third.asked


def test_a_source_that_fails_at_once_is_passed_over() -> None:
    away = Shelf(name="away", records=days(1), fails_on=FIRST)
    assert search(away, Shelf(name="here", records=days(1, 2))) == [
        (1, "here", "1"),
        (2, "here", "1"),
    ]


@pytest.mark.parametrize("fails_on", [FIRST, date(2018, 1, 3)])
def test_half_a_list_is_no_answer(fails_on: date) -> None:
    near = Shelf(name="near", records=days(1, 2, 3))
    far = Shelf(name="far", records=days(1, 2, 3, 4), authoritative=True, fails_on=fails_on)
    with pytest.raises(ConnectionFailedError, match="far is away"):
        search(near, far)


def test_all_sources_may_fail() -> None:
    chain = [Shelf(name=name, records=days(1), fails_on=FIRST) for name in ("one", "two")]
    with pytest.raises(ConnectionFailedError, match="two is away"):
        search(*chain)
    with pytest.raises(ConnectionFailedError, match="one is away"):
        Sources(chain).holdings("MOD13A2")


def test_a_product_may_have_a_chain_of_its_own() -> None:
    usual = Shelf(name="usual", records=days(1))
    own = Shelf(name="own", records=days(1, 2))
    chosen = Sources([usual], {"MOD13A2": [own]})
    assert [r.source for r in chosen.search("MOD13A2", "61", FIRST, TEN)] == ["own", "own"]
    assert list(chosen.search("MYD13A2", "61", FIRST, TEN)) == []
    assert len(usual.asked) == 1


def test_what_is_served_is_what_any_source_serves() -> None:
    one = Shelf(name="one", records=days(1, collection="61"))
    two = Shelf(name="two", records=[*days(1, collection="6"), *days(1)])
    away = Shelf(name="away", fails_on=FIRST)
    held = Sources([one, away, two]).holdings("MOD13A2")
    assert [h.collection for h in held] == ["6", "61"]


def test_products_are_told_only_when_all_sources_can(tmp_path: Path) -> None:
    folder = FolderArchive(tmp_path, tmp_path / "index.sqlite")
    (tmp_path / tile(1).name).write_bytes(b"data")
    assert Sources([folder]).products() == [("MOD13A2", "61")]
    assert Sources([folder, Shelf(name="catalogue")]).products() is None


def test_a_granule_is_fetched_where_it_was_listed(tmp_path: Path) -> None:
    one = Shelf(name="one", records=days(1))
    two = Shelf(name="two", records=days(1))
    record = tile(1, source="two")
    Sources([one, two]).fetch(record, tmp_path / "x.hdf")
    assert (one.fetched, len(two.fetched)) == ([], 1)


@pytest.mark.parametrize("gives", [NotPublishedError("gone"), DownloadFailedError("damaged")])
def test_a_granule_is_fetched_elsewhere_when_it_must_be(
    tmp_path: Path, gives: ArchiveError
) -> None:
    other_edition = Shelf(name="other", records=days(1, made="2"))
    away = Shelf(name="away", records=days(1), fails_on=FIRST)
    last = Shelf(name="last", records=days(1))
    first = Shelf(name="first", records=days(1), gives=gives)
    # As a worker has it: where and when the granule lies is not known, its name is.
    record = replace(tile(1, source="first"), start=datetime.fromtimestamp(0, UTC), tile=None)
    fetched = Sources([first, other_edition, away, last]).fetch(record, tmp_path / "x.hdf")
    assert fetched.size == 4
    assert last.fetched == [f"last/{record.name}"]
    assert not other_edition.fetched


@pytest.mark.parametrize(
    "passing", [ServerBusyError("busy", 60.0), ConnectionFailedError("away"), TokenRefusedError("")]
)
def test_a_granule_that_may_still_be_had_is_not_given_up(
    tmp_path: Path, passing: ArchiveError
) -> None:
    gone = Shelf(name="gone", gives=NotPublishedError("404"))
    other = Shelf(name="other", records=[tile(1, source="other")], gives=passing)
    with pytest.raises(type(passing)):
        Sources([gone, other]).fetch(tile(1, source="gone"), tmp_path / "x.hdf")


def test_the_first_failure_is_told(tmp_path: Path) -> None:
    first = Shelf(name="first", gives=DownloadFailedError("damaged"))
    with pytest.raises(DownloadFailedError, match="damaged"):
        Sources([first, Shelf(name="empty")]).fetch(tile(1, source="first"), tmp_path / "x.hdf")
    with pytest.raises(NotPublishedError, match="empty"):
        Sources([Shelf(name="empty")]).fetch(tile(1, source="gone"), tmp_path / "x.hdf")


def wanted(tmp_path: Path, sources: str, archive: str = "") -> ChainSettings:
    return ChainSettings(
        sources=sources,
        archive=archive,
        index=tmp_path / "index.sqlite",
        credentials=Credentials(SecretStr("")),
        limits=LocalLimits(),
    )


def test_settings_name_sources_in_order(tmp_path: Path) -> None:
    text = (
        "folder, cmr; MOD04_L2 = laads,cmr; VNP46A2=stac+https://stac.example/v1"
        "#sign=https://stac.example/sas&collection={product}.v{version};"
        " MOD14=ftp://reader:secret@ftp.example/allData,pool+https://pool.example/MOLT"
    )
    made = make_sources(wanted(tmp_path, text, str(tmp_path)))
    assert [type(s) for s in made.chain("MCD12Q1")] == [FolderArchive, CmrArchive]
    assert [type(s) for s in made.chain("MOD04_L2")] == [LaadsArchive, CmrArchive]
    assert made.chain("MOD04_L2")[1] is made.chain("MCD12Q1")[1]
    (stac,) = made.chain("VNP46A2")
    assert isinstance(stac, StacArchive)
    assert stac.name == "stac+https://stac.example/v1"
    ftp, pool = made.chain("MOD14")
    assert isinstance(pool, PoolArchive)
    assert isinstance(ftp, FtpArchive)
    assert ftp.name == "ftp://ftp.example/allData"


def test_the_folder_is_the_usual_source(tmp_path: Path) -> None:
    (source,) = make_sources(wanted(tmp_path, "", str(tmp_path))).chain("MOD13A2")
    assert isinstance(source, FolderArchive)
    assert source.name == "folder"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no source"),
        ("  ;", "no source"),
        ("NASA", "'NASA', which is not a source"),
        ("https://example.org/", "which is not a source"),
        ("MOD13A2=", "no source for MOD13A2"),
        ("folder", "set SWATHMILL_ARCHIVE"),
        ("ftp2://user:secret@example.org", "which is not a source"),
        ("ftp://user:secret@example.org:abc/x", "which is not an address"),
        ("laads+https://[bad/secret", "which is not an address"),
        ("laads+http://user:secret@example.org/archive", "user or password"),
        ("stac+https://example.org/v1#collection={foo}", "{product}, {suffix} and {version}"),
        ("cmr#region=us-west-2&x=1", "only the region of Amazon"),
        ("cmr+https://cmr.example/search#us-west-2", "only the region of Amazon"),
        ("laads#region=us-west-2", "not a source"),
    ],
)
def test_settings_that_name_none_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SourcesSettingError, match=said) as caught:
        make_sources(wanted(tmp_path, text))
    assert "secret" not in str(caught.value)


def test_names_and_chains() -> None:
    assert parse_chains("cmr,laads") == (["cmr", "laads"], {})
    assert parse_chains("A1=cmr;B_2=laads , cmr") == ([], {"A1": ["cmr"], "B_2": ["laads", "cmr"]})
    assert source_name("cmr") == "cmr"
    assert source_name("laads+https://u:p@host/archive?x=1") == "laads+https://host/archive"


def test_the_token_is_for_its_hosts_over_https() -> None:
    hosts = ["data.example", "127.0.0.1:8443", "localhost:8080", "plain.example:80"]
    own = Credentials(SecretStr("hush"), hosts)
    sent = {"Authorization": "Bearer hush"}
    assert own.headers("https://data.example/a.hdf") == sent
    assert own.headers("https://data.example:443/a.hdf") == sent
    assert own.headers("https://DATA.example/a.hdf") == sent
    assert own.headers("http://127.0.0.1:8443/a.hdf") == sent
    assert own.headers("http://localhost:8080/a.hdf") == sent
    for foreign in (
        "http://data.example/a.hdf",
        "http://plain.example/a.hdf",
        "https://data.example:444/a.hdf",
        "https://data.example.evil.example/a.hdf",
        "https://evil.example/data.example",
        "https://data.example@evil.example/a.hdf",
        "https://sub.data.example/a.hdf",
        "http://127.0.0.1/a.hdf",
        "ftp://data.example/a.hdf",
        "https://data.example:port/",
    ):
        assert own.headers(foreign) == {}, foreign
    assert "hush" not in f"{own!r} {own}"
    assert Credentials(SecretStr("")).headers("https://urs.earthdata.nasa.gov/") == {}


def test_a_token_that_cannot_be_sent_is_refused_and_not_shown() -> None:
    sent = Credentials(SecretStr("hush\r\n")).headers("https://urs.earthdata.nasa.gov/")
    assert sent == {"Authorization": "Bearer hush"}
    for token in ("hush\nhush", "hush hush", "hush\xe9"):
        with pytest.raises(SourcesSettingError, match="SWATHMILL_EARTHDATA_TOKEN") as caught:
            Credentials(SecretStr(token))
        assert "hush" not in str(caught.value)
