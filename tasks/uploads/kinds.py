"""The kinds of uploads."""

from typing import Any

from tasks.uploads.package_operations import PACKAGE_UPLOADS
from tasks.uploads.raster_operations import RASTER_UPLOADS
from tasks.uploads.upload_table import UploadKind

KINDS: tuple[UploadKind[Any], ...] = (PACKAGE_UPLOADS, RASTER_UPLOADS)
