"""What operators see and do, and whether the service works."""

from portal.operations import actions_page, executions_page, health, operations_page
from portal.operations.state import Operations
from portal.serving.portal import Feature

FEATURE = Feature(
    routers=(
        operations_page.api,
        actions_page.api,
        health.router,
        health.pages,
        operations_page.pages,
        executions_page.pages,
        actions_page.pages,
    ),
    state=Operations,
)
