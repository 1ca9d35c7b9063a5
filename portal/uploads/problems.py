"""What the caller is told of an upload that is refused or not there."""

from collections.abc import Mapping
from http import HTTPStatus

from portal.serving.problems import Problem, Translate, begun
from reprojection.user_rasters.source import RasterRefusedError
from tasks.packages.packages import NoPackageError, PackageError
from tasks.uploads.upload_operations import NoSuchUploadError, UploadConflictError


def _raster_refused(error: Exception) -> Problem:
    return Problem(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        title="Raster refused",
        detail=begun(str(error)),
        remedy="docs/rasters.md explains what a raster is.",
    )


def _not_there(error: Exception) -> Problem:
    kind = error.kind if isinstance(error, NoSuchUploadError) else "upload"
    return Problem(
        status=HTTPStatus.NOT_FOUND,
        title=f"No such {kind}",
        detail=f"{str(error)[0].upper()}{str(error)[1:]}.",
        remedy=f"The page of {kind}s lists those that you may use.",
    )


def _conflict(error: Exception) -> Problem:
    return Problem(status=HTTPStatus.CONFLICT, title="Not stored", detail=str(error))


def _package_refused(error: Exception) -> Problem:
    if isinstance(error, NoPackageError):
        return Problem(
            status=HTTPStatus.NOT_FOUND,
            title="No such package",
            detail=f"{error.problem[0].upper()}{error.problem[1:]}",
            remedy=error.remedy,
        )
    return Problem(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        title="Package refused",
        detail=str(error),
        remedy="docs/reductions.md explains what a package is.",
    )


PROBLEMS: Mapping[type[Exception], Translate] = {
    RasterRefusedError: _raster_refused,
    NoSuchUploadError: _not_there,
    UploadConflictError: _conflict,
    PackageError: _package_refused,
}
