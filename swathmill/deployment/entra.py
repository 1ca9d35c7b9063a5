"""The registration by which people sign in with Microsoft Entra ID."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from swathmill.deployment.az import Az, row, rows
from swathmill.deployment.choices import Choices
from swathmill.errors import StackError


@dataclass(frozen=True, kw_only=True)
class SignIn:
    """A registration: the portal's settings, and its secret where one was made just now."""

    application: str
    settings: Mapping[str, str]
    secret: Mapping[str, str]


def register(az: Az, choices: Choices, say: Callable[[str], None]) -> SignIn:
    """Return the registration of a deployment; it is made the first time.

    Members of the group `operators` are operators. A secret is made until a deployment has led the
    registration back to its portal: then the vault has it. Raises StackError.
    """
    name, known = _name(choices), _known(az, choices)
    secret: dict[str, str] = {}
    if known:
        application = str(known[0]["appId"])
        done = bool(row(known[0].get("web") or {}).get("redirectUris"))
    else:
        done = False
        say("A registration at Microsoft Entra ID, by which people sign in")
        made = az.ask(
            *("ad", "app", "create", "--display-name", name),
            *("--sign-in-audience", "AzureADMyOrg"),
        )
        application = str(row(made)["appId"])
    if not done:
        if not rows(az.ask("ad", "sp", "list", "--filter", f"appId eq '{application}'")):
            az.ask("ad", "sp", "create", "--id", application)
        reset = az.ask("ad", "app", "credential", "reset", "--id", application, "--years", "1")
        secret = {"SWATHMILL_OIDC_CLIENT_SECRET": str(row(reset)["password"])}
    # Without the claim a session knows of no groups.
    groups = "groupMembershipClaims=SecurityGroup"
    az.ask("ad", "app", "update", "--id", application, "--set", groups)
    settings = _settings(az, choices, application)
    return SignIn(application=application, settings=settings, secret=secret)


def preview(az: Az, choices: Choices) -> Mapping[str, str]:
    """Return the settings that `register` would give, and change nothing. Raises StackError."""
    known = _known(az, choices)
    return _settings(az, choices, str(known[0]["appId"]) if known else "to-be-registered")


def _name(choices: Choices) -> str:
    return f"{choices.name}-{choices.group}-sign-in"


def _known(az: Az, choices: Choices) -> list[dict[str, object]]:
    name = _name(choices)
    known = rows(az.ask("ad", "app", "list", "--filter", f"displayName eq '{name}'"))
    if len(known) > 1:
        raise StackError(
            f"Microsoft Entra ID has {len(known)} registrations {name}.",
            "Remove those that are not of this deployment, and deploy again.",
        )
    return known


def _settings(az: Az, choices: Choices, application: str) -> dict[str, str]:
    tenant = row(az.ask("account", "show"))["tenantId"]
    cloud = row(row(az.ask("cloud", "show")).get("endpoints"))
    return {
        "SWATHMILL_OIDC_ISSUER": f"{str(cloud['activeDirectory']).rstrip('/')}/{tenant}/v2.0",
        "SWATHMILL_OIDC_CLIENT_ID": application,
        "SWATHMILL_OIDC_OPERATORS": choices.operators,
    }


def lead_back(az: Az, sign_in: SignIn, portal_url: str) -> None:
    """Let the provider lead people back to the portal, whose address is known once it is there."""
    # Importing the portal's pages takes longer than telling the help of all commands.
    from portal.accounts.openid_page import BACK

    back = f"{portal_url}{BACK}"
    az.ask("ad", "app", "update", "--id", sign_in.application, "--web-redirect-uris", back)
