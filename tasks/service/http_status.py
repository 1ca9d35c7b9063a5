"""The categories of HTTP statuses, of archives and of storage."""

from tasks.bag.categories import Category


def category_of_status(status: int, *, storage: bool = False) -> Category:
    """Return the category of an HTTP status of an archive, or of storage."""
    if status in (408, 504):
        return Category.OPERATION_TIMEOUT
    if status in (429, 503):
        return Category.SERVER_BUSY
    if status == 507:
        return Category.OUT_OF_DISK
    if storage:
        return Category.BLOB_READ_FAILED if status >= 500 else Category.STORAGE_CLIENT_ERROR
    if status in (401, 403, 407):
        return Category.CREDENTIALS_REFUSED
    if status in (404, 410):
        return Category.SOURCE_NOT_PUBLISHED
    return Category.DOWNLOAD_FAILED
