"""Deploy into Azure: registry, image, everything else, and then wait until it works.

Each step may be done again: what is there already stays. Secrets reach `az` by its environment.
"""

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import httpx

from archives.fetch.proxies import ProxiedTransport
from portal.serving import tokens
from swathmill.deployment import entra
from swathmill.deployment.az import Az, row, rows
from swathmill.deployment.choices import Choices
from swathmill.errors import StackError

TEMPLATES = Path("infra", "bicep")
_OF_ROLES = ("SWATHMILL_DEPLOY_WORKER_IMAGE", "SWATHMILL_DEPLOY_RUNNER_IMAGE")
PATIENCE = 1200.0  # seconds until the service works
_PAUSE = 5.0  # seconds between two looks

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """The service: its address, and how an operator signs in: by a link, or by what to run."""

    url: str
    link: str
    command: str


def checkout(folder: Path) -> Path:
    """Return the folder of the checkout. Raises StackError where there are no templates."""
    if not (folder / TEMPLATES / "main.bicep").is_file():
        raise StackError(
            f"{folder.resolve()} is not a checkout of Swathmill: it has no {TEMPLATES}/main.bicep.",
            "Run this in a checkout, or name one with --checkout.",
        )
    return folder.resolve()


def preview(az: Az, choices: Choices, *, as_json: bool = False) -> list[object]:
    """Show what a deployment would change, or return it as JSON; change nothing.

    Raises StackError.
    """
    said: list[object] = []

    def call(*words: str, given: Mapping[str, str] | None = None) -> None:
        if as_json:
            said.append(az.ask(*words, "--no-pretty-print", given=given))
        else:
            az.show(*words, given=given)

    choices.check()
    if not az.ask("group", "exists", "--name", choices.group):
        raise StackError(
            f"The resource group {choices.group} does not exist, and az compares only within one.",
            f"Make it: `az group create --name {choices.group} --location {choices.location}`.",
        )
    if not choices.image:
        call(*_registry_call("what-if", choices))
    if choices.entra:
        settings = {**entra.preview(az, choices), **choices.settings}
        choices = replace(choices, settings=settings)
    image = choices.image or "swathmill:to-be-built"
    given = _environment(az, choices, image, choices.registry, {})
    call(*_main_call("what-if", choices), given=given)
    return said


def deploy(
    az: Az, choices: Choices, say: Say, *, patience: float = PATIENCE, pause: float = _PAUSE
) -> Deployed:
    """Deploy, wait until requests are worked on, and tell where.

    Raises:
        ArgumentError: the choices cannot be.
        StackError: a step failed, or the service did not come up in `patience` seconds.
    """
    choices.check()
    az.ask("group", "create", "--name", choices.group, "--location", choices.location)
    image, registry = choices.image, choices.registry
    if not image:
        say("Registry and image")
        image, registry = _build(az, choices)
        say(f"  {image}")
    mail = _azure_mail(az, choices, say) if choices.azure_mail else {}
    sign_in = entra.register(az, choices, say) if choices.entra else None
    if sign_in is not None:
        choices = replace(choices, settings={**sign_in.settings, **choices.settings})
        mail |= sign_in.secret
    given = _environment(az, choices, image, registry, mail)
    say("Storage, Redis, vault, network and processes: some 20 minutes the first time")
    outputs = _outputs(az.ask(*_main_call("create", choices), given=given))
    url = outputs["portalUrl"]
    if sign_in is not None:
        entra.lead_back(az, sign_in, url)
    say(f"Waiting for {url}/healthz")
    _wait(url, patience, pause)
    link = ""
    if given["SWATHMILL_SECRET"]:
        secret = given["SWATHMILL_SECRET"]
        link = tokens.sign_in_link(url, secret, choices.operator, tokens.Role.OPERATOR)
    command = (
        f"az containerapp exec --resource-group {choices.group} --name {outputs['portalName']} "
        f'--command "swathmill sign-in {choices.operator} --role operator"'
    )
    return Deployed(url=url, link=link, command=command)


def _build(az: Az, choices: Choices) -> tuple[str, str]:
    """Make the registry, and have it build the image; return the image's name and the server."""
    made = _outputs(az.ask(*_registry_call("create", choices)))
    tag = f"swathmill:{version('swathmill')}-{datetime.now(UTC):%Y%m%d%H%M%S}"
    az.ask(
        *("acr", "build", "--registry", made["registryName"], "--image", tag),
        *("--file", "infra/Containerfile", "--no-logs", "."),
    )
    return f"{made['registryServer']}/{tag}", made["registryServer"]


def _azure_mail(az: Az, choices: Choices, say: Say) -> dict[str, str]:
    """Return the application that sends mail; it is made, with a secret, the first time."""
    name = f"{choices.name}-{choices.group}-mail"
    found = az.ask("ad", "app", "list", "--display-name", name)
    known = rows(found)
    if known:
        application = str(known[0]["appId"])
        principal = rows(az.ask("ad", "sp", "list", "--filter", f"appId eq '{application}'"))
        return {
            "SWATHMILL_DEPLOY_MAIL_APPLICATION": application,
            "SWATHMILL_DEPLOY_MAIL_PRINCIPAL": str(principal[0]["id"]),
        }
    say("An application of Microsoft Entra that sends mail")
    application = str(row(az.ask("ad", "app", "create", "--display-name", name))["appId"])
    made = row(az.ask("ad", "sp", "create", "--id", application))
    reset = az.ask("ad", "app", "credential", "reset", "--id", application, "--years", "2")
    return {
        "SWATHMILL_DEPLOY_MAIL_APPLICATION": application,
        "SWATHMILL_DEPLOY_MAIL_PRINCIPAL": str(made["id"]),
        "SWATHMILL_SMTP_PASSWORD": str(row(reset)["password"]),
    }


def _environment(
    az: Az, choices: Choices, image: str, registry: str, mail: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that the parameter files read.

    A vault that exists keeps the secrets that are not given; one that was deleted with its group is
    taken over, with its secrets, because Azure keeps its name for 90 days.
    """
    vaults = rows(az.ask("keyvault", "list", "--resource-group", choices.group))
    deleted = not vaults and any(
        f"/resourcegroups/{choices.group}/".lower() in _vault_id(one).lower()
        for one in rows(az.ask("keyvault", "list-deleted", "--resource-type", "vault"))
    )
    keep = deleted or any(_has_signing_key(az, str(vault["id"])) for vault in vaults)
    secret = os.environ.get("SWATHMILL_SECRET", "") or ("" if keep else secrets.token_hex(32))
    return {
        "SWATHMILL_DEPLOY_NAME": choices.name,
        "SWATHMILL_DEPLOY_IMAGE": image,
        **{name: os.environ.get(name, "") for name in _OF_ROLES},
        "SWATHMILL_DEPLOY_REGISTRY": registry,
        "SWATHMILL_DEPLOY_OPERATORS": choices.operators,
        "SWATHMILL_DEPLOY_KEEP_SECRETS": str(keep).lower(),
        "SWATHMILL_DEPLOY_RECOVER_VAULT": str(deleted).lower(),
        "SWATHMILL_DEPLOY_ARCHIVE_ACCOUNT": choices.account,
        "SWATHMILL_DEPLOY_ARCHIVE_SHARE": choices.share,
        "SWATHMILL_DEPLOY_ALERT_MAIL": choices.operator if "@" in choices.operator else "",
        "SWATHMILL_DEPLOY_SETTINGS": json.dumps(dict(choices.settings), sort_keys=True),
        "SWATHMILL_SECRET": secret,
        "SWATHMILL_SOURCES": choices.sources,
        "SWATHMILL_ARCHIVE": choices.archive,
        **mail,
    }


def _has_signing_key(az: Az, vault: str) -> bool:
    """Tell whether a deployment before this one came as far as to write its secrets."""
    answer = az.ask("rest", "--method", "get", "--url", f"{vault}/secrets?api-version=2023-07-01")
    return any(one.get("name") == "signing-secret" for one in rows(row(answer).get("value")))


def _registry_call(verb: str, choices: Choices) -> tuple[str, ...]:
    return (
        *("deployment", "group", verb, "--resource-group", choices.group),
        *("--name", "swathmill-registry", "--template-file", str(TEMPLATES / "registry.bicep")),
        *("--parameters", f"name={choices.name}"),
    )


def _main_call(verb: str, choices: Choices) -> tuple[str, ...]:
    return (
        *("deployment", "group", verb, "--resource-group", choices.group, "--name", "swathmill"),
        *("--parameters", str(TEMPLATES / f"{choices.size}.bicepparam")),
    )


def _wait(url: str, patience: float, pause: float) -> None:
    """Wait until storage answers and a manager acts. Raises StackError."""
    end = time.monotonic() + patience
    last = "no answer"
    while time.monotonic() < end:
        try:
            with httpx.Client(transport=ProxiedTransport()) as client:
                answer = client.get(f"{url}/healthz", timeout=10.0)
        except httpx.HTTPError as error:
            last = f"no answer: {error}"
        else:
            if answer.status_code == 200:
                return
            last = f"status {answer.status_code}: {answer.text[:300]}"
        time.sleep(pause)
    raise StackError(
        f"{url} did not come up in {patience:.0f} s ({last}).",
        "Read the logs: `az containerapp logs show --resource-group GROUP --name "
        "swathmill-manager`, then the same command again.",
    )


def _outputs(answer: object) -> dict[str, str]:
    properties = row(answer).get("properties")
    outputs = row(properties).get("outputs")
    return {name: str(row(one)["value"]) for name, one in row(outputs).items()}


def _vault_id(vault: Mapping[str, object]) -> str:
    return str(row(vault.get("properties")).get("vaultId", ""))
