"""Task keys stay what they were: stored work is found by them."""

import datetime as dt
from collections import Counter
from typing import Any

import pytest

from modis.composites import Counted
from tasks.bag.kinds import Spec
from tasks.bag.site_specs import ExtractNearSpec, ExtractSpec, NearDate, SitesSpec, TableSpec
from tasks.bag.spec import (
    CollectSpec,
    CubeSpec,
    GridSpec,
    GroupSpec,
    Input,
    LayerSpec,
    MosaicSpec,
    OverlapSpec,
    PartsSpec,
    RasterSpec,
    ReduceSpec,
    ReprojectSpec,
)
from tasks.bag.task_keys import SHARDS, family, is_key, shard
from tasks.canonical import canonical, digest_of
from tasks.spec_parts import Band, Driver, RecordedLayer, SensorCell

DAY = dt.date(2012, 1, 1)
GRID = GridSpec(
    crs="EPSG:4326", transform=(0.01, 0, -10.24, 0, -0.01, 51.2), width=1024, height=1024
)
GRANULE = CollectSpec(
    product="MOD13A2",
    collection="6",
    granule="MOD13A2.A2012001.h18v04.006.2015001000000.hdf",
    production="2015001000000",
    url="x",
    size=3,
)
CELL = ReprojectSpec(
    inputs=(Input(key=GRANULE.key, name="n"),),
    product="MOD13A2",
    collection="6",
    layer="1 km 16 days NDVI \u00e9",
    day=DAY,
    grid=GRID,
    resampling="bilinear",
    qa='{"a":[1]}',
    extra_bands=("reason",),
)
FOLLOWER = CELL.model_copy(update={"driver": Driver(layer="AOD", resampling="nearest")})
_LAYER: dict[str, Any] = {one: getattr(CELL, one) for one in LayerSpec.model_fields}
RASTER = RasterSpec(**_LAYER, name="MOD13A2.006.NDVI.2012-01-01", clip="{}")
MADE = (Input(key=CELL.key, file="cell.tif"),)
BANDS = (
    Band(
        product="MOD13A2",
        collection="6",
        layer="NDVI",
        day=DAY,
        cell="r1c1",
        counted=Counted(1, 0.1, 0.1),
    ),
)
GROUP = GroupSpec(
    inputs=MADE, group="r1c1 2012-01", cell="r1c1", window="2012-01", grid=GRID, bands=BANDS
)
SITES = SitesSpec(sites='[["A",51.5,-2.2,null,[]]]')
EXTRACT = ExtractSpec(
    inputs=(Input(key=GRANULE.key), Input(key=SITES.key, file="sites.json")),
    product="MOD13A2",
    collection="6",
    layers=("NDVI",),
    qa=("good",),
    mask=True,
    day=DAY,
)
NEAR = ExtractNearSpec(
    inputs=(Input(key=SITES.key, file="sites.json"),),
    product="MOD13A2",
    collection="6",
    layers=("NDVI",),
    qa=("good",),
    mask=True,
    dates=(NearDate(DAY, None, (GRANULE.granule,)),),
    granules=(GRANULE,),
    wholes=(GRANULE.key,),
    stamps=("3 1",),
)
PARTS = PartsSpec(
    inputs=(Input(key=SITES.key, file="sites.json"),),
    product="MOD13A2",
    collection="6",
    granule=GRANULE.granule,
    granules=(GRANULE,),
    wholes=(GRANULE.key,),
    expected=1,
    layers=("NDVI",),
    qa=("good",),
    mask=True,
)
SPECS: tuple[Spec, ...] = (
    GRANULE,
    CELL,
    FOLLOWER,
    MosaicSpec(inputs=MADE, name="MOD13A2.006.NDVI.2012-01-01", grid=GRID, clip="{}", day=DAY),
    CubeSpec(inputs=MADE, name="MOD13A2.006.NDVI", form="zarr", grid=GRID, days=(DAY,)),
    GROUP,
    GROUP.model_copy(update={"grid": None}),
    ReduceSpec(
        inputs=(Input(key=GROUP.key),),
        package="mean",
        digest="ab",
        outputs=("a.tif", "b.csv"),
        parameters={"z": "1", "a": "\u00e9"},
    ),
    SITES,
    EXTRACT,
    TableSpec(inputs=(Input(key=EXTRACT.key, file="rows.parquet"), Input(key=SITES.key))),
    PARTS,
    PARTS.model_copy(update={"inputs": (), "grids": (GRID,)}),
    OverlapSpec(
        inputs=MADE,
        name="ndvi-16day.NDVI.overlap",
        record=RecordedLayer(record="ndvi-16day", layer="NDVI", units="1"),
        cells=tuple(SensorCell(product=one.product, day=one.day, cell=one.cell) for one in BANDS),
        pairs=(("MOD13A2", "VNP13A2"),),
    ),
    NEAR,
    RASTER,
)
KEYS = (
    "86762ceb0b352713c14685c1a8b8846859f99a8b68a7e97ae0034462e4342ac4",
    "86762ceb1b352789f85c85b1d1ec262bd0dae3aea28e4bb2e6d8f844ae9b7f3f",
    "86762ceb1b3527d9bca79a41a92ef10256d1a428f51e17944266f74d07be0799",
    "86762ceb2b3527aa844130d42b957f14392478881f6a564fd98a352f510fb0b3",
    "86762ceb5b35279c42f8feb7a49d13fade3997482b0acfc2b2f388238ed14d41",
    "86762ceb3b352753516bf8437ff39e4b662656bedfbda8c6fa8e52f9dfde709e",
    "86762ceb3b352701249e816b494e97ef52c74b0c6816d624de0240ee12254750",
    "86762ceb4b35279aa79a1d6a646f2b20806798c1f621c5b6bbb12387313b77c8",
    "d0266ee56a54cbd0266ee50a54cb803b4874b380197d6cca3be1e4cbe6da798a",
    "86762ceb7b352752246e99aefb33b383992c40fa357aa1faf2b6c2b69ff9aef8",
    "86762ceb8b352765c538ecbf578e03551c021069aba63dda2b96984d981feb1f",
    "86762cebab35274018fcb36bc55e182e0a8df45943b719efb4312f4dd205610b",
    "86762cebab3527c9c67358ff6a88870c50b4a2cd2f7369c228b4de7042fb5048",
    "86762cebbb352760640afb914ecbcab8f42b3fc8962f6b495032c3769569c334",
    "86762cebcb352726261240104ae10666d0576d0421562f18f964f18f822dc24d",
    "86762cebdb3527fa2cb407ae2adb8f386ff90dffe96a07212ad8f3434ffbfa2d",
)


@pytest.mark.parametrize(("spec", "key"), [*zip(SPECS, KEYS, strict=True)])
def test_keys_stay(spec: Spec, key: str) -> None:
    assert spec.key == key


@pytest.mark.parametrize("spec", SPECS)
def test_an_identity_is_the_canonical_text_of_its_fields(spec: Spec) -> None:
    fields = spec.model_dump(mode="json", exclude={"inputs", *spec.not_identity})
    inputs = [[given.key, given.file] for given in spec.inputs]
    whole = {**fields, "inputs": inputs, "algorithm": spec.algorithm}
    assert spec.identity == canonical(whole).decode()


def test_what_is_read_where_it_lies_is_that_file_and_lies_with_its_first_granule() -> None:
    assert NEAR.key[:8] == GRANULE.key[:8]
    assert NEAR.key[9:14] == GRANULE.key[9:14]
    assert NEAR.model_copy(update={"stamps": ("3 2",)}).key != NEAR.key
    again = GRANULE.model_copy(update={"url": "elsewhere"})
    assert NEAR.model_copy(update={"granules": (again,)}).key == NEAR.key


def test_parts_lie_with_their_granule_and_are_never_taken_for_it() -> None:
    assert (family(PARTS.key)[:8], family(PARTS.key)[9:]) == (
        family(GRANULE.key)[:8],
        family(GRANULE.key)[9:],
    )
    assert PARTS.key[8] != GRANULE.key[8]
    assert PARTS.model_copy(update={"layers": ("EVI",)}).key != PARTS.key
    again = GRANULE.model_copy(update={"url": "elsewhere", "size": 5})
    assert PARTS.model_copy(update={"granules": (again,), "expected": 2}).key == PARTS.key


def test_a_task_over_other_inputs_has_another_key() -> None:
    assert CELL.over({0: Input(key="0" * 64)}).key != CELL.key
    assert CELL.over({0: CELL.inputs[0]}).key == CELL.key


def granule(day: dt.date, number: int = 0, product: str = "MOD13A2") -> CollectSpec:
    name = f"{product}.A{day:%Y%j}.h{number % 36:02d}v04.006.{number:013d}.hdf"
    return CollectSpec(product=product, collection="6", granule=name, production=f"{number:013d}")


def test_the_tasks_of_a_family_lie_together_by_kind_and_then_by_date() -> None:
    days = [DAY + dt.timedelta(days=i) for i in range(60)]
    granules = [granule(day, i) for day in days for i in range(3)]
    cells = [CELL.over({0: Input(key=g.key)}) for g in granules]
    mosaics = [SPECS[3].over({0: Input(key=c.key)}) for c in cells]
    for some in (granules, cells, mosaics):
        assert len({family(spec.key) for spec in some}) == len(days)
    together = zip(granules, cells, mosaics, strict=True)
    assert all(shard(a.key) == shard(b.key) == shard(c.key) for a, b, c in together)
    number = shard(granules[0].key)
    dates = {g.key: g.granule[9:16] for g in granules}
    in_order = [dates[key] for key in sorted(dates) if shard(key) == number]
    assert in_order == sorted(in_order)
    assert granule(DAY, product="MYD13A2").key[1:8] != granule(DAY).key[1:8]


def test_families_spread_over_all_shards() -> None:
    days = [DAY + dt.timedelta(days=8 * i) for i in range(46 * 10)]
    found = Counter(shard(granule(day).key) for day in days)
    assert len(found) == len(SHARDS)
    assert max(found.values()) < 2 * len(days) / len(SHARDS)


def test_a_granule_without_a_date_and_text_like_a_field_have_keys() -> None:
    odd = CollectSpec(
        product="p", collection="1", granule='"inputs":[["' + "0" * 64, production="1"
    )
    assert (
        odd.key
        == digest_of(odd.identity)[:8]
        + "0"
        + digest_of(odd.identity)[9:14]
        + (digest_of(odd.identity)[:50])
    )
    assert is_key(granule(DAY).key)
    assert CELL.model_copy(update={"layer": '"kind":"cube"'}).key[8] == "1"
