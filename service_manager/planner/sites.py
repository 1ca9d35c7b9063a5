"""The tasks of a request for sites: one extraction per product and date, and one table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np

from archives.model import GranuleRecord, Ring
from modis.box import LonLatBox
from modis.sphere import METRES_PER_DEGREE
from modis.tile import Tile, tiles_around
from reprojection.grid.crs import lonlat_to_sinusoidal
from reprojection.grid.sinusoidal import tiles_touching
from service_manager.planner.draft import Draft, PlannedRaster
from service_manager.planner.granules import collected, tile_of
from service_manager.planner.layers import NOT_THERE, ProductLayers
from service_manager.planner.located import Locator, Reach
from tasks.errors import RequestRefusedError
from tasks.model.absence import Absent, bounded
from tasks.model.spec import ExtractSpec, Input, SitesSpec, TableSpec
from tasks.request.document import Request
from tasks.request.regions import site_areas
from tasks.request.sites import SiteChoice, parse_sites, sites_text
from tasks.request.vertices import Area

FOLDER = "sites"
MOST_DATES = 15_000  # the table's specification names each
_SITES_FILE, _ROWS_FILE = "sites.json", "rows.parquet"
_COARSEST = 10_000.0  # metres: a pixel of a product that the catalogue does not know
_HERE: Reach = (0.0, False)


@dataclass(frozen=True, kw_only=True)
class SitePlace:
    """A site as a place that granules touch."""

    site: SiteChoice
    near: Area
    """Around the site: a swath that touches it may see the site."""

    def tiles(self, reach: float, whole_pixel: bool) -> frozenset[Tile]:
        """Return the tiles within `reach` metres of the site."""
        del whole_pixel
        if self.site.area is not None:
            return frozenset(tiles_touching(self.site.area.buffer(reach / METRES_PER_DEGREE)))
        x, y = lonlat_to_sinusoidal(np.array([self.site.lon]), np.array([self.site.lat]))
        return tiles_around(x, y, reach)

    def outline(self) -> tuple[LonLatBox | tuple[Ring, ...], ...]:
        """Return the box around the site."""
        return (LonLatBox(*self.near.bounds),)


class SitesPlan:
    """The sites of a request, and the extractions planned so far."""

    def __init__(self, sites: Sequence[SiteChoice], areas: Sequence[Area]) -> None:
        self.places = tuple(
            SitePlace(site=site, near=near) for site, near in zip(sites, areas, strict=True)
        )
        self._spec = SitesSpec(sites=sites_text(sites))
        self._made: list[PlannedRaster] = []

    @classmethod
    def of(cls, request: Request) -> "SitesPlan | None":
        """Return the plan of a request's sites; None where it asks for rasters."""
        given = request.region.sites
        return None if given is None else cls(parse_sites(given), site_areas(request.region))

    @cached_property
    def _tiles(self) -> frozenset[Tile]:
        return frozenset().union(*(place.tiles(*_HERE) for place in self.places))

    def plan_date(
        self,
        wanted: ProductLayers,
        day: date,
        band: int,
        records: Sequence[GranuleRecord],
        locator: Locator,
        draft: Draft,
    ) -> bool:
        """Add the extraction of a date's granules; whether any is expected at the sites."""
        entry = wanted.resolved.entry
        pixel = (entry.resolution if entry is not None else None) or _COARSEST
        touched = [record for record in records if locator.of(record, (pixel, False))]
        if not any(locator.of(record, _HERE) for record in touched):
            return wanted.geometry == "tile"
        inputs = []
        for record in touched:
            for one in (record, record.companion):
                if one is not None:
                    key, line = collected(one)
                    draft.put(key, line)
                    inputs.append(Input(key=key, name=one.name))
        named, unnamed = bounded(self._absent(wanted, day, records))
        spec = ExtractSpec(
            inputs=(*inputs, self._sites(draft)),
            missing=named,
            missing_unnamed=unnamed,
            product=wanted.choice.name,
            collection=wanted.choice.collection,
            layers=tuple(layer.name for layer in wanted.layers),
            qa=tuple(layer.qa for layer in wanted.layers),
            mask=wanted.layout.request.mask,
            day=day,
            band=band if wanted.resolved.stack > 1 else None,
        )
        key = draft.add(spec)
        draft.rasters.append(PlannedRaster(key=key, file=_ROWS_FILE, folder=FOLDER, day=day))
        return True

    def _absent(
        self, wanted: ProductLayers, day: date, records: Sequence[GranuleRecord]
    ) -> list[Absent]:
        if wanted.geometry != "tile":
            return []
        there = {tile_of(record) for record in records}
        whole = f"{wanted.product} {day.isoformat()}"
        return [
            Absent(part=tile.name, what=f"{whole} {tile.name}", why=NOT_THERE)
            for tile in sorted(self._tiles - there)
        ]

    def _sites(self, draft: Draft) -> Input:
        return draft.input(self._spec, _SITES_FILE, _SITES_FILE)

    def add(self, made: Iterable[PlannedRaster]) -> None:
        """Take in extractions of a stretch that is not the last."""
        self._made += made

    def plan_table(self, draft: Draft) -> None:
        """Take in the draft's extractions, the last, and add the table of all.

        Raises RequestRefusedError for too many dates.
        """
        self.add(draft.rasters)
        if not self._made:
            return
        if len(self._made) > MOST_DATES:
            raise RequestRefusedError(
                "time",
                f"the products have {len(self._made):,} dates together; a table of sites may have "
                f"{MOST_DATES:,}.",
                "Ask for fewer days or products at a time.",
            )
        inputs = tuple(
            Input(key=one.key, name=f"{one.day.isoformat()}", file=one.file) for one in self._made
        )
        draft.add(TableSpec(inputs=(*inputs, self._sites(draft))), FOLDER)
