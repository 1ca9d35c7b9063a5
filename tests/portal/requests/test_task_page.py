"""The page of a task that many requests want."""

from unittest.mock import Mock

import pytest

from portal.requests import task_page
from portal.serving.tokens import Person, Role
from tasks.bag.runtime import Runtime
from tests.portal.submissions import submitted


def test_so_many_requests_are_named_and_of_others_none(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that one may see are counted: strangers' requests before them take no place."""
    monkeypatch.setattr(task_page, "_MOST_WANTING", 2)
    interests = tuple(submitted(runtime, owner) for owner in ("eve", "eve", "ada", "ada", "ada"))

    def named(owner: str, role: Role) -> list[str]:
        person = Person(owner=owner, role=role)
        return [row.id for row in task_page._wanted(Mock(runtime=runtime), person, interests)]

    assert named("ada", Role.SCIENTIST) == [*interests[2:4]]
    assert named("op", Role.OPERATOR) == [*interests[:2]]
    assert named("bob", Role.SCIENTIST) == []
