"""A mail's link lets its reader in, to that request and to read it; and ways to misuse it."""

import base64
import gzip
import html
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import structlog

from portal.accounts.sign_in_mail import ALTOGETHER, PER_ADDRESS, WAITING, SignInDesk
from portal.serving import tokens
from portal.serving.identity import COOKIE, READER_COOKIE
from portal.serving.tokens import Use
from service_manager.mail.notify import MailServer, Postman, Signing, message
from tasks.accounts import reader_links, sign_in_links
from tasks.bag.categories import Category
from tasks.bag.model import Phase, RequestState
from tasks.bag.runtime import Runtime
from tasks.request.document import parse_request
from tasks.requests import outbox, request_operations, request_table
from tasks.requests.outbox import Mail
from tasks.requests.request_table import PhaseCount
from tasks.service import backup
from tasks.service.memory_runtime import memory_runtime
from tasks.storage.clock import ManualClock
from tests.mails import text_of
from tests.portal.scripted import (
    SECRET,
    LivePortal,
    event_of,
    live_portal,
    put_failed_task,
    put_result,
    set_row,
    settings,
)
from tests.portal.submissions import DOCUMENT, submitted
from tests.service_manager.mail.test_notify import Catcher, serve

pytestmark = pytest.mark.slow

DAY = 86_400.0
OWNER = "ada@example.org"
READER = "reader@example.org"
RESULT = "MCD15A2.005/Lai_1km/a.tif"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def runtime(clock: ManualClock) -> Runtime:
    return memory_runtime(clock)


@pytest.fixture
def portal(runtime: Runtime) -> Iterator[LivePortal]:
    with live_portal(runtime, settings(smtp_url="smtp://mail.example.org")) as running:
        yield running


@pytest.fixture
def request_id(runtime: Runtime, raster: bytes) -> str:
    """A request of ada's with a result and a failure."""
    name = submitted(runtime, OWNER)
    put_result(runtime, name, "MCD15A2.005/Lai_1km", "a.tif", raster)
    put_failed_task(runtime, name, "MCD15A2.A2012001.hdf", (Category.UNREADABLE_INPUT_FILE,))
    count = {Phase.COLLECTION: PhaseCount(total=1, failed=1)}
    set_row(runtime, name, state=RequestState.RUNNING, outputs=1, phases=count)
    return name


def mail_about(request: str, runtime: Runtime, body: str = "") -> Mail:
    """The mail as the manager writes it into the outbox."""
    link = reader_links.page(settings().portal_url, request)
    return Mail(
        request=request,
        to=READER,
        kind="end",
        subject="complete",
        body=body or f"Your request is complete:\n{link}\n",
        written=runtime.clock.now(),
    )


def path_of(link: str) -> str:
    """The link without the host: the portal under test has a port of its own."""
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


def as_sent(mail: Mail) -> str:
    """The text of a mail as the manager sends it."""
    return text_of(message(mail, "s@example.org", Signing.of(settings())))


def link_in(mail: Mail) -> str:
    """The signed link in the mail as it is sent."""
    text = as_sent(mail)
    found: list[str] = re.findall(r"http\S+/open\?token=\S+", text)
    assert len(found) == 1, text
    return path_of(found[0])


def test_the_link_in_a_mail_shows_its_request_to_a_new_browser(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    link = link_in(mail_about(request_id, runtime))
    with portal.visitor() as client:
        assert client.get(f"/requests/{request_id}").status_code == 401
        page = client.get(link)
        assert page.status_code == 200
        assert page.url.path == f"/requests/{request_id}"
        assert "token" not in str(page.url)
        assert "Leaf &lt;area&gt;" in page.text
        assert 'id="actions"' in event_of(client, request_id)["html"]
        for part in ("lacks", "results", f"view/{RESULT}", f"pictures/{RESULT}"):
            assert client.get(f"/requests/{request_id}/{part}").status_code == 200, part
        api = f"/api/requests/{request_id}"
        for part in ("", "/gaps", "/failures", "/results", "/manifest", "/document"):
            assert client.get(f"{api}{part}").status_code == 200, part
        assert client.get(f"{api}/results/{RESULT}").content[:2] == b"II"
        assert client.get(f"{api}/archive.zip").content[:2] == b"PK"


def test_the_page_offers_its_reader_nothing_that_is_refused(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    with portal.visitor() as client:
        page = client.get(link_in(mail_about(request_id, runtime))).text
        targets = {
            path: {"HX-Request": "true"} if how == "hx-get" else {}
            for how, path in re.findall(r'(href|src|hx-get)="(/[^"]*)"', page)
            if not path.startswith("/static/")
        }
        assert f"/api/requests/{request_id}/archive.zip" in targets
        assert f"/api/requests/{request_id}/results/{RESULT}" in targets
        for path in targets.keys() - {"/"}:
            got = client.get(html.unescape(path), headers=targets[path])
            assert got.status_code == 200, path
    assert 'method="post"' not in page


@pytest.mark.parametrize("page", ["read by its link", "not read"])
def test_who_reads_by_a_link_signs_in_and_can_then_confirm(
    portal: LivePortal, runtime: Runtime, request_id: str, page: str
) -> None:
    set_row(runtime, request_id, state=RequestState.HELD, message="It takes 5,000 tasks.")
    path = f"/requests/{request_id}"
    with portal.visitor() as client:
        if page == "not read":
            shown = client.get(path)
            assert shown.status_code == 401
        else:
            shown = client.get(link_in(mail_about(request_id, runtime)))
            said = " ".join(re.sub(r"<[^>]+>", "", shown.text).split())
            assert "You read this by a link. Sign in as its owner to confirm, cancel" in said
        ways = set(re.findall(r'href="(/sign-in[^"]*)"', shown.text))
        assert f"/sign-in?next={path}" in ways
        form = client.get(f"/sign-in?next={path}").text
        assert f'name="next" value="{path}"' in form
        answer = client.post("/sign-in", data={"address": OWNER, "next": path}).text
        assert f'href="/sign-in?next={path}">Another address' in answer
        (mail,) = sent_to(runtime, OWNER)
        link = re.search(r"http\S+/sign-in\?token=\S+", as_sent(mail))
        assert link is not None
        mine = client.get(path_of(link[0]))
        assert mine.url.path == path
        assert f'action="{path}/confirm"' in mine.text
        assert "You read this by a link" not in mine.text


def test_what_is_tried_again_is_no_link_for_a_reader(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    set_row(runtime, request_id, retry_of="before", retried_as="after")
    with portal.visitor() as client:
        read = client.get(link_in(mail_about(request_id, runtime))).text
    with portal.browser(OWNER) as owner:
        mine = owner.get(f"/requests/{request_id}").text
    for name in ("before", "after"):
        assert name in read
        assert f'href="/requests/{name}"' not in read
        assert f'href="/requests/{name}"' in mine


# --- Twelve ways to misuse it ---


def test_1_another_request_stays_shut(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    other = submitted(runtime, OWNER)
    with portal.visitor() as client:
        client.get(link_in(mail_about(request_id, runtime)))
        token = reader_links.issue(SECRET, request_id, runtime.clock.now() + DAY)
        for given in ({}, {"Cookie": f"{READER_COOKIE}={token}"}):
            for path in (f"/requests/{other}", f"/api/requests/{other}/results"):
                assert client.get(path, headers=given).status_code == 401, path


def test_2_nothing_can_be_ordered(portal: LivePortal, runtime: Runtime, request_id: str) -> None:
    token = reader_links.issue(SECRET, request_id, runtime.clock.now() + DAY)
    with portal.visitor() as client:
        client.headers["Cookie"] = f"{READER_COOKIE}={token}"
        assert client.get(f"/requests/{request_id}").status_code == 200
        for what in ("cancel", "pause", "resume", "confirm", "retry"):
            for root in ("/requests", "/api/requests"):
                assert client.post(f"{root}/{request_id}/{what}").status_code == 401, what
    assert request_operations.load(runtime, request_id).order is None


def test_3_everything_else_stays_shut(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    token = reader_links.issue(SECRET, request_id, runtime.clock.now() + DAY)
    (failed,) = request_operations.failures(runtime, request_id)
    paths = ("/", "/new", "/operations", "/api/requests", "/api/products", "/api/operations")
    with portal.visitor() as client:
        client.headers["Cookie"] = f"{READER_COOKIE}={token}"
        for path in (*paths, f"/tasks/{failed.key}", f"/api/tasks/{failed.key}", "/docs"):
            refused = client.get(path).status_code
            assert refused == 401 or path == "/docs", path
        assert client.post("/api/requests", json=DOCUMENT).status_code == 401


def test_4_an_expired_link_and_its_cookie_are_refused(
    portal: LivePortal, runtime: Runtime, clock: ManualClock, request_id: str
) -> None:
    link = link_in(mail_about(request_id, runtime))
    with portal.visitor() as client:
        assert client.get(link).status_code == 200
        clock.sleep(30 * DAY + 1)
        answer = client.get(f"/requests/{request_id}")
        assert answer.status_code == 401
        again = client.get(link)
        assert again.status_code == 401
        assert "has expired" in again.text
        assert 'href="/sign-in"' in again.text


def test_5_an_altered_link_is_refused(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    link = link_in(mail_about(request_id, runtime))
    path, _, token = link.partition("token=")
    signature = token.rpartition(".")[2]
    for changed in (
        token[:-1],
        token + "A",
        token.replace(token[3], "x" if token[3] != "x" else "y", 1),
        "." + signature,
        token.rpartition(".")[0],
        "",
        "%00",
        "a" * 5000,
    ):
        with portal.visitor() as client:
            answer = client.get(f"{path}token={changed}")
            assert answer.status_code == 401, changed
            assert not client.cookies


def test_6_another_secret_ends_all_links(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    token = reader_links.issue("r" * 40, request_id, runtime.clock.now() + DAY)
    with portal.visitor() as client:
        assert client.get(f"/open?token={token}").status_code == 401
    with live_portal(runtime, settings(secret="n" * 40)) as rotated, rotated.visitor() as client:
        assert client.get(link_in(mail_about(request_id, runtime))).status_code == 401


@pytest.mark.parametrize("use", [Use.SESSION, Use.API, Use.LINK])
def test_7_a_token_is_for_one_use(
    portal: LivePortal, runtime: Runtime, request_id: str, use: Use
) -> None:
    reading = reader_links.issue(SECRET, request_id, runtime.clock.now() + DAY)
    mailed = sign_in_links.issue(SECRET, OWNER, runtime.clock.now() + DAY)
    person = tokens.issue(SECRET, OWNER, use=use)
    with portal.visitor() as client:
        assert client.get(f"/sign-in?token={reading}").status_code == 401
        assert client.get("/", headers={"Authorization": f"Bearer {reading}"}).status_code == 401
        assert client.get("/", headers={"Cookie": f"{COOKIE}={reading}"}).status_code == 401
        assert client.get(f"/open?token={person}").status_code == 401
        assert client.get(f"/open?token={mailed}").status_code == 401
        assert client.get("/", headers={"Authorization": f"Bearer {mailed}"}).status_code == 401
        assert client.get("/", headers={"Cookie": f"{COOKIE}={mailed}"}).status_code == 401
        cookie = {"Cookie": f"{READER_COOKIE}={person}"}
        assert client.get(f"/requests/{request_id}", headers=cookie).status_code == 401


def test_8_no_open_redirect(portal: LivePortal, runtime: Runtime, request_id: str) -> None:
    link = link_in(mail_about(request_id, runtime))
    evil = "&next=//evil.example&to=https://evil.example&url=https://evil.example"
    with portal.visitor() as client:
        client.follow_redirects = False
        answer = client.get(link + evil)
        assert answer.headers["location"] == f"/requests/{request_id}"
        signed = tokens.sign_in_link("", SECRET, OWNER)
        assert client.get(signed + evil).headers["location"] == "/"
        for name in ("/evil.example", "..", "//evil.example/"):
            forged = reader_links.issue(SECRET, name, runtime.clock.now() + DAY)
            location = client.get(f"/open?token={forged}").headers.get("location", "/requests/")
            assert location.startswith("/requests/")


@pytest.mark.usefixtures("request_id")
@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "https://evil.example",
        "https://evil.example/requests/a",
        "//evil.example/requests/a",
        "/\\evil.example",
        "/requests//evil.example",
        "/requests/../../evil",
        "/requests/..",
        "/requests/a/cancel",
        "/requests/a?token=b",
        "/requests/a#b",
        "/requests/a\n",
        "/requests/a\r\nLocation: https://evil.example",
        "/requests/%2e%2e",
        "/requests/",
        "/requests/" + 41 * "a",
        "/requests/\u0661",
        "/operations",
        "/open?token=x",
        "javascript:alert(1)",
        '/requests/a"><script>',
    ],
)
def test_8_signing_in_goes_on_to_a_request_s_page_or_to_the_first(
    portal: LivePortal, runtime: Runtime, wanted: str
) -> None:
    with portal.visitor() as client:
        assert 'name="next"' not in client.get("/sign-in", params={"next": wanted}).text
        client.post("/sign-in", data={"address": OWNER, "next": wanted})
        (mail,) = sent_to(runtime, OWNER)
        assert "next=" not in mail.body
        client.follow_redirects = False
        token = tokens.issue(SECRET, OWNER, use=Use.LINK)
        answer = client.get("/sign-in", params={"token": token, "next": wanted})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        expired = client.get("/sign-in", params={"token": "x", "next": wanted})
        assert expired.status_code == 401
        assert 'href="/sign-in?' not in expired.text


def test_9_the_token_is_in_no_log_and_no_referer(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    link = link_in(mail_about(request_id, runtime))
    token = parse_qs(urlsplit(link).query)["token"][0]
    with structlog.testing.capture_logs() as logs, portal.visitor() as client:
        client.follow_redirects = False
        answer = client.get(link)
        client.get(link[:-2])
        client.get(f"/requests/{request_id}")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert token not in answer.headers["location"]
    assert token not in str(logs)
    assert token not in str([*outbox.mails(runtime.store)])


def test_10_the_cookie_is_kept_from_scripts_and_goes_nowhere_else(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    with portal.visitor() as client:
        client.follow_redirects = False
        cookies = client.get(link_in(mail_about(request_id, runtime))).headers.get_list(
            "set-cookie"
        )
    assert len(cookies) == 2
    paths = {re.search(r"Path=([^;]+)", cookie)[1] for cookie in cookies}  # type: ignore[index]
    assert paths == {f"/requests/{request_id}", f"/api/requests/{request_id}"}
    for cookie in cookies:
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert "Max-Age=2592000" in cookie


def test_11_a_title_signs_no_link_to_another_request(runtime: Runtime, request_id: str) -> None:
    """Who may choose a title may not have the portal sign an address in it."""
    other = reader_links.page(settings().portal_url, "251122-0123456789")
    longer = reader_links.page(settings().portal_url, request_id) + "-x"
    mail = mail_about(request_id, runtime, body=f"Your request {other} {longer} is complete.\n")
    assert Signing.of(settings()).sign(mail) == mail.body


def test_12_reading_adds_no_rights_to_somebody_signed_in(
    portal: LivePortal, runtime: Runtime, request_id: str
) -> None:
    link = link_in(mail_about(request_id, runtime))
    with portal.browser("bob@example.org") as client:
        assert client.get(f"/requests/{request_id}").status_code == 404
        page = client.get(link)
        assert page.status_code == 200
        assert "bob@example.org" in page.text
        assert f'action="/requests/{request_id}' not in page.text
        assert client.post(f"/requests/{request_id}/cancel").status_code == 404
        assert client.post(f"/api/requests/{request_id}/retry").status_code == 404
    with portal.browser(OWNER) as client:
        assert f'action="/requests/{request_id}/cancel"' in client.get(link).text


def test_a_mail_is_the_same_each_time_it_is_sent(runtime: Runtime, request_id: str) -> None:
    mail = mail_about(request_id, runtime)
    signing = Signing.of(settings())
    assert bytes(message(mail, "s@x", signing)) == bytes(message(mail, "s@x", signing))
    assert "Until 2023-12-14 the link shows this request" in signing.sign(mail)


def test_without_a_secret_the_link_stays_as_it_is(runtime: Runtime, request_id: str) -> None:
    mail = mail_about(request_id, runtime)
    assert Signing(portal_url="http://127.0.0.1", secret="").sign(mail) == mail.body


# --- The page that sends a sign-in link ---


def ask(client: httpx.Client, address: str) -> httpx.Response:
    return client.post("/sign-in", data={"address": address})


def sent_to(runtime: Runtime, address: str, count: int = 1) -> list[Mail]:
    """The sign-in mails to an address, once the look-up has ended."""
    for _ in range(200):
        found = [mail for mail in outbox.mails(runtime.store) if mail.to == address]
        if len(found) >= count:
            break
        time.sleep(0.02)
    return found


def test_an_owner_signs_in_by_mail(portal: LivePortal, runtime: Runtime, request_id: str) -> None:
    with portal.visitor() as client:
        assert "Send me a link" in client.get("/sign-in").text
        assert "on its way" in ask(client, " Ada@Example.ORG ").text
        (mail,) = sent_to(runtime, OWNER)
        assert mail.kind.startswith("sign-in ")
        link = re.search(r"http\S+/sign-in\?token=\S+", as_sent(mail))
        assert link is not None
        page = client.get(path_of(link[0]))
        assert page.status_code == 200
        assert request_id in page.text
        assert client.get("/operations").status_code == 403


@pytest.mark.usefixtures("request_id")
def test_the_answer_says_nothing_of_who_is_known(portal: LivePortal, runtime: Runtime) -> None:
    with portal.visitor() as client:
        answers = {
            re.sub(r"\w+@example.org", "X", ask(client, name).text)
            for name in (OWNER, "nobody@example.org")
        }
    assert len(answers) == 1
    assert [mail.to for mail in sent_to(runtime, OWNER)] == [OWNER]
    assert sent_to(runtime, "nobody@example.org", 0) == []


def test_an_operator_s_rights_are_not_sent_by_mail(portal: LivePortal, runtime: Runtime) -> None:
    boss = "boss@example.org"
    submitted(runtime, boss)
    with portal.visitor() as client:
        ask(client, boss)
        (mail,) = sent_to(runtime, boss)
        link = re.search(r"http\S+/sign-in\?token=\S+", as_sent(mail))
        assert link is not None
        client.get(path_of(link[0]))
        assert client.get("/operations").status_code == 403
        assert client.get("/api/operations").status_code == 403


def test_a_mailed_link_ends_after_an_hour_and_an_operator_s_after_a_week() -> None:
    assert (sign_in_links.LIFETIME, tokens.LIFETIMES[Use.LINK]) == (3600, 7 * 86400)


@pytest.mark.usefixtures("request_id")
def test_an_expired_mailed_link_is_refused(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    with portal.visitor() as client:
        ask(client, OWNER)
        (mail,) = sent_to(runtime, OWNER)
        link = re.search(r"http\S+/sign-in\?token=\S+", as_sent(mail))
        assert link is not None
        clock.sleep(sign_in_links.LIFETIME + 1)
        answer = client.get(path_of(link[0]))
        assert answer.status_code == 401
        assert COOKIE not in client.cookies


def test_who_is_only_notified_gets_those_requests_to_read_and_no_session(
    portal: LivePortal, runtime: Runtime
) -> None:
    """Nobody proved that the address is the owner's: it may not sign in as the owner."""
    document = parse_request({**DOCUMENT, "notify": READER})
    name = request_operations.submit(runtime, OWNER, document)
    hidden = submitted(runtime, OWNER)
    with portal.visitor() as client:
        ask(client, READER)
        (mail,) = sent_to(runtime, READER)
        assert "/sign-in?token=" not in as_sent(mail)
        links = re.findall(r"http\S+/open\?token=\S+", as_sent(mail))
        assert len(links) == 1
        assert client.get(path_of(links[0])).url.path == f"/requests/{name}"
        assert client.get(f"/requests/{hidden}").status_code == 401
        assert client.get("/").status_code == 401


@pytest.mark.usefixtures("request_id")
def test_an_address_is_written_to_a_few_times_an_hour_only(
    portal: LivePortal, runtime: Runtime, clock: ManualClock
) -> None:
    with portal.visitor() as client:
        told = {ask(client, OWNER).text for _ in range(PER_ADDRESS + 3)}
        assert len(told) == 1, "not even this is told"
        assert len(sent_to(runtime, OWNER, PER_ADDRESS + 1)) == PER_ADDRESS
        clock.sleep(3601.0)
        ask(client, OWNER)
        assert len(sent_to(runtime, OWNER, PER_ADDRESS + 1)) == PER_ADDRESS + 1


@pytest.mark.usefixtures("request_id")
def test_invented_addresses_do_not_switch_sign_in_off(portal: LivePortal, runtime: Runtime) -> None:
    with portal.visitor() as client:
        for number in range(ALTOGETHER + 10):
            assert ask(client, f"n{number}@example.org").status_code == 200
        assert ask(client, OWNER).status_code == 200
        assert [mail.to for mail in sent_to(runtime, OWNER)] == [OWNER]


def test_mails_are_bounded_and_the_bound_does_not_say_who_is_known(
    runtime: Runtime, clock: ManualClock
) -> None:
    for number in range(ALTOGETHER + 1):
        submitted(runtime, f"n{number}@example.org")
    desk = SignInDesk(runtime, settings(), later=lambda look_up: look_up())
    last = f"n{ALTOGETHER}@example.org"
    for number in range(ALTOGETHER):
        assert desk.ask(f"n{number}@example.org")
    assert len([*outbox.mails(runtime.store)]) == ALTOGETHER
    assert (desk.ask(last), desk.ask("nobody@example.org")) == (True, True)
    assert sent_to(runtime, last, 0) == []
    clock.sleep(3599.0)
    assert desk.ask(last)
    assert sent_to(runtime, last, 0) == []
    clock.sleep(2.0)
    assert desk.ask(last)
    assert len(sent_to(runtime, last)) == 1


def test_look_ups_are_bounded_and_read_the_requests_once(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_operations.submit(runtime, OWNER, parse_request({**DOCUMENT, "notify": READER}))
    waiting: list[Callable[[], None]] = []
    desk = SignInDesk(runtime, settings(), later=waiting.append)
    assert all(desk.ask(f"n{number}@example.org") for number in range(WAITING))
    assert not desk.ask(OWNER)
    loads: list[str] = []
    load = request_operations.load

    def counted(found: Runtime, name: str) -> request_table.RequestRow:
        loads.append(name)
        return load(found, name)

    monkeypatch.setattr("portal.accounts.sign_in_mail.request_operations.load", counted)
    while waiting:
        waiting.pop()()
    assert len(loads) == 1
    assert desk.ask(OWNER)


def test_an_address_gets_nothing_of_one_that_only_looks_like_it(runtime: Runtime) -> None:
    """To fold case beyond ASCII makes one address of two hosts."""
    sharp, plain = "alise@stra\u00dfe.example", "alise@strasse.example"
    secret = request_operations.submit(runtime, OWNER, parse_request({**DOCUMENT, "notify": plain}))
    bait = request_operations.submit(
        runtime, "bob@example.org", parse_request({**DOCUMENT, "notify": sharp})
    )
    submitted(runtime, plain)
    desk = SignInDesk(runtime, settings(), later=lambda look_up: look_up())
    desk.ask(plain)
    (mail,) = outbox.mails(runtime.store)
    assert (mail.to, mail.signs_in, mail.shows) == (plain, plain, (secret,))
    desk.ask(sharp)
    (other,) = sent_to(runtime, sharp)
    assert (other.signs_in, other.shows) == ("", (bait,))
    assert secret not in other.body


def test_each_spelling_of_an_address_gets_only_what_is_its_own(runtime: Runtime) -> None:
    upper = READER.upper()
    names = {
        spelt: request_operations.submit(
            runtime, OWNER, parse_request({**DOCUMENT, "notify": spelt})
        )
        for spelt in (READER, upper)
    }
    owned = submitted(runtime, READER.title())
    desk = SignInDesk(runtime, settings(), later=lambda look_up: look_up())
    desk.ask(READER)
    mails = {mail.to: mail for mail in outbox.mails(runtime.store)}
    assert {to: mail.shows for to, mail in mails.items()} == {
        READER: (names[READER],),
        upper: (names[upper],),
        READER.title(): (),
    }
    assert {to for to, mail in mails.items() if mail.signs_in} == {READER.title()}
    assert owned not in mails[READER].body
    desk.ask(upper)
    assert len([*outbox.mails(runtime.store)]) == PER_ADDRESS, "so many to all spellings together"


@pytest.mark.usefixtures("request_id")
def test_no_link_is_stored_or_exported_and_the_mail_that_arrives_has_those_that_work(
    portal: LivePortal, runtime: Runtime, clock: ManualClock, tmp_path: Path
) -> None:
    shown = request_operations.submit(
        runtime, "bob@example.org", parse_request({**DOCUMENT, "notify": OWNER})
    )
    catcher = Catcher()
    with portal.visitor() as client:
        ask(client, OWNER)
        (mail,) = sent_to(runtime, OWNER)
        (*_,) = backup.export(runtime.store, runtime.blobs, clock, tmp_path / "all.gz")
        exported = gzip.decompress((tmp_path / "all.gz").read_bytes()).decode()
        bodies = [
            base64.b64decode(line["e"]["body"]["b64"]).decode()
            for line in map(json.loads, exported.splitlines())
            if line.get("t") == outbox.TABLE
        ]
        assert bodies == [mail.body]
        assert "token" not in mail.body + exported
        clock.sleep(sign_in_links.LIFETIME - 60)
        controller = serve(catcher)
        try:
            server = MailServer(host="127.0.0.1", port=controller.port, sender="s@example.org")
            postman = Postman(runtime.store, clock, server, Signing.of(settings()))
            assert postman.deliver() == 1
        finally:
            controller.stop()
        (arrived,) = catcher.mails
        text = text_of(arrived)
        reading = re.findall(r"http\S+/open\?token=\S+", text)
        signing_in = re.findall(r"http\S+/sign-in\?token=\S+", text)
        assert (len(reading), len(signing_in)) == (1, 1)
        assert client.get(path_of(reading[0])).url.path == f"/requests/{shown}"
        assert OWNER in client.get(path_of(signing_in[0])).text


def test_a_title_signs_no_link_in_a_mail_to_somebody_else(runtime: Runtime) -> None:
    """A title with the very addresses that this mail opens, within one of another host."""
    url = settings().portal_url
    title = f"http://evil.example/?\n{sign_in_links.page(url)}\n{reader_links.page(url, 'bait')}"
    document = parse_request({**DOCUMENT, "title": title, "notify": OWNER})
    request_operations.submit(runtime, "bob@example.org", document, request_id="bait")
    submitted(runtime, OWNER)
    SignInDesk(runtime, settings(), later=lambda look_up: look_up()).ask(OWNER)
    (mail,) = outbox.mails(runtime.store)
    tokens_in = [line for line in as_sent(mail).splitlines() if "token=" in line]
    assert [line.strip().partition("?")[0] for line in tokens_in] == [
        f"{url}/sign-in",
        f"{url}/open",
    ]


def test_a_sign_in_mail_that_cannot_be_signed_is_not_sent(runtime: Runtime) -> None:
    submitted(runtime, OWNER)
    SignInDesk(runtime, settings(), later=lambda look_up: look_up()).ask(OWNER)
    (mail,) = outbox.mails(runtime.store)
    with pytest.raises(ValueError, match="SWATHMILL_SECRET"):
        Signing(portal_url=settings().portal_url, secret="").sign(mail)
    with pytest.raises(ValueError, match="SWATHMILL_PORTAL_URL"):
        Signing(portal_url="http://elsewhere.example", secret=SECRET).sign(mail)


@pytest.mark.parametrize("address", ["", "ada", "a b@c", "<script>@x@y", "a@b\nBcc: all@x"])
def test_what_is_no_address_is_told(portal: LivePortal, address: str) -> None:
    with portal.visitor() as client:
        answer = ask(client, address)
    assert answer.status_code == 422
    assert "not a mail address" in answer.text
    assert "<script>" not in answer.text.partition("</head>")[2]


@pytest.mark.usefixtures("request_id")
def test_another_site_cannot_ask(portal: LivePortal, runtime: Runtime) -> None:
    with portal.visitor() as client:
        client.headers["Origin"] = "https://evil.example"
        assert ask(client, OWNER).status_code == 403
    assert [*outbox.mails(runtime.store)] == []


def test_without_a_mail_server_the_page_says_so(runtime: Runtime) -> None:
    with live_portal(runtime, settings()) as running, running.visitor() as client:
        page = client.get("/sign-in").text
    assert "sends no mail" in page
    assert "<form" not in page
