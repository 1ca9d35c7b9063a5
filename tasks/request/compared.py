"""What a request compares with measurements, checked and put into words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tasks.comparison import Comparison, Pair
from tasks.errors import RequestRefusedError
from tasks.request.document import Compared, Measurements
from tasks.request.measurements import (
    MeasurementsError,
    Series,
    by_site,
    offset_text,
    read_measurements,
    refused_table,
    time_zone,
)
from tasks.request.resolved import ResolvedProduct, ResolvedRequest
from tasks.request.sites import SiteChoice, parse_sites
from tasks.request.steps import Step, output_name

_FIELD = "measurements"
_NAMED = 10  # sites in a note


@dataclass(frozen=True, kw_only=True)
class ComparedLayer:
    """A layer of a product, or an output of a step, with the column it is compared with."""

    field: str
    of: ResolvedProduct | Step
    layer: str
    how: Compared

    @property
    def pair(self) -> Pair:
        """The comparison as a specification holds it."""
        if isinstance(self.of, ResolvedProduct):
            choice, period = self.of.choice, self.of.covers
            product, collection = choice.name, choice.collection
        else:
            product, collection, period = self.of.name, "", 1
        return Pair(
            product=product,
            collection=collection,
            layer=self.layer,
            period=period,
            column=self.how.column,
            scale=self.how.scale,
            offset=self.how.offset,
            statistic=self.how.statistic,
        )


def comparison_of(resolved: ResolvedRequest) -> Comparison | None:
    """Return what the table of sites compares; None if nothing is compared."""
    given = resolved.request.measurements
    if given is None:
        return None
    return Comparison(
        table=given.table,
        pairs=tuple(one.pair for one in compared_layers(resolved)),
        time_zone=given.time_zone,
        join=given.join,
        tolerance=given.tolerance,
        least_share=given.least_share,
    )


def compared_layers(resolved: ResolvedRequest) -> Iterator[ComparedLayer]:
    """Yield what is compared.

    Raises RequestRefusedError for a layer that the request does not have. Which outputs a step has
    its package says.
    """
    given = resolved.request.measurements
    seen: dict[tuple[int, str], str] = {}
    for name, how in given.compare.items() if given is not None else ():
        field = f"{_FIELD}.compare.{name}"
        first, slash, rest = name.partition("/")
        step = next((one for one in resolved.steps if slash and one.name == first), None)
        if step is not None:
            output = output_name(rest)
            _check_once(seen, field, (id(step), output), name)
            yield ComparedLayer(field=field, of=step, layer=output, how=how)
            continue
        found = [
            (one, layer)
            for one in resolved.products
            for layer in one.choice.layers
            if name in (layer, f"{one.choice.name}/{layer}")
        ]
        _check_no_record(resolved, field, name)
        names = dict.fromkeys((one.choice.name, one.choice.collection) for one, _ in found)
        if len(names) != 1:
            there = [f"{p.choice.name}/{one}" for p in resolved.products for one in p.choice.layers]
            steps = [f"{one.name}/OUTPUT" for one in resolved.steps]
            raise RequestRefusedError(
                field,
                f"the request has {'several layers' if names else 'no layer'} {name!r}.",
                f"Name one of {', '.join([*dict.fromkeys(there), *steps][:20])}.",
            )
        if len(found) > 1:
            raise RequestRefusedError(
                field,
                f"the request chooses the layer {name!r} more than once.",
                "Compare a layer that it chooses once, or make a request for each choice.",
            )
        of, layer = found[0]
        _check_once(seen, field, (id(of), layer), name)
        yield ComparedLayer(field=field, of=of, layer=layer, how=how)


def _check_no_record(resolved: ResolvedRequest, field: str, name: str) -> None:
    """Refuse a layer of a record: a comparison is with one product."""
    for one in resolved.products:
        asked = one.choice.asked_layers if one.choice.part is not None else ()
        if any(name in (layer, f"{one.choice.asked}/{layer}") for layer in asked):
            raise RequestRefusedError(
                field,
                f"is a layer of the record {one.choice.asked}, whose sensor changes with the date.",
                "Compare with single products, each asked for by itself.",
            )


def _check_once(
    seen: dict[tuple[int, str], str], field: str, layer: tuple[int, str], name: str
) -> None:
    """Refuse a second comparison of a layer: its pairs would be mixed with those of the first."""
    if layer in seen:
        raise RequestRefusedError(
            field,
            f"and {seen[layer]!r} name the same layer.",
            "Compare a layer with one column; make another request for another.",
        )
    seen[layer] = name


def check_outputs(resolved: ResolvedRequest, rasters: Mapping[int, tuple[str, ...]]) -> None:
    """Refuse the comparison of an output that a step does not have.

    Args:
        resolved: The request.
        rasters: The names of the outputs of each step, by its number.
    """
    for one in compared_layers(resolved):
        if isinstance(one.of, Step) and one.of.reduction.window_kind.endswith("-of-year"):
            raise RequestRefusedError(
                one.field,
                f"the windows of step {one.of.name} are of all years, and measurements are of one.",
                "Compare a step whose windows are days, months or the like.",
            )
        if isinstance(one.of, Step) and one.layer not in rasters[one.of.number]:
            raise RequestRefusedError(
                one.field,
                f"step {one.of.name} makes no raster {one.layer!r}.",
                f"Its rasters are: {', '.join(rasters[one.of.number])}.",
            )


def check_measurements(resolved: ResolvedRequest) -> None:
    """Refuse measurements that cannot be compared, by what the document says.

    Raises RequestRefusedError, naming the field.
    """
    given, region = resolved.request.measurements, resolved.request.region
    if given is None:
        return
    if not given.table:
        raise RequestRefusedError(
            f"{_FIELD}.table", "is not given.", "Give a CSV table, in a file or as text."
        )
    if (given.sites is None) == (region.sites is None):
        raise RequestRefusedError(
            f"{_FIELD}.sites",
            "is given, and so is region.sites." if given.sites else "is not given.",
            "Name the sites here, or as the region: id,latitude,longitude.",
        )
    for _ in compared_layers(resolved):
        pass
    sites = parse_sites(resolved.request.read_at or "")
    try:
        found = measured(given, sites)
        for site in sites:
            _zone(given, site, found.get(site.name, []))
    except MeasurementsError as error:
        raise refused_table(error) from None
    if not {site.name for site in sites} & {*found}:
        raise RequestRefusedError(
            f"{_FIELD}.table",
            f"has no site of the request: it has {', '.join([*found][:20])}.",
            f"The sites are {', '.join([site.name for site in sites][:20])}; give them equal ids.",
        )


def measured(
    given: Measurements | Comparison, sites: tuple[SiteChoice, ...]
) -> dict[str, list[Series]]:
    """Return the measurements of each site by its id.

    Raises MeasurementsError for a table that does not say of which site it is.
    """
    columns = (
        given.columns
        if isinstance(given, Measurements)
        else tuple(dict.fromkeys(pair.column for pair in given.pairs))
    )
    return by_site(
        read_measurements(given.table, columns), sites[0].name if len(sites) == 1 else ""
    )


def _zone(given: Measurements, site: SiteChoice, series: list[Series]) -> tuple[int, str]:
    return time_zone(series, given.time_zone, site.columns, site.lon)


_SAID_BY = {
    "table": "as the table says",
    "request": "as the request says",
    "sites": "as the table of sites says",
    "longitude": "local standard time by its longitude",
}


def measurement_notes(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Say what is compared, in which time zone, and which sites have no measurements."""
    given = resolved.request.measurements
    if given is None:
        return ()
    sites = parse_sites(resolved.request.read_at or "")
    found = measured(given, sites)
    there = [site for site in sites if any(one.values for one in found.get(site.name, ()))]
    compared = []
    for site in there[:_NAMED]:
        for column in given.columns:
            series = [one for one in found[site.name] if one.column == column and one.values]
            if series:
                minutes, source = _zone(given, site, series)
                count = sum(len(one.values) for one in series)
                values = f"{count:,} value{'s' * (count != 1)}"
                zone = f"UTC{offset_text(minutes)} {_SAID_BY[source]}"
                compared.append(f"{site.name} {column} ({values}, {zone})")
    more = len(there) - _NAMED
    text = "; ".join(compared) + (f"; and {more:,} more" if more > 0 else "")
    at = f"{len(there):,} site{'s' * (len(there) != 1)}"
    notes = [f"Compared with measurements at {at}: {text}."]
    without = [site.name for site in sites if site not in there]
    if without:
        notes.append(f"These sites have no measurements: {', '.join(without[:_NAMED])}.")
    return tuple(notes)
