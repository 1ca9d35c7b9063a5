"""What names of packages and rasters mean to a person, and the turns to upload."""

import threading

from portal.serving.portal import Portal
from tasks.packages.packages import Packages
from tasks.uploads.library import UploadLibrary

MOST_UPLOADING = 2  # uploaded packages and rasters that are read at once


class Uploads:
    """The packages of the installation beside those that people bring; `uploading` are turns."""

    def __init__(self, portal: Portal) -> None:
        self.library = UploadLibrary(portal.runtime, Packages.of(portal.settings))
        self.uploading = threading.BoundedSemaphore(MOST_UPLOADING)
