"""Each time for which something is kept or good has a test at its boundary, named here.

A constant of hours or days that is not listed fails the first test: add it, with the test that
stands a second before and after it.
"""

import ast
import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

from portal.serving import tokens
from portal.serving.tokens import Use
from tasks.accounts import reader_links, session_table, sign_in_links
from tasks.accounts.token_table import Scope, TokenTable, make_token
from tasks.holdings.stored_structures import STRETCH, StoredStructures, drop_old
from tasks.requests import outbox
from tasks.requests.outbox import Mail
from tasks.storage import file_blobs
from tasks.storage.blobs import MemoryBlobs
from tasks.storage.clock import ManualClock
from tasks.storage.file_blobs import FileBlobs
from tasks.storage.memory_store import MemoryStore
from worker.files import cache, partials, unpacked
from worker.files.partials import Partials

ROOT = Path(__file__).parents[2]
SECRET = "k" * 32
HERE = "tests/tasks/test_retentions.py::"
SERVICE = "tests/service_manager/"
UNIT = "a unit: nothing is kept for it"
LISTED = {
    "tasks/messages/celery_app.py::_KEPT": "Redis ends it: the number goes to its EXPIRE",
    "tasks/accounts/reader_links.py::LIFETIME": HERE + "test_links_are_good_until_their_end",
    "tasks/accounts/reader_links.py::ASKED_LIFETIME": HERE + "test_links_are_good_until_their_end",
    "tasks/accounts/sign_in_links.py::LIFETIME": HERE + "test_links_are_good_until_their_end",
    "tasks/holdings/stored_structures.py::STRETCH": HERE
    + "test_what_was_learnt_of_a_granule_stays_for_a_whole_stretch",
    "tasks/storage/file_blobs.py::_ABANDONED": HERE
    + "test_what_a_killed_writer_left_stays_for_an_hour",
    "tasks/operators/manager_rows.py::_DAY": SERVICE
    + "leader/test_presence.py::test_the_rows_of_managers_that_were_killed_are_deleted_after_a_day",
    "tasks/requests/outbox.py::KEPT": HERE + "test_a_mail_stays_for_sixty_days",
    "tasks/operators/restrictions.py::_HOUR": UNIT,
    "tasks/accounts/session_table.py::LONGEST": HERE + "test_an_end_of_one_stays_for_31_days",
    "tasks/accounts/token_table.py::_DAY": HERE + "test_a_token_is_good_until_its_last_second",
    "service_manager/fleet/attempts.py::_FORGOTTEN": SERVICE
    + "fleet/test_attempts.py::test_a_row_of_long_ago_is_deleted_though_storage_gave_no_answer",
    "service_manager/leader/metrics.py::_ATTEMPT_SECONDS": UNIT,
    "service_manager/requests/intake.py::_HOUR": UNIT,
    "tasks/operators/prices.py::_HOUR": UNIT,
    "tasks/operators/retail_prices.py::_HOURS": UNIT,
    "service_manager/requests/continuing.py::DAY": SERVICE
    + "requests/test_continuing.py::test_it_waits_for_its_end_for_its_days_and_for_later_data",
    "service_manager/requests/continuing.py::PERIOD": SERVICE
    + "requests/test_continuing.py::test_an_hour_is_between_two_looks",
    "service_manager/mail/notify.py::GIVE_UP": SERVICE
    + "mail/test_notify.py::test_an_old_mail_is_given_up",
    "service_manager/storage/retention.py::_DAY": SERVICE + "storage/test_retention.py"
    "::test_failures_and_counts_by_worker_go_after_a_year_and_the_rest_stays",
    "service_manager/storage/worth.py::_HOUR": UNIT,
    "service_manager/storage/worth.py::_DAY": UNIT,
    "service_manager/storage/worth.py::_MONTH": UNIT,
    "portal/app.py::_WEEK": UNIT,
    "portal/serving/caller_limits.py::HOUR": "tests/portal/serving/test_caller_limits.py::"
    "test_the_limits_are_those_of_the_settings",
    "portal/serving/tokens.py::LIFETIMES": HERE
    + "test_what_is_signed_is_good_until_its_last_second",
    "portal/accounts/sign_in_mail.py::HOUR": "tests/portal/accounts/test_mail_links.py::"
    "test_mails_are_bounded_and_the_bound_does_not_say_who_is_known",
    "worker/files/cache.py::_ABANDONED": HERE + "test_hours_after_which_leftovers_go",
    "worker/files/partials.py::_OLD": HERE + "test_a_download_that_was_cut_stays_for_a_week",
    "worker/files/unpacked.py::_ABANDONED": HERE + "test_hours_after_which_leftovers_go",
}


def long_times() -> Iterator[str]:
    """The module-level constants that are written by hours or days."""
    tops = ("tasks", "service_manager", "portal", "worker")
    for path in chain.from_iterable(sorted((ROOT / top).rglob("*.py")) for top in tops):
        if "packages" in path.parts:
            continue
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, value = node.targets[0].id, ast.unparse(node.value)
                hours = re.search(r"\b(86400|3600)\b|(?<![A-Z])_DAY\b|(?<![A-Z])_HOUR\b", value)
                if re.fullmatch(r"_?[A-Z][A-Z_0-9]*", name) and hours:
                    yield f"{path.relative_to(ROOT).as_posix()}::{name}"


def test_each_long_time_has_a_test_at_its_boundary() -> None:
    assert set(long_times()) == LISTED.keys()
    for constant, test in LISTED.items():
        file, _, name = test.partition("::")
        if name:
            assert f"def {name}(" in (ROOT / file).read_text("utf-8"), constant


def test_what_was_learnt_of_a_granule_stays_for_a_whole_stretch() -> None:
    blobs, end = MemoryBlobs(), 700 * STRETCH
    StoredStructures(blobs, lambda: end - 1).put("granule", b"structure")
    last = end + STRETCH - 1
    assert [*drop_old(blobs, last)] == []
    assert StoredStructures(blobs, lambda: last).find("granule") == b"structure"
    assert StoredStructures(blobs, lambda: last + 1).find("granule") is None
    assert [*drop_old(blobs, last + 1)] == [True]


def test_a_mail_stays_for_sixty_days() -> None:
    store, clock = MemoryStore(), ManualClock()
    written = clock.now()
    mail = Mail(request="", to="a@example.org", kind="k", subject="s", body="b", written=written)
    outbox.put(store, clock, mail)
    assert outbox.drop_old(store, written + 60 * 86_400) == 0
    assert outbox.drop_old(store, written + 60 * 86_400 + 1) == 1


def test_an_end_of_one_stays_for_31_days() -> None:
    """So long as the longest is good, and a day: it may not come back to life."""
    store, clock = MemoryStore(), ManualClock()
    session_table.end_one(store, clock, "ada", "first")
    clock.sleep(31 * 86_400)
    session_table.end_one(store, clock, "ada", "second")
    assert len(session_table.ended(store, "ada").singly) == 2
    clock.sleep(1)
    session_table.end_one(store, clock, "ada", "third")
    assert len(session_table.ended(store, "ada").singly) == 2
    assert max(tokens.LIFETIMES.values()) < session_table.LONGEST


def test_a_token_is_good_until_its_last_second() -> None:
    store = MemoryStore()
    text, _ = make_token(
        store, owner="ada", role="scientist", scope=Scope.READ, name="x", now=1000.0, days=2
    )
    table = TokenTable(store)
    assert table.find(text, 1000.0 + 2 * 86_400 - 1) is not None
    assert table.find(text, 1000.0 + 2 * 86_400) is None


@pytest.mark.parametrize("use", Use)
def test_what_is_signed_is_good_until_its_last_second(
    use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = {Use.API: 1, Use.LINK: 7 * 24, Use.SESSION: 30 * 24, Use.PROVIDED: 12}[use]
    began = int(time.time())
    monkeypatch.setattr(time, "time", lambda: float(began))
    text = tokens.issue(SECRET, "ada", use=use)
    monkeypatch.setattr(time, "time", lambda: began + 3600.0 * hours)
    assert tokens.read_signed(SECRET, text, use=use) is not None
    monkeypatch.setattr(time, "time", lambda: began + 3600.0 * hours + 1)
    assert tokens.read_signed(SECRET, text, use=use) is None


def test_links_are_good_until_their_end() -> None:
    days = (reader_links.LIFETIME, reader_links.ASKED_LIFETIME, sign_in_links.LIFETIME)
    assert days == (30 * 86_400, 86_400, 3_600)
    text = sign_in_links.issue(SECRET, "ada", 5000.0)
    assert sign_in_links.read(SECRET, text, 4999.0)[0] == "ada"
    assert sign_in_links.read(SECRET, text, 5000.0)[0] == ""


@pytest.mark.parametrize(("age", "stays"), [(3590, True), (3610, False)])
def test_what_a_killed_writer_left_stays_for_an_hour(tmp_path: Path, age: int, stays: bool) -> None:
    blobs = FileBlobs(tmp_path / "blobs")
    blobs.create(["artifacts"])
    (left,) = (file_blobs._PARTIAL,)
    path = tmp_path / "blobs" / left / "half"
    path.write_bytes(b"half")
    then = time.time() - age
    os.utime(path, (then, then))
    blobs.create(["artifacts"])
    assert path.exists() == stays


def test_hours_after_which_leftovers_go() -> None:
    """As of the store of files: an hour, in which the slowest writer writes something."""
    assert {cache._ABANDONED, unpacked._ABANDONED, file_blobs._ABANDONED} == {3600.0}


@pytest.mark.parametrize(("age", "stays"), [(7 * 86_400 - 60, True), (7 * 86_400 + 60, False)])
def test_a_download_that_was_cut_stays_for_a_week(tmp_path: Path, age: int, stays: bool) -> None:
    now: Callable[[], float] = lambda: time.time() + age  # noqa: E731
    cut = tmp_path / "downloads" / "task"
    cut.mkdir(parents=True)
    (cut / "part").write_bytes(b"half")
    with Partials(tmp_path / "downloads", 10**9, now=now).place("other", tmp_path / "instead"):
        assert cut.exists() == stays
    assert partials._OLD == 7 * 86_400
