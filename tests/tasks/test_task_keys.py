"""Task keys stay what they were: stored work is found by them."""

import datetime as dt

import pytest

from tasks.model.spec import (
    Band,
    CollectSpec,
    CubeSpec,
    Driver,
    GridSpec,
    GroupSpec,
    Input,
    MosaicSpec,
    ReduceSpec,
    ReprojectSpec,
    Spec,
)
from tasks.model.task_keys import canonical

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
MADE = (Input(key=CELL.key, file="cell.tif"),)
BANDS = (Band(product="MOD13A2", collection="6", layer="NDVI", day=DAY, cell="r1c1", weight=0.1),)
GROUP = GroupSpec(
    inputs=MADE, group="r1c1 2012-01", cell="r1c1", window="2012-01", grid=GRID, bands=BANDS
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
)
KEYS = (
    "119b73622cbf337be82ea0f7c7338bd79000b424644602d961e716001a0932a5",
    "e0a4ee73987eb7430a129a08e7ca23271e3165bf8d6d4b14df9f08ba09b31ee5",
    "1d5dbfc6bb01c9fea512e303fce60332ed8ea5046fe39d676c4b36338160e8bb",
    "ff9b14849d6948a050834305c67ea9b7102c95e517473811ecc2a1fdff981ab5",
    "0b5b26d5fccde5dc673add9558aa08d9b2616e9fec7029c4528c4a1541b53bf1",
    "91fcefeae55608a2f6bd8ba40cfaaae9482057f7f1a296b7bb516584e8a8fa68",
    "a02ade538154673169d0c2de5824f1ca040d2044aeafd91832f2fb4432c42e6c",
    "f54a39ad0e852192b3e0c9463ad59dca0fd37d37605477ac68027519658fe748",
)


@pytest.mark.parametrize(("spec", "key"), [*zip(SPECS, KEYS, strict=True)])
def test_keys_stay(spec: Spec, key: str) -> None:
    assert spec.key == key


@pytest.mark.parametrize("spec", SPECS)
def test_an_identity_is_the_canonical_text_of_its_fields(spec: Spec) -> None:
    fields = spec.model_dump(mode="json", exclude={"inputs", *spec.not_identity})
    fields = {k: v for k, v in fields.items() if v is not None or k not in spec.later}
    inputs = [[given.key, given.file] for given in spec.inputs]
    whole = {**fields, "inputs": inputs, "algorithm": spec.algorithm}
    assert spec.identity == canonical(whole).decode()


def test_a_task_over_other_inputs_has_another_key() -> None:
    assert CELL.over({0: Input(key="0" * 64)}).key != CELL.key
    assert CELL.over({0: CELL.inputs[0]}).key == CELL.key
