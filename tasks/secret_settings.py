"""Which variables of the environment hold secrets; this module imports nothing that takes long."""

EMBEDDED = "file:"
"""How the setting of storage begins where it is a folder of this machine."""
PREFIX = "SWATHMILL_"
SECRET = frozenset(
    {
        *("STORAGE", "REDIS_URL", "EARTHDATA_TOKEN", "SECRET"),
        *("OIDC_CLIENT_SECRET", "SMTP_PASSWORD"),
    }
)
"""The settings that are secret, without the prefix."""
COLLECTOR_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
"""What is sent along to a collector of traces, which may hold a key."""


def is_secret_setting(name: str) -> bool:
    """Tell whether a variable of the environment is a setting that may be secret."""
    return name.upper().startswith(PREFIX) and name.upper().removeprefix(PREFIX) in SECRET


def is_secret(name: str, value: str) -> bool:
    """Tell whether a variable of the environment holds a secret.

    The folder of embedded storage is none.
    """
    folder = name.upper() == f"{PREFIX}STORAGE" and value.startswith(EMBEDDED)
    return (is_secret_setting(name) and not folder) or name in COLLECTOR_HEADERS
