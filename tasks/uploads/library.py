"""The packages and rasters that people bring, beside the packages of the installation."""

from reprojection.catalogue.user_raster import UserRaster
from tasks.bag.runtime import Runtime
from tasks.packages.packages import Packages, PackageSource
from tasks.packages.rasters import reference_of
from tasks.request.document import Request
from tasks.request.library import Library
from tasks.uploads import package_operations, raster_operations, upload_operations
from tasks.uploads.kinds import KINDS
from tasks.uploads.package_operations import ExactPackages, PackagesOf
from tasks.uploads.raster_operations import RASTER_UPLOADS


class UploadLibrary(Library):
    """All that a person may name: own uploads, those of the installation, shared ones."""

    def __init__(self, runtime: Runtime, local: Packages) -> None:
        super().__init__(local)
        self._runtime = runtime

    def packages_of(self, person: str) -> PackageSource:
        return PackagesOf(self._runtime, self.local, person)

    def exact_packages(self) -> PackageSource:
        return ExactPackages(self._runtime, self.local)

    def pinned(self, owner: str, request: Request) -> Request:
        return package_operations.pinned(self._runtime, owner, request)

    def described(self, owner: str, request: Request) -> Request:
        return raster_operations.described(self._runtime, owner, request)

    def raster(self, person: str, name: str) -> UserRaster | None:
        try:
            asked = reference_of(name)
        except ValueError:
            return None
        found = upload_operations.meant(RASTER_UPLOADS.table(self._runtime), person, asked)
        return found[1].raster if found is not None else None

    def delete_unused(self) -> None:
        for kind in KINDS:
            upload_operations.collect(self._runtime, kind)
