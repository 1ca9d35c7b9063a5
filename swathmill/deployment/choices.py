"""What a deployment is to be: its choices, checked before anything is made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from archives.errors import SourcesSettingError
from archives.registry import parse_chains
from swathmill.errors import ArgumentError
from tasks.settings import Settings

SIZES = ("production", "development")
MADE = frozenset(
    (
        *("data_dir", "storage", "redis_url", "archive", "sources", "earthdata_token"),
        *("portal_address", "probe_address", "secret", "slots"),
        *("smtp_url", "smtp_password", "mail_from"),
        *("oidc_client_secret", "reduction_pool", "runner_address"),
        # A name for all workers, a folder in no container, and a bound that `swathmill up` keeps.
        *("worker_name", "packages", "disk_quota_gb"),
    )
)
"""Settings that the template makes, that have a parameter, or that mean nothing in a container."""

# What the SDK of OpenTelemetry reads. Headers may hold a secret: a template keeps none in the open.
_TRACES = re.compile(r"OTEL_(?!.*HEADERS)[A-Z0-9_]+\Z")
_GROUP = re.compile(r"[\w.()-]{1,89}[\w()-]\Z")
_NAME = re.compile(r"[a-z][a-z0-9]{2,10}\Z")
_ACCOUNT = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.Storage/storageAccounts/[a-z0-9]+\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A deployment; `archive` is an fsspec URL, `share` names a share of the account `account`.

    Secrets come from the environment alone.
    """

    group: str
    location: str
    operator: str
    size: str = SIZES[0]
    name: str = "swathmill"
    sources: str = ""
    archive: str = ""
    account: str = ""
    share: str = ""
    image: str = ""
    registry: str = ""
    operators: str = ""
    azure_mail: bool = False
    entra: bool = False  # people sign in with Microsoft Entra ID
    settings: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ArgumentError for what Azure, or a process in it, would refuse minutes later."""
        if not _GROUP.match(self.group):
            raise ArgumentError(
                f"{self.group!r} cannot be the name of a resource group.",
                "Use letters, digits, and . _ - ( ), without a . at the end.",
            )
        if not _NAME.match(self.name):
            raise ArgumentError(
                f"{self.name!r} cannot be the name of the service.",
                "Use 3 to 11 lower-case letters and digits; the first is a letter.",
            )
        if self.size not in SIZES:
            raise ArgumentError(
                f"There is no size {self.size!r}.", f"Use one of {', '.join(SIZES)}."
            )
        if bool(self.account) != bool(self.share):
            raise ArgumentError(
                "A share of granules has an account and a name, and one of them is absent.",
                "Give --archive-account and --archive-share, or none of them.",
            )
        if self.account and not _ACCOUNT.match(self.account):
            raise ArgumentError(
                f"{self.account!r} is not a resource id of a storage account.",
                "Use what `az storage account show --name NAME --query id` prints.",
            )
        self._check_sources()

    def _check_sources(self) -> None:
        folder = self.archive or self.account
        try:
            default, products = parse_chains(self.sources)
        except SourcesSettingError:
            raise ArgumentError(
                "No source of granules is named.",
                "Give --sources cmr for NASA's archives, or --sources folder with --archive or "
                "--archive-account (docs/archives.md).",
            ) from None
        if "folder" in {*default, *(one for chain in products.values() for one in chain)}:
            if not folder:
                raise ArgumentError(
                    "The sources name the folder, but none is given.",
                    "Give --archive with its URL, or --archive-account and --archive-share.",
                )
        elif folder:
            raise ArgumentError(
                "A folder of granules is given, but the sources do not name it.",
                f"Give --sources folder,{self.sources}.",
            )


def read_settings_given(pairs: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE`; the prefix SWATHMILL_ may be left out. Names OTEL_* go as they are.

    Raises:
        ArgumentError: there is no such setting, it has a parameter of its own, or the value cannot
            be used.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if equals and _TRACES.match(name.strip()):
            found[name.strip()] = value
            continue
        field_name = name.strip().lower().removeprefix("swathmill_")
        if not equals or field_name not in Settings.model_fields:
            raise ArgumentError(
                f"--set {pair}: there is no such setting.",
                "Write NAME=VALUE, such as RESULT_DAYS=60 (docs/settings.md).",
            )
        if field_name in MADE:
            raise ArgumentError(
                f"--set {pair}: a deployment makes this setting itself, or has an option for it.",
                "Leave it out (docs/guides/run-in-the-cloud.md).",
            )
        try:
            read = getattr(Settings.model_validate({field_name: value}), field_name)
        except ValidationError as error:
            raise ArgumentError(
                f"--set {pair}: {error.errors()[0]['msg']}.", "Correct it (docs/settings.md)."
            ) from None
        # One way to write a number: the template looks at some.
        found[f"SWATHMILL_{field_name.upper()}"] = f"{read:g}" if isinstance(read, float) else value
    return found
