"""What the manager goes by, out of the settings."""

from dataclasses import dataclass, field

from tasks.bag.time_limits import TimeLimits
from tasks.bag.transitions import RetryPolicy
from tasks.setting_values import Confirm, Slots, WorkPlaces
from tasks.settings import HEARTBEATS, Settings, default

_HEARTBEAT = default("lease_seconds") / HEARTBEATS


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """Times in seconds, counts of tasks."""

    name: str = "manager"
    tick: float = 0.5  # between two rounds, at most
    heartbeat: float = _HEARTBEAT
    sweep: float = default("lease_seconds")  # between two full reads of the markers
    resend: float = default("lease_seconds")  # of a ready task's message
    patience: float = _HEARTBEAT + 1.0  # before all get what one host was given
    lease: float = default("lease_seconds")
    window: int = 64  # batches of one request on the queue at once
    places: int = default("host_connections")  # messages for one archive host in flight at once
    max_tasks: int = default("max_tasks")
    confirm: Confirm = field(default_factory=Confirm)
    result_days: float = default("result_days")  # results are kept after a request's end
    history_days: float = 400.0  # failed attempts are listed, counts kept
    storage_quota_gb: float = default("storage_quota_gb")  # 0: none
    time_limits: TimeLimits = field(default_factory=TimeLimits)
    probe: float = default("probe_seconds")
    scale_seconds: float = default("scale_seconds")  # to finish the ready tasks with wanted slots
    scale_slots: Slots = field(default_factory=Slots)
    scale_in: float = default("scale_in_seconds")  # with too many slots, until workers leave
    work_places: WorkPlaces = field(default_factory=WorkPlaces)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    orphans: float = 3600.0  # between two looks at all blobs, and before a useless one is deleted
    slice: float = 0.5  # of one tick, spent on writing plans
    portal_url: str = default("portal_url")

    @classmethod
    def of(cls, settings: Settings, name: str) -> "ManagerOptions":
        """Return the options that the settings ask for; `name` tells this process from others."""
        return cls(
            name=name,
            sweep=settings.lease_seconds,
            resend=settings.lease_seconds,
            patience=settings.heartbeat_seconds + 1.0,  # what was taken is known by then
            heartbeat=settings.heartbeat_seconds,
            lease=settings.lease_seconds,
            places=settings.host_connections,
            max_tasks=settings.max_tasks,
            confirm=Confirm.read(settings.confirm),
            result_days=settings.result_days,
            storage_quota_gb=settings.storage_quota_gb,
            time_limits=TimeLimits.of(settings),
            probe=settings.probe_seconds,
            scale_seconds=settings.scale_seconds,
            scale_slots=Slots.read(settings.scale_slots),
            scale_in=settings.scale_in_seconds,
            work_places=WorkPlaces.read(settings.work_places),
            retry=RetryPolicy.of(settings),
            portal_url=settings.portal_url,
        )
