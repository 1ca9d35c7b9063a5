"""Tasks made as text are those that their specifications make."""

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from service_manager.planner.patterns import Given, Pattern, grid_texts, quoted, together
from tasks.bag.kinds import load_spec
from tasks.bag.spec import CollectSpec, GridSpec, Input, MosaicSpec, ReprojectSpec
from tasks.canonical import canonical

TEXT = st.text(alphabet=st.sampled_from('ab%s(")\\\n{}é:\u2028,'), max_size=12)
GRID = GridSpec(crs="EPSG:4326", transform=(0.1, 0, -1e-7, 0, -0.1, 51.2), width=8, height=9)
DAYS = st.dates(min_value=dt.date(2000, 1, 1), max_value=dt.date(2030, 1, 1))


@given(name=TEXT, production=TEXT, url=TEXT, size=st.integers(0, 10**12), product=TEXT)
def test_a_collection_is_the_same_as_text(
    name: str, production: str, url: str, size: int, product: str
) -> None:
    spec = CollectSpec(
        product=product, collection="6", granule=name, production=production, url=url, size=size
    )
    base = CollectSpec(product=product, collection="6", granule="", production="")
    pattern = Pattern(base, "granule", "production", "url", "size")
    values = quoted(name), quoted(production), quoted(url), str(size)
    assert pattern.key(*values) == spec.key
    assert load_spec(pattern.text(*values)) == spec


@given(layer=TEXT, qa=TEXT, names=st.lists(TEXT, min_size=1, max_size=3), day=DAYS)
def test_a_cell_is_the_same_as_text(layer: str, qa: str, names: list[str], day: dt.date) -> None:
    inputs = tuple(Input(key=f"{i:064x}", name=name, file=name) for i, name in enumerate(names))
    base = ReprojectSpec(
        product="P", collection="6", layer=layer, day=dt.date.min, grid=GRID, resampling="x", qa=qa
    )
    spec = base.model_copy(update={"inputs": inputs, "day": day})
    pattern = Pattern(base, "inputs", "grid", "day")
    both = together(Given.of(i.key, i.name, i.file) for i in inputs)
    grid, quoted_day = grid_texts(GRID), quoted(day.isoformat())
    assert pattern.key(both.identity, grid.identity, quoted_day) == spec.key
    assert load_spec(pattern.text(both.text, grid.text, quoted_day)) == spec


@given(name=TEXT, clip=TEXT)
def test_a_mosaic_is_the_same_as_text(name: str, clip: str) -> None:
    spec = MosaicSpec(name=name, grid=GRID, clip=clip)
    pattern = Pattern(MosaicSpec(name="", grid=GRID, clip=clip), "name", "inputs")
    values = quoted(name), "[]"
    assert pattern.key(*values) == spec.key
    assert load_spec(pattern.text(*values)) == spec


def test_texts_are_canonical() -> None:
    assert quoted('é"\n') == canonical('é"\n').decode()
    assert grid_texts(GRID).identity == canonical(GRID.model_dump()).decode()
