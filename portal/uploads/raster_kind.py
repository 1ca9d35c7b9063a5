"""Users' rasters as a kind of uploads: their answers of the API, and a version in words."""

from collections.abc import Callable, Sequence
from typing import Self

from portal.serving.portal import Portal
from portal.serving.quantities import moment
from portal.serving.tokens import Person
from portal.submit.catalogue import dates_text, grid_text
from portal.uploads.kind import Kind, UploadView
from portal.uploads.rasters import RasterUpload
from reprojection.catalogue.user_raster import PREFIX, RasterLayer
from tasks.answers.uploads import RasterFields, RasterVersionFields
from tasks.packages.rasters import reference_of
from tasks.uploads import upload_operations
from tasks.uploads.raster_operations import RASTER_UPLOADS, RasterVersionRow
from tasks.uploads.upload_operations import NoSuchUploadError
from tasks.uploads.upload_table import UploadRow


class RasterVersionAnswer(RasterVersionFields[RasterLayer]):
    """A version of a raster: what it holds, and the digest and bytes of its file."""

    @classmethod
    def of(cls, row: RasterVersionRow) -> Self:
        """Build the answer for a version."""
        raster = row.raster
        return cls(
            version=row.version,
            digest=row.digest,
            size=row.size,
            pushed=moment(row.pushed),
            came_from=row.came_from,
            layers=raster.layers,
            dates=raster.days,
            period=raster.period,
            crs=raster.crs,
            transform=raster.transform,
            width=raster.width,
            height=raster.height,
            bbox=raster.box,
        )


class RasterAnswer(RasterFields[RasterVersionAnswer]):
    """A raster. `reference` is what a request names; `link` is told to its owner alone."""

    @classmethod
    def of(cls, view: UploadView, versions: Sequence[RasterVersionRow] = ()) -> Self:
        """Build the answer for a raster."""
        return cls(
            id=view.id,
            reference=view.reference,
            owner=view.owner,
            name=view.name,
            visibility=view.visibility,
            newest=view.newest,
            layers=view.description,
            link=view.link,
            versions=tuple(map(RasterVersionAnswer.of, versions)),
            url=f"/rasters/{view.id}",
        )


def meant(portal: Portal, person: str, name: str) -> tuple[UploadRow, RasterVersionRow] | None:
    """Find the version that a product's name means to a person; None if it means no raster."""
    try:
        asked = reference_of(name)
    except ValueError:
        return None
    return upload_operations.meant(RASTER_UPLOADS.table(portal.runtime), person, asked)


def _meant(
    portal: Portal, person: Person, reference: str
) -> tuple[str, Callable[[RasterVersionRow], bool]]:
    """Find a raster by `raster:NAME`; `raster:` may be left out."""
    text = reference if reference.startswith(PREFIX) else f"{PREFIX}{reference}"
    found = meant(portal, person.owner, text)
    if found is None:
        raise NoSuchUploadError(text, "raster")
    row, version = found
    exact = "@" in text.rpartition("/")[2]
    return row.id, lambda one: not exact or one.version == version.version


RASTERS = Kind(
    stored=RASTER_UPLOADS,
    use="name",
    sharing="see a raster and name it",
    answer=RasterAnswer,
    answered=RasterAnswer.of,
    meant=_meant,
    prefix=PREFIX,
    form=lambda portal: {
        "typed": RasterUpload(),
        "fetches": bool(portal.settings.allowed_hosts.endpoints),
    },
    facts=lambda version: {
        "held": version.raster,
        "dates": dates_text(version.raster),
        "grid": grid_text(version.raster),
    },
)
