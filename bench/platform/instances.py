"""How long virtual machines take to come and to go: create, run, add, suspend, delete.

A scale set of Azure stands for the study's worker roles. Every step is a call of `az` that returns
when the step is complete.
"""

import time
import uuid
from collections.abc import Iterator
from typing import Protocol

from bench.platform.clients import Call
from bench.platform.rates import Point
from swathmill.errors import StackError
from tasks.bag.categories import Category

IMAGE, SIZE = "Ubuntu2204", "Standard_B1s"


class Asks(Protocol):
    """Azure's command."""

    def ask(self, *words: str) -> object:
        """Run a call and return its answer. Raises StackError."""
        ...


def measure_instances(az: Asks, group: str, instances: int) -> Iterator[Point]:
    """Take a new scale set through its life, and yield how long each step took.

    The scale set is deleted at the end, also where a step failed; the steps after that one are left
    out.
    """
    name = f"study-{uuid.uuid4().hex[:8]}"
    where = ("--resource-group", group, "--name", name)
    steps = {
        "create": ("create", *where, "--image", IMAGE, "--vm-sku", SIZE, "--instance-count", "0",
                   "--generate-ssh-keys", "--public-ip-address", "", "--load-balancer", ""),
        "run": ("scale", *where, "--new-capacity", str(instances)),
        "add": ("scale", *where, "--new-capacity", str(2 * instances)),
        "suspend": ("deallocate", *where),
    }  # fmt: skip
    for operation, words in steps.items():
        point = _step(az, operation, ("vmss", *words), instances)
        yield point
        if point.calls[0].failure:
            break
    yield _step(az, "delete", ("vmss", "delete", *where), instances)


def _step(az: Asks, operation: str, words: tuple[str, ...], instances: int) -> Point:
    failure = ""
    began = time.monotonic()
    try:
        az.ask(*words)
    except StackError:
        failure = Category.UNKNOWN.value
    call = Call(client=0, began=began, ended=time.monotonic(), failure=failure)
    return Point(
        experiment="instances", operation=operation, size=0, clients=instances, calls=(call,)
    )
