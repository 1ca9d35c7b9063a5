"""Give commands access to a portal: this machine's through its data folder, others by token."""

from typing import TYPE_CHECKING

from swathmill.client import Client
from swathmill.errors import ApiError, ArgumentError, StackError
from swathmill.stack import storage
from swathmill.stack.folder import DataFolder, is_running
from tasks.settings import Settings
from tasks.storage.file_blobs import FileBlobs

if TYPE_CHECKING:
    from portal.serving.tokens import Role

LOCAL_OWNER = "operator@localhost"


def client_for(folder: DataFolder, token: str | None) -> Client:
    """Return the client of the portal that a command speaks to.

    With a token, it is the portal that SWATHMILL_PORTAL_URL names, or else the portal of the stack
    on the data folder; the client acts as the token's owner. Without a token, it is the portal of
    the stack on the data folder, and the client acts as the person who started that stack.

    Raises:
        ArgumentError: the text cannot be a token.
        ApiError: no stack runs on the data folder, and no other portal is named.
    """
    state = folder.state()
    running = bool(state.portal_url) and is_running(folder)
    if token:
        settings = Settings()
        named = "portal_url" in settings.model_fields_set or not running
        url = settings.portal_url if named else state.portal_url
        return Client(url=url, token=_plain(token))
    if not running:
        raise ApiError(
            f"No stack runs on the data folder {folder.path}.",
            "Start one with `swathmill up`, name its data folder with --data, or give a token "
            "(SWATHMILL_TOKEN) for the portal SWATHMILL_PORTAL_URL names.",
        )
    return local_client(folder)


def _plain(token: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ArgumentError(
            "The token has characters that do not occur in tokens.",
            "Copy the whole output of `swathmill sign-in NAME --token`.",
        )
    return token


def local_client(folder: DataFolder) -> Client:
    """Make the client of the portal of the stack that runs on the data folder."""
    embedded = storage.held(folder) is storage.Storage.EMBEDDED
    return Client(
        url=folder.state().portal_url,
        token=local_token(folder),
        blobs=FileBlobs(folder.storage / "blobs") if embedded else None,
    )


def local_token(folder: DataFolder) -> str:
    """Make an operator's token for the portal of a data folder whose secrets are readable."""
    from portal.serving.tokens import Role

    return api_token(folder, LOCAL_OWNER, Role.OPERATOR)


def api_token(folder: DataFolder, owner: str, role: "Role") -> str:
    """Sign a token for the HTTP API, good for an hour; raise StackError without a signing key."""
    from portal.serving import tokens

    return tokens.issue(signing_key(folder), owner, role)


def sign_in_link(portal_url: str, folder: DataFolder, owner: str, role: "Role") -> str:
    """Make an address that signs its visitor in; raise StackError if no signing key is known."""
    from portal.serving import tokens

    return tokens.sign_in_link(portal_url, signing_key(folder), owner, role)


def signing_key(folder: DataFolder) -> str:
    """Return the key of the settings or the data folder; raise StackError where there is none."""
    secret = Settings().secret.get_secret_value()
    if secret:
        return secret
    if not (folder.path / "secrets.json").exists():
        raise StackError(
            f"There is no signing key: {folder.path} is not the data folder of a stack.",
            "Start one with `swathmill up`, name its folder with --data, or set SWATHMILL_SECRET.",
        )
    return folder.secrets().signing_key
