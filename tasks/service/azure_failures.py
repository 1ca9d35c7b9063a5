"""The categories of the Azure SDK's exceptions."""

from enum import Enum

from azure.core import exceptions as azure

from tasks.bag.categories import Category
from tasks.service.http_status import category_of_status

_TYPES: tuple[tuple[tuple[type[BaseException], ...], Category], ...] = (
    ((azure.IncompleteReadError, azure.DecodeError), Category.TRANSPORT_ERROR),
    ((azure.ServiceResponseTimeoutError,), Category.OPERATION_TIMEOUT),
    ((azure.ServiceRequestError, azure.ServiceResponseError), Category.CONNECTION_FAILURE),
)

# Azure Storage's own words where its status says too little
# (learn.microsoft.com/rest/api/storageservices, "Common REST API error codes" and those of blobs).
_CODES = {
    "BlobNotFound": Category.SOURCE_BLOB_MISSING,
    "BlobArchived": Category.SOURCE_BLOB_MISSING,
    "OperationTimedOut": Category.OPERATION_TIMEOUT,
    "ServerBusy": Category.SERVER_BUSY,
    "TooManyRequests": Category.SERVER_BUSY,
    "Md5Mismatch": Category.CORRUPT_BLOB_READ,
    "Crc64Mismatch": Category.CORRUPT_BLOB_READ,
    "InternalError": Category.BLOB_READ_FAILED,
}


def category_of(error: BaseException) -> Category | None:
    """Return the category of an exception; None if it is not the SDK's."""
    if not isinstance(error, azure.AzureError):
        return None
    code = getattr(error, "error_code", None)
    # The SDK has an enumeration of the codes it knows, and plain text for the others.
    word = str(code.value if isinstance(code, Enum) else code)
    if word in _CODES:
        return _CODES[word]
    for types, category in _TYPES:
        if isinstance(error, types):
            return category
    if isinstance(error, azure.HttpResponseError):
        return category_of_status(error.status_code or 400, storage=True)
    return Category.STORAGE_CLIENT_ERROR
