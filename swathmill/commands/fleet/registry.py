"""The engines by name, each with what follows its name."""

from swathmill.commands.fleet.engine import Engine
from swathmill.errors import ArgumentError

FORMS = ("slurm:SCRIPT", "kubernetes:DEPLOYMENT", "container-apps:RESOURCE-ID", "batch:FILE")
"""How engines are named."""


def open_engine(text: str, slots: int, place: str = "") -> Engine:
    """Return the engine that a text names; its workers have so many slots, and do work of a place.

    Raises ArgumentError for an unknown engine, or where the engine is not to be had.
    """
    kind, _, which = text.partition(":")
    # Each imports what only its engine needs.
    if kind == "slurm":
        from swathmill.commands.fleet.slurm import Slurm

        return Slurm(which, slots, place)
    if kind == "kubernetes":
        from swathmill.commands.fleet.kubernetes import Kubernetes

        return Kubernetes(which, place)
    if kind == "container-apps":
        from swathmill.commands.fleet.container_apps import ContainerAppsJob

        return ContainerAppsJob(which)  # its template says the place
    if kind == "batch":
        from swathmill.commands.fleet.batch import Batch

        return Batch(which, place)
    raise ArgumentError(f"ENGINE {text!r} names no engine.", f"Use {', '.join(FORMS)}.")
