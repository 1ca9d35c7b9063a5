"""What the manager goes by, out of the settings."""

from dataclasses import dataclass, field

from tasks.bag.time_limits import TimeLimits
from tasks.bag.transitions import RetryPolicy
from tasks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """Times in seconds, counts of tasks."""

    name: str = "manager"
    tick: float = 0.5
    sweep: float = 30.0
    resend: float = 30.0
    patience: float = 6.0  # before what one host was given is sent to all
    heartbeat: float = 5.0
    lease: float = 30.0
    window: int = 64
    places: int = 8  # messages for one archive host in flight at once
    max_tasks: int = 2_000_000
    confirm_tasks: int = 50_000  # beyond these a request waits for confirmation
    confirm_gb: float = 500.0  # to fetch
    confirm_cost: float = 100.0
    price_storage: float = 0.02  # of a GB for a month
    price_core_hour: float = 0.05
    price_download: float = 0.0  # of a GB
    result_days: float = 30.0  # results are kept after a request's end
    history_days: float = 400.0  # failed attempts are listed, and counts kept by worker
    storage_quota_gb: float = 0.0  # 0: none
    time_limits: TimeLimits = field(default_factory=TimeLimits)
    probe: float = 600.0
    scale_seconds: float = 300.0  # in which the slots wanted would finish the ready tasks
    scale_least: int = 0  # slots wanted without any work
    scale_most: int = 0  # 0: no limit
    scale_in: float = 0.0  # seconds with too many slots, after which workers leave; 0: never
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    orphans: float = 3600.0  # between two looks at all blobs, and before a useless one is deleted
    slice: float = 0.5  # of one tick, spent on writing plans
    portal_url: str = "http://127.0.0.1:8000"

    @classmethod
    def of(cls, settings: Settings, name: str) -> "ManagerOptions":
        """Return the options that the settings ask for; `name` tells this process from others."""
        return cls(
            name=name,
            tick=settings.tick_seconds,
            sweep=settings.sweep_seconds,
            resend=settings.resend_seconds,
            patience=settings.heartbeat_seconds + 1.0,  # what was taken is known by then
            heartbeat=settings.heartbeat_seconds,
            lease=settings.lease_seconds,
            window=settings.window,
            places=settings.host_connections,
            max_tasks=settings.max_tasks,
            confirm_tasks=settings.confirm_tasks,
            confirm_gb=settings.confirm_gb,
            confirm_cost=settings.confirm_cost,
            price_storage=settings.price_storage,
            price_core_hour=settings.price_core_hour,
            price_download=settings.price_download,
            result_days=settings.result_days,
            history_days=settings.history_days,
            storage_quota_gb=settings.storage_quota_gb,
            time_limits=TimeLimits.of(settings),
            probe=settings.probe_seconds,
            scale_seconds=settings.scale_seconds,
            scale_least=settings.scale_least,
            scale_most=settings.scale_most,
            scale_in=settings.scale_in_seconds,
            retry=RetryPolicy.of(settings),
            portal_url=settings.portal_url,
        )
