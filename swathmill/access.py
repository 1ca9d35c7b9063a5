"""Getting at a portal: this machine's stack through its data folder, another by a token."""

from portal.core import tokens
from swathmill.client import Client
from swathmill.errors import ApiError, ArgumentError, StackError
from swathmill.stack.folder import DataFolder, is_running
from tasks.settings import Settings

LOCAL_OWNER = "operator@localhost"


def client_for(folder: DataFolder, token: str | None) -> Client:
    """The portal a command speaks to.

    With a token: the one SWATHMILL_PORTAL_URL names, if it is set, else that of the stack on the
    data folder, as the token's owner. Without: the stack on the data folder, as the person who
    started it.

    Raises:
        ArgumentError: the token cannot be one.
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
    return Client(url=state.portal_url, token=local_token(folder))


def _plain(token: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ArgumentError(
            "The token has characters that no token has.",
            "Copy it whole from what `swathmill sign-in NAME --token` prints.",
        )
    return token


def local_client(folder: DataFolder) -> Client:
    """The portal of the stack that runs on the data folder."""
    return Client(url=folder.state().portal_url, token=local_token(folder))


def local_token(folder: DataFolder) -> str:
    """A token for the portal of a data folder, as an operator: whoever can read its secrets is."""
    return api_token(folder, LOCAL_OWNER, tokens.Role.OPERATOR)


def api_token(folder: DataFolder, owner: str, role: tokens.Role) -> str:
    """A token for the HTTP API; StackError where nothing to sign with is known."""
    return tokens.issue(_secret(folder), owner, role)


def sign_in_link(portal_url: str, folder: DataFolder, owner: str, role: tokens.Role) -> str:
    """An address that signs its visitor in; StackError where nothing to sign with is known."""
    return tokens.sign_in_link(portal_url, _secret(folder), owner, role)


def _secret(folder: DataFolder) -> str:
    secret = Settings().secret.get_secret_value()
    if secret:
        return secret
    if not (folder.path / "secrets.json").exists():
        raise StackError(
            f"There is no signing key: {folder.path} is no data folder of a stack.",
            "Start one with `swathmill up`, name its folder with --data, or set SWATHMILL_SECRET.",
        )
    return folder.secrets().signing_key
