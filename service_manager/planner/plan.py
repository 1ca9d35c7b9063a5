"""A whole plan at once: for requests of a known size, and tests."""

from archives.model import Archive
from service_manager.planner.course import Course
from tasks.model.packages import Packages
from tasks.model.plan import Plan
from tasks.request.checks import Limits
from tasks.request.request import Request


def plan(request: Request, archive: Archive, packages: Packages, limits: Limits) -> Plan:
    """All tasks of a request, inputs first, and what it asks for that cannot be had.

    Raises:
        RequestRefusedError: the request means nothing here, matches no granule, or is too large.
        ArchiveError: the archive could not be searched.
    """
    course = Course(request, archive, packages, limits)
    tasks = {task.key: task for stretch in course.stretches() for task in stretch.tasks()}
    return Plan(
        tasks=tuple(tasks.values()),
        gaps=tuple(course.gaps()),
        notes=course.notes,
        package=course.package,
    )
