"""What names of packages and rasters mean to a person, and the turns to upload."""

import threading

from portal.serving.portal import Portal
from portal.serving.tokens import Person
from tasks.packages.packages import Packages
from tasks.request.document import Request
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.uploads import raster_operations
from tasks.uploads.package_operations import PackagesOf

MOST_UPLOADING = 2  # uploaded packages and rasters that are read at once


class Uploads:
    """The packages of the installation beside those that people bring; `uploading` are turns."""

    def __init__(self, portal: Portal) -> None:
        self._runtime = portal.runtime
        self.local = Packages.of(portal.settings)
        self.uploading = threading.BoundedSemaphore(MOST_UPLOADING)

    def packages_of(self, person: Person) -> PackagesOf:
        """Return the packages that a person may name in a request."""
        return PackagesOf(self._runtime, self.local, person.owner)

    def resolved(self, person: Person, document: Request) -> ResolvedRequest:
        """Work out what a person's request comes to, with the rasters that its names mean to him.

        Raises RequestRefusedError.
        """
        return resolve(raster_operations.described(self._runtime, person.owner, document))
