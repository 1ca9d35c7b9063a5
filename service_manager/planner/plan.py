"""The one way from a request to a plan."""

from archives.model import Archive
from reprojection.catalogue import product
from service_manager.planner.draft import Draft
from service_manager.planner.granules import find, nothing_found
from service_manager.planner.layers import Layout, Made, plan_product
from service_manager.planner.places import places
from service_manager.planner.reductions import chosen, plan_reduction
from tasks.checks import Limits, check_request, resampling_notes
from tasks.packages import Packages
from tasks.plan import Gap, Plan
from tasks.request import Request
from tasks.target import target


def plan(request: Request, archive: Archive, packages: Packages, limits: Limits) -> Plan:
    """All tasks of a request, inputs first, and what it asks for that cannot be had.

    Equal requests on an equal archive give equal plans. No granule is opened: the archive's
    records say where each lies.

    Raises:
        RequestRefusedError: the request means nothing here, matches no granule, or is too large.
        ArchiveError: the archive could not be searched.
    """
    check_request(request, limits)
    reduction = chosen(request, packages)
    goal = target(request)
    draft = Draft(limit=limits.max_tasks)
    draft.expect(len(goal.lattice.cells(goal.grid)))
    layout = Layout(request=request, target=goal, places=places(goal, request.region))
    made: list[Made] = []
    gaps: list[Gap] = []
    searched = False
    for choice in request.products:
        found = find(request, choice, archive)
        searched = searched or bool(found.by_day)
        cells, lacking = plan_product(layout, found, draft)
        made.extend(cells)
        gaps.extend(lacking)
    if not made:
        raise nothing_found(request, archive, touched=searched)
    if reduction is not None:
        plan_reduction(layout, reduction, made, draft)
    return Plan(
        tasks=draft.tasks,
        gaps=tuple(gaps),
        notes=(*resampling_notes(request), *_unknown(request)),
        package=reduction.archive if reduction else None,
    )


def _unknown(request: Request) -> tuple[str, ...]:
    """Products that the catalogue does not know: worked from their files' own attributes."""
    taken = "layers, scale, fill and classes"
    if isinstance(request.resampling, str) and request.resampling != "nearest":
        taken = "layers, scale, fill, classes and resampling"
    return tuple(
        f"{choice.name} collection {choice.collection} is not in the catalogue: {taken} are "
        "taken from the files' own attributes."
        for choice in request.products
        if product(choice.name, choice.collection) is None
    )
