"""What requests may name beside the catalogue: the packages of the installation, and no rasters."""

from reprojection.catalogue.user_raster import UserRaster
from tasks.errors import RequestRefusedError
from tasks.packages.packages import Packages, PackageSource
from tasks.packages.rasters import is_raster
from tasks.request.document import Request


class Library:
    """The packages of the installation, which everybody may name.

    A library of what people bring is a subclass.
    """

    def __init__(self, local: Packages) -> None:
        self.local = local

    def packages_of(self, person: str) -> PackageSource:
        """Return the packages that a person may name."""
        del person
        return self.local

    def exact_packages(self) -> PackageSource:
        """Return the packages of requests whose references `pinned` has made exact."""
        return self.local

    def pinned(self, owner: str, request: Request) -> Request:
        """Return a request that names the very versions that its owner's references mean.

        Raises RequestRefusedError: the owner may not run such a package, or there is none.
        """
        del owner
        return request

    def described(self, owner: str, request: Request) -> Request:
        """Return a request whose rasters are those that its owner's references mean.

        Raises RequestRefusedError: the owner may not see such a raster, or there is none.
        """
        del owner
        for number, choice in enumerate(request.products):
            if is_raster(choice.name):
                raise RequestRefusedError(
                    f"products.{number}.name",
                    f"there is no raster {choice.name!r}.",
                    "Name a product of the catalogue.",
                )
        return request

    def raster(self, person: str, name: str) -> UserRaster | None:
        """Return the raster that a product's name means to a person; None: no raster."""
        del person, name
        return None

    def delete_unused(self) -> None:
        """Delete the content that neither a name nor a live request leads to."""


NO_UPLOADS = Library(Packages(()))
"""For who finds packages elsewhere, and needs nothing that people bring."""
