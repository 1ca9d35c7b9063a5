"""Whether a person's request can work: what its names mean, its document, and its packages."""

from tasks.errors import RequestRefusedError
from tasks.network_hosts import not_allowed
from tasks.packages.packages import (
    OURS,
    NoPackageError,
    Package,
    PackageError,
    PackageSource,
    Resources,
)
from tasks.request.checks import check_request, parameter_problems
from tasks.request.document import Request
from tasks.request.library import Library
from tasks.request.resolved import ResolvedRequest, resolve
from tasks.request.steps import Step
from tasks.request.taking import raster_outputs
from tasks.settings import Settings

_MODEST = Resources()  # of packages that name no number


def admitted(library: Library, owner: str, request: Request, limits: Settings) -> ResolvedRequest:
    """Work out what a request comes to, with all that its names mean to its owner, and check it.

    Raises RequestRefusedError, which names the field, for one that cannot work.
    """
    resolved = resolve(library.described(owner, request))
    check(resolved, limits, library.packages_of(owner))
    return resolved


def check(resolved: ResolvedRequest, limits: Settings, packages: PackageSource) -> None:
    """Refuse a request that its document rules out; RequestRefusedError names the field."""
    check_request(resolved, limits)
    found = [_package(step, limits, packages) for step in resolved.steps]
    raster_outputs(resolved, found)
    for step, package in zip(resolved.steps, found, strict=True):
        for name, problem, remedy in parameter_problems(
            package, step.reduction.parameters, leave_out="leave parameters out"
        ):
            raise RequestRefusedError(f"{step.field}.parameters.{name}", problem, remedy)


def _package(step: Step, limits: Settings, packages: PackageSource) -> Package:
    name = step.reduction.package
    try:
        found = packages.find(name)
    except NoPackageError as error:
        raise RequestRefusedError(f"{step.field}.package", error.problem, error.remedy) from None
    except PackageError as error:
        raise RequestRefusedError(
            f"{step.field}.package",
            f"{name} cannot be used: {error}",
            "Choose another package, or have this one corrected.",
        ) from None
    package = found.package
    if found.owner != OURS:  # a shipped package gets by with less: it looks at blocks of rows
        _check_resources(package, limits, f"{step.field}.package")
    if refused := limits.allowed_hosts.refused(package.network):
        raise RequestRefusedError(f"{step.field}.package", *not_allowed(package.name, refused))
    return package


def _check_resources(package: Package, limits: Settings, field: str) -> None:
    wanted = package.resources
    for name, what, asked, given, setting in (
        ("memory_gb", "memory", wanted.memory_gb, limits.attempt_memory_gb, "ATTEMPT_MEMORY_GB"),
        ("output_gb", "disk", wanted.output_gb, limits.attempt_disk_gb, "ATTEMPT_DISK_GB"),
    ):
        if asked > max(given, getattr(_MODEST, name)):
            raise RequestRefusedError(
                field,
                f"{package.name} needs {asked:g} GB of {what}, and a run here has {given:g} GB.",
                f"Lower `{name}` in its package.yaml, or ask the operator for more "
                f"(SWATHMILL_{setting}).",
            )
