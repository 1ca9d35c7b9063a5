"""Groups of people, at their bounds."""

import httpx
import pytest

from portal.accounts import group_pages
from portal.serving.tokens import LONGEST_OWNER
from tests.portal.scripted import LivePortal

ADA = "ada@example.org"


def test_one_owns_so_many_groups_of_so_many_members(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_pages, "MOST_GROUPS", 2)
    monkeypatch.setattr(group_pages, "MOST_MEMBERS", 2)
    with portal.client(ADA) as ada:

        def put(name: str, members: int = 0) -> httpx.Response:
            named = [f"m{number}" for number in range(members)]
            return ada.put(f"/api/groups/{name}", json={"members": named})

        assert put("one", 2).status_code == 200
        many = put("one", 3)
        assert (many.status_code, many.json()["field"]) == (400, "members")
        assert "at most 2 members besides its owner" in many.text
        assert put("two").status_code == 200
        third = put("three")
        assert third.status_code == 409
        assert third.json()["detail"] == "You own 2 groups, the most there may be."
        assert put("two", 1).status_code == 200  # one that is there may change
        ada.delete("/api/groups/one").raise_for_status()
        assert put("three").status_code == 200
    with portal.browser(ADA) as ada:
        long = ada.post("/groups", data={"name": "two", "members": "m" * (LONGEST_OWNER + 1)}).text
        assert "A member has more than 254 characters." in long
