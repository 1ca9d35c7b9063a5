"""A plan frozen in a blob: the same plan is written again after a crash, whatever the archive
lists by then."""

import gzip
import json
from collections.abc import Iterator

from tasks.blobs import PACKAGES, PLANS, Blobs
from tasks.errors import BlobExistsError, BlobMissingError
from tasks.plan import Gap, Plan, PlannedTask
from tasks.spec import load_spec

FORMAT = 1


def freeze(blobs: Blobs, request: str, plan: Plan) -> Plan:
    """Store a plan and return it; where one is frozen already, return that."""
    if plan.package is not None:
        _store_package(blobs, plan)
    try:
        blobs.put_bytes(PLANS, _name(request), gzip.compress(_dump(plan), mtime=0))
    except BlobExistsError:
        return thaw(blobs, request) or plan
    return plan


def thaw(blobs: Blobs, request: str) -> Plan | None:
    """The frozen plan of a request, if there is one."""
    try:
        data = blobs.get_bytes(PLANS, _name(request))
    except BlobMissingError:
        return None
    lines = gzip.decompress(data).splitlines()
    head = json.loads(lines[0])
    return Plan(
        tasks=tuple(_tasks(lines[1:])),
        gaps=tuple(Gap(what=what, reason=reason) for what, reason in head["gaps"]),
        notes=tuple(head["notes"]),
    )


def _name(request: str) -> str:
    return f"{request}.plan.gz"


def _dump(plan: Plan) -> bytes:
    head = {
        "format": FORMAT,
        "gaps": [[gap.what, gap.reason] for gap in plan.gaps],
        "notes": list(plan.notes),
    }
    lines = [json.dumps(head)]
    for planned in plan:
        lines.append(json.dumps([planned.output, planned.spec.model_dump_json()]))
    return "\n".join(lines).encode()


def _tasks(lines: list[bytes]) -> Iterator[PlannedTask]:
    for line in lines:
        output, spec = json.loads(line)
        yield PlannedTask(spec=load_spec(spec), output=output)


def _store_package(blobs: Blobs, plan: Plan) -> None:
    if plan.package is not None:
        container, name = PACKAGES, plan.package.blob
        if not blobs.exists(container, name):
            blobs.put_bytes(container, name, plan.package.data)
