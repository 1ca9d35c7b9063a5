"""Sign in at an OpenID provider: Microsoft Entra ID, Keycloak, Google or any other.

Authlib does the protocol: discovery, the code flow with PKCE, state and nonce, the signature and
the claims of the identity token. What follows from the claims is decided here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from portal.serving.problems import ForbiddenError
from portal.serving.tokens import LONGEST_OWNER, Person, Role
from tasks.setting_values import ClaimNames
from tasks.settings import Settings, WrongSettingError

if TYPE_CHECKING:
    from authlib.integrations.starlette_client import StarletteOAuth2App

NAME = "provider"
_NAMES = {
    "accounts.google.com": "Google",
    "login.chinacloudapi.cn": "Microsoft",
    "login.microsoftonline.com": "Microsoft",
    "login.microsoftonline.us": "Microsoft",
}


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Which claims say who somebody is, and which groups may do what.

    Without `groups` everyone may sign in whom the provider lets.
    """

    owner: str
    of_groups: str
    groups: frozenset[str]
    operators: frozenset[str]

    @classmethod
    def of(cls, settings: Settings) -> "Claims":
        """Read the settings."""
        names = ClaimNames.read(settings.oidc_claims)
        return cls(
            owner=names.owner,
            of_groups=names.groups,
            groups=_words(settings.oidc_groups),
            operators=_words(settings.oidc_operators),
        )

    def person(self, claims: Mapping[str, object]) -> Person:
        """Return whom the provider has named.

        Raises:
            ForbiddenError: the provider names nobody, has not checked the mail address, or the
                person is in no group that may sign in.
        """
        owner = claims.get(self.owner)
        if not isinstance(owner, str) or not 0 < len(owner) <= LONGEST_OWNER:
            raise ForbiddenError(
                f"The OpenID provider does not give your {self.owner!r}.",
                "Ask whoever runs this portal to set SWATHMILL_OIDC_CLAIMS or the provider.",
            )
        if self.owner == "email" and claims.get("email_verified") is False:
            raise ForbiddenError(
                f"The OpenID provider has not checked your mail address {owner}.",
                "Confirm the address at the provider, then sign in again.",
            )
        groups = claims.get(self.of_groups)
        mine = {str(group) for group in groups} if isinstance(groups, list) else set()
        found = self.now(owner, mine)
        if found is None:
            raise ForbiddenError(
                f"{owner} is in no group that may use this portal.",
                "Ask whoever runs it to add you to one.",
            )
        return found

    def now(self, owner: str, groups: Iterable[str]) -> Person | None:
        """Return who a member of groups is by the settings of now; None who may not sign in."""
        mine = {*groups}
        operates = bool(mine & self.operators)
        if self.groups and not operates and not mine & self.groups:
            return None
        return Person(
            owner=owner,
            role=Role.OPERATOR if operates else Role.SCIENTIST,
            groups=tuple(sorted(mine & (self.operators | self.groups))),
        )


def provider(settings: Settings) -> "StarletteOAuth2App | None":
    """Return the provider of the settings; None where there is none.

    Raises:
        WrongSettingError: it is named in part.
    """
    if not settings.oidc_issuer:
        return None
    if not settings.oidc_client_id or not settings.oidc_issuer.startswith(("https://", "http://")):
        raise WrongSettingError(
            "SWATHMILL_OIDC_ISSUER needs an address and SWATHMILL_OIDC_CLIENT_ID.",
            "Set both as the provider names them (docs/operations.md).",
        )
    # Importing it is a tenth of the portal's start.
    from authlib.integrations.starlette_client import OAuth

    registry = OAuth()
    registry.register(
        NAME,
        server_metadata_url=f"{settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration",
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret.get_secret_value() or None,
        client_kwargs={"scope": settings.oidc_scopes, "code_challenge_method": "S256"},
    )
    found: StarletteOAuth2App = registry.create_client(NAME)
    return found


def name_of(issuer: str) -> str:
    """Return a provider's name for people, or its host where it has none; "" for no provider."""
    host = urlsplit(issuer).hostname or ""
    return _NAMES.get(host, host)


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",") if word.strip())
