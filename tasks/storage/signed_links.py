"""Links by which whoever has one reads one blob straight from Azure Storage, for a while.

They are signed by the account's key, or, where the process has an identity, by a user delegation
key: the identity needs the action `generateUserDelegationKey`, which Storage Blob Data Contributor
has.
"""

import datetime as dt
import threading
from urllib.parse import urlsplit

from azure.storage.blob import (
    BlobClient,
    BlobSasPermissions,
    BlobServiceClient,
    UserDelegationKey,
    generate_blob_sas,
)

from tasks.storage.blobs import Served

_DAY = dt.timedelta(days=1)
_SKEW = dt.timedelta(minutes=15)  # by which clocks may differ


class LinkSigner:
    """Signs links to blobs of one account. Thread-safe."""

    def __init__(self, service: BlobServiceClient) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._delegated: UserDelegationKey | None = None
        self._until = dt.datetime.min.replace(tzinfo=dt.UTC)

    @property
    def origin(self) -> str:
        """The origin of the links, as a browser names it."""
        parts = urlsplit(self._service.url)
        return f"{parts.scheme}://{parts.netloc}"

    def link(self, blob: BlobClient, seconds: float, served: Served) -> str:
        """Return a link that is good for some seconds; "" where the account cannot sign.

        Raises AzureError.
        """
        now = dt.datetime.now(dt.UTC)
        ends = now + dt.timedelta(seconds=seconds)
        credential = self._service.credential
        name = getattr(credential, "account_name", "")
        key = getattr(credential, "account_key", None)
        delegated = None
        if key is None:
            if not hasattr(credential, "get_token"):
                return ""
            delegated = self._key(now, ends)
        signed = generate_blob_sas(
            account_name=name or self._service.account_name or "",
            container_name=blob.container_name,
            blob_name=blob.blob_name,
            account_key=key,
            user_delegation_key=delegated,
            permission=BlobSasPermissions(read=True),
            expiry=ends,
            protocol=urlsplit(blob.url).scheme if blob.url.startswith("https:") else None,
            content_disposition=served.disposition,
            content_type=served.media_type,
        )
        return f"{blob.url}?{signed}"

    def _key(self, now: dt.datetime, ends: dt.datetime) -> UserDelegationKey:
        """Return a key that holds beyond `ends`: one is asked for about once a day."""
        with self._lock:
            if self._delegated is None or self._until < ends:
                until = ends + _DAY
                self._delegated = self._service.get_user_delegation_key(now - _SKEW, until)
                self._until = until
            return self._delegated
