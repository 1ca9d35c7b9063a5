"""The engines by name, each with what follows its name."""

from swathmill.commands.fleet.place import Place
from swathmill.errors import ArgumentError

FORMS = ("slurm:SCRIPT", "kubernetes:DEPLOYMENT", "container-apps:RESOURCE-ID", "batch:FILE")
"""How places are named."""


def open_place(text: str, slots: int, of: str = "") -> Place:
    """Return the engine that a text names; its workers have so many slots, and do work of a place.

    Raises ArgumentError for an unknown engine, or where the engine is not to be had.
    """
    engine, _, which = text.partition(":")
    # Each imports what only its engine needs.
    if engine == "slurm":
        from swathmill.commands.fleet.slurm import Slurm

        return Slurm(which, slots, of)
    if engine == "kubernetes":
        from swathmill.commands.fleet.kubernetes import Kubernetes

        return Kubernetes(which, of)
    if engine == "container-apps":
        from swathmill.commands.fleet.container_apps import ContainerAppsJob

        return ContainerAppsJob(which)  # its template says the place
    if engine == "batch":
        from swathmill.commands.fleet.batch import Batch

        return Batch(which, of)
    raise ArgumentError(f"PLACE {text!r} names no engine.", f"Use {', '.join(FORMS)}.")
