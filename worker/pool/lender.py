"""Where there is a reduction pool, a worker has its runners run the packages of others."""

from tasks.bag.runtime import Runtime
from tasks.settings import Settings
from worker.sandbox.messages import Job
from worker.slots.service import Places
from worker.slots.supervisor import RunningProcess

_GB = 10**9


def pooled(settings: Settings, runtime: Runtime) -> Places | None:
    """Return the pool of the settings, where packages run; None where there is none."""
    if not settings.reduction_pool:
        return None
    # Only where there is a pool: each module of a worker's own process costs its start.
    from worker.pool.remote import Pool

    host, _, port = settings.reduction_pool.rpartition(":")
    most = int(settings.attempt_disk_gb * _GB)
    pool = Pool(host=host, port=int(port), blobs=runtime.blobs, most_bytes=most)

    def start(job: Job) -> RunningProcess:
        return pool.start(job)

    return Places(line=f"reduction pool {settings.reduction_pool}", start=start)
