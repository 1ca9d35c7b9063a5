"""Every setting of Swathmill, read from the environment with the prefix SWATHMILL_."""

import os
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from archives.fetch.credentials import EARTHDATA_HOSTS
from tasks.errors import SwathmillError
from tasks.network_hosts import AllowedHosts, read_allowed
from tasks.secret_settings import is_secret_setting
from tasks.setting_values import PLACE_NAME, READERS, Confirm, SmtpServer

Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
HEARTBEATS = 6  # of a worker, within the silence after which it is lost


class Settings(BaseSettings):
    """One class for all processes; docs/settings.md has the same table, and a test holds it."""

    model_config = SettingsConfigDict(env_prefix="SWATHMILL_", frozen=True)

    data_dir: Path = Field(Path(".swathmill"), description="Folder for everything kept on disk.")
    storage: SecretStr = Field(
        SecretStr(""),
        description="`file:` and a folder's absolute path (the storage of one machine); or an "
        "Azure Storage connection string; or, when the process has a managed identity, the "
        "account's name or addresses: `BlobEndpoint=...;QueueEndpoint=...;TableEndpoint=...`.",
    )
    redis_url: SecretStr = Field(
        SecretStr(""), description="Redis, which carries Celery's messages."
    )
    archive: str = Field(
        "",
        description="Folder of granules, or its fsspec URL (`abfs://container/folder`): the source "
        "`folder`.",
    )
    sources: str = Field(
        "",
        description="Sources of granules in order, and those of single products: "
        "`folder,cmr; MOD04_L2=laads,cmr` (docs/archives.md); empty: the folder alone.",
    )
    earthdata_token: SecretStr = Field(
        SecretStr(""), description="NASA Earthdata Login token, for downloads from NASA."
    )
    earthdata_hosts: str = Field(
        ",".join(EARTHDATA_HOSTS),
        description="The only hosts that see the token, separated by commas.",
    )
    host_connections: Count = Field(
        8, description="Connections to one archive host at once, over all workers."
    )
    host_rate: Positive = Field(
        10.0, description="Requests a second to one archive host, over all workers."
    )
    packages: str = Field(
        "",
        description="Folder of further reduction packages, to develop them; uploaded ones need "
        "none.",
    )
    python_index: str = Field(
        "default",
        description="Address of the registry from which the Python dependencies of uploaded "
        "packages are resolved. default: PyPI; empty: such packages are refused.",
    )
    portal_url: str = Field("http://127.0.0.1:8000", description="The portal's public address.")
    portal_address: str = Field("127.0.0.1:8000", description="`HOST:PORT` the portal binds to.")
    trusted_proxies: str = Field(
        "127.0.0.1,::1",
        description="Addresses and networks of proxies, separated by commas, whose "
        "`X-Forwarded-For` and `X-Forwarded-Proto` are believed; empty: none is.",
    )
    caller_rate: float = Field(
        200.0,
        ge=0,
        description="Calls a second from one address, ten times as many at once; 0: no limit.",
    )
    caller_gb: float = Field(
        0.0,
        ge=0,
        description="GB of such answers that a caller is sent in an hour; 0: no limit.",
    )
    probe_address: str = Field(
        "",
        description="`HOST:PORT` at which a process answers `/livez`, `/readyz` and `/metrics`; "
        "empty: nowhere.",
    )
    secret: SecretStr = Field(
        SecretStr(""),
        description="Key that signs sign-in links and sessions; at least 32 characters.",
    )
    oidc_issuer: str = Field(
        "",
        description="OpenID provider at which people sign in, such as "
        "`https://login.microsoftonline.com/TENANT/v2.0`; empty: there is none.",
    )
    oidc_client_id: str = Field("", description="What the provider calls this portal.")
    oidc_client_secret: SecretStr = Field(
        SecretStr(""), description="Secret that the provider has given this portal."
    )
    oidc_claims: str = Field(
        "email,groups",
        description="The claim that is the owner of a person's requests, and the one that lists a "
        "person's groups.",
    )
    oidc_scopes: str = Field(
        "openid email profile", description="Scopes that the provider is asked for."
    )
    oidc_groups: str = Field(
        "", description="Groups that may sign in, separated by commas; empty: everyone."
    )
    oidc_operators: str = Field(
        "", description="Groups whose members are operators, separated by commas."
    )
    smtp_url: str = Field(
        "",
        description="Mail server: `smtp://`, `smtp+starttls://` or `smtps://`, then "
        "`[USER@]HOST[:PORT]`; the ports are else 25, 587 and 465. Empty: mail is only kept in the "
        "outbox.",
    )
    smtp_password: SecretStr = Field(
        SecretStr(""), description="Password of the user at the mail server."
    )
    mail_from: str = Field("swathmill@localhost", description="Sender of every mail.")

    slots: Count = Field(2, description="Attempts a worker runs at once.")
    worker_name: str = Field("", description="Name of this worker; empty: host name and process.")
    worker_place: str = Field(
        "",
        pattern=f"^({PLACE_NAME.pattern})?$",
        description="Place of this worker: it takes the work of that place alone; empty: all work "
        "that has no place.",
    )
    cache_gb: Positive = Field(
        5.0,
        description="Bound of a machine's local granule cache, in GB; a quarter more for unpacked "
        "packages, and as much for downloads that were cut.",
    )
    disk_quota_gb: Positive = Field(20.0, description="Bound of the data folder, in GB.")
    attempt_memory_gb: Positive = Field(
        4.0, description="Memory that an attempt, one to a slot, may use, in GB."
    )
    attempt_disk_gb: Positive = Field(
        16.0, description="Disk that a run of a package may use, in GB."
    )
    checkpoint_seconds: Positive = Field(
        60.0,
        description="Time in which the newest checkpoint of a run is stored once; a sixth of it "
        "is between two looks whether there is a newer one.",
    )
    grace_seconds: float = Field(
        30.0, ge=0, description="Time running attempts have to end when a worker is asked to stop."
    )
    instance_metadata: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Address of Azure's instance metadata, `http://169.254.169.254/metadata`: a "
        "worker asks it every five seconds whether its machine is to be taken away, and hands back "
        "in time what does not end. Empty: nobody is asked.",
    )
    sandbox: str = Field(
        "bubblewrap",
        pattern="^(bubblewrap|limits|exactly: ?(bubblewrap|limits))$",
        description="The weakest tier of the sandbox in which a reduction may run: `bubblewrap`, "
        "or also `limits`, where bubblewrap does not work. The strongest that works is taken; "
        "after `exactly:` the named tier and no other.",
    )

    reduction_pool: str = Field(
        "",
        description="`HOST:PORT` of the reduction pool, whose runners run uploaded packages for "
        "the workers; empty: workers run them themselves.",
    )
    runner_address: str = Field(
        "127.0.0.1:8002",
        description="`HOST:PORT` a runner of that pool binds to; it has `SWATHMILL_SLOTS` slots, "
        "too.",
    )
    network_hosts: str = Field(
        "",
        description="Hosts that packages may connect to if they name them, and from which rasters "
        "are fetched: `HOST` or `HOST:PORT`, separated by commas. Networks in which their "
        "addresses may lie although they are not public follow alike: `10.1.0.0/16`. Empty: "
        "packages have no network, and rasters are uploaded only.",
    )

    copy_hosts: str = Field(
        "",
        description="Hosts to which results may be copied besides the clouds' own: `HOST` or "
        "`HOST:PORT`, and networks in which addresses may lie although they are not public, "
        "separated by commas.",
    )

    lease_seconds: Positive = Field(
        30.0,
        description="Silence after which a worker is lost and ends its own attempts. It says six "
        "times as often that it lives; each time as long the manager reads all markers, and sends "
        "messages of ready tasks again that nobody has taken.",
    )
    timeout_ceiling: Positive = Field(
        3600.0,
        description="Largest time limit, and the one where nothing similar was timed.",
    )
    probe_seconds: float = Field(
        600.0,
        ge=0,
        description="Wait before a worker drained for slowness, or a failing host, is tried again; "
        "longer after a try that was slow or failed. 0: none is held.",
    )
    scale_seconds: Positive = Field(
        300.0, description="Seconds in which the slots wanted would finish the ready tasks."
    )
    scale_slots: str = Field(
        "0-",
        description="`LEAST-MOST`: slots wanted when there is no work, and the most ever wanted; "
        "`LEAST-`: no limit.",
    )
    work_places: str = Field(
        "",
        description="Work that only the workers of a place do, `PLACE=WORK,WORK PLACE=WORK`; WORK "
        "is the first words of a task class, joined by slashes, as in `gpu=reduction/segment`.",
    )
    scale_in_seconds: float = Field(
        0.0,
        ge=0,
        description="Seconds with more slots than wanted, after which workers are asked to end "
        "when they run nothing. 0: never, the platform ends workers.",
    )
    retry_budget: Count = Field(3, description="Attempts of a task before it has failed.")
    retry_base: Positive = Field(
        5.0, description="First back-off, in seconds; it doubles, up to 120 times as much."
    )
    max_tasks: Count = Field(2_000_000, description="Largest plan that is accepted, in tasks.")
    confirm: str = Field(
        str(Confirm()),
        description="Tasks, GB to fetch, expected hours of one core and expected cost beyond which "
        "a request waits for its owner's confirmation; what is not named has its default.",
    )
    result_days: float = Field(
        30.0, ge=0, description="Days for which a request's results are kept after its end."
    )
    result_link_minutes: float = Field(
        0.0,
        ge=0,
        le=1440,
        description="Minutes for which a signed link is good by which a result is read straight "
        "from Azure Storage; people have to reach the account. 0: the portal sends results itself.",
    )
    blocks: str = Field(
        "",
        description="`MIBxCOUNT`, such as `8x4`: the blocks in which files go to and from Azure's "
        "blobs, and how many of a file are under way at once; empty: blocks by the file's size, 4 "
        "at once.",
    )
    storage_quota_gb: float = Field(
        0.0, ge=0, description="GB of artifacts to keep, least worth going first; 0: no bound."
    )
    max_pixels: Count = Field(
        400_000_000, description="Largest raster among a request's results, in pixels."
    )
    log_level: str = Field(
        "info", pattern="^(debug|info|warning|error)$", description="Least severity that is logged."
    )

    @field_validator("portal_address", "runner_address", "probe_address", "reduction_pool")
    @classmethod
    def _with_port(cls, address: str, info: ValidationInfo) -> str:
        if address or info.field_name in ("portal_address", "runner_address"):
            _, port = host_and_port(address)
            if info.field_name == "reduction_pool" and not port:
                raise ValueError("it has no port")
        return address

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, proxies: str) -> str:
        """Refuse names and `*`: whoever reaches the portal could state any address."""
        for proxy in filter(None, map(str.strip, proxies.split(","))):
            ip_network(proxy, strict=False)
        return proxies

    @field_validator(*READERS)
    @classmethod
    def _in_parts(cls, text: str, info: ValidationInfo) -> str:
        READERS[str(info.field_name)].read(text)
        return text

    @field_validator("network_hosts", "copy_hosts")
    @classmethod
    def _readable(cls, hosts: str) -> str:
        read_allowed(hosts)
        return hosts

    @property
    def heartbeat_seconds(self) -> float:
        """Time between a worker's heartbeats."""
        return self.lease_seconds / HEARTBEATS

    @property
    def smtp(self) -> SmtpServer | None:
        """The mail server, or None."""
        return SmtpServer.read(self.smtp_url)

    @property
    def allowed_hosts(self) -> AllowedHosts:
        """The hosts that packages may connect to, and from which rasters are fetched."""
        return read_allowed(self.network_hosts)

    @property
    def allowed_copy_hosts(self) -> AllowedHosts:
        """The hosts to which results may be copied besides the clouds' own."""
        return read_allowed(self.copy_hosts)


class WrongSettingError(SwathmillError):
    """A setting has a value that cannot be used."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


def host_and_port(address: str) -> tuple[str, int]:
    """Split `HOST:PORT`; IPv6 stands in brackets. Raises ValueError for anything else."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and int(port) < 65536):
        raise ValueError("it is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def default(name: str) -> Any:
    """Return the default of a setting, for whoever has it as a default of his own."""
    return Settings.model_fields[name].default


_ADDRESS, _SMTP = "ADDRESS=HOST:PORT", "SMTP_URL=smtp+starttls://USER@HOST:PORT"
_REPLACED = {
    **{
        f"{one}_{part}": f"{one}_{_ADDRESS}"
        for one in ("PORTAL", "PROBE", "RUNNER")
        for part in ("HOST", "PORT")
    },
    **dict.fromkeys(("SMTP_HOST", "SMTP_PORT", "SMTP_USER", "SMTP_TLS"), _SMTP),
    **dict.fromkeys(
        ("PRICES", "PRICE_STORAGE", "PRICE_CORE_HOUR", "PRICE_DOWNLOAD"),
        "swathmill prices core-hour=AMOUNT storage=AMOUNT --currency NAME",
    ),
    **{f"CONFIRM_{one}": f"CONFIRM='{Confirm()}'" for one in ("TASKS", "GB", "COST")},
    **dict.fromkeys(("SCALE_LEAST", "SCALE_MOST"), "SCALE_SLOTS=LEAST-MOST"),
    **dict.fromkeys(("BLOCK_MIB", "BLOCKS_AT_ONCE"), "BLOCKS=MIBxCOUNT"),
    "HEARTBEAT_SECONDS": "LEASE_SECONDS=SECONDS",
    **dict.fromkeys(("OIDC_OWNER_CLAIM", "OIDC_GROUPS_CLAIM"), "OIDC_CLAIMS=OWNER,GROUPS"),
}
"""Settings that are no more, and what to write: without it a process would do something else."""


def read_settings() -> Settings:
    """Read all settings.

    Raises:
        WrongSettingError: a value cannot be used, or a setting has another name now; names the
            first such setting.
    """
    for old, new in _REPLACED.items():
        if f"SWATHMILL_{old}" in os.environ:
            raise WrongSettingError(
                f"The setting SWATHMILL_{old} is no more.",
                f"Run `{new}` once, and unset it (docs/operations.md)."
                if new.startswith("swathmill ")
                else f"Write SWATHMILL_{new}, and unset it (docs/settings.md).",
            )
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = f"SWATHMILL_{str(first['loc'][0]).upper()}"
        shown = os.environ.get(name, "")
        what = first["msg"].partition(", ")[0].removeprefix("Input ")
        if first["type"] == "value_error":
            what = f"cannot be used: {first['ctx']['error']}"
        if first["type"] == "string_pattern_mismatch":
            what = f"should be one of {first['ctx']['pattern'].strip('^()$').replace('|', ', ')}"
        raise WrongSettingError(
            f"The setting {name} is {shown!r}; it {what}.",
            f"Correct or unset {name} (docs/settings.md).",
        ) from None


def forget_secrets() -> None:
    """Take all secret settings out of the environment, which children would have otherwise."""
    for name in [name for name in os.environ if is_secret_setting(name)]:
        del os.environ[name]
