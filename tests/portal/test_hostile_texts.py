"""Twenty texts of strangers, and each way by which a person meets them: nothing in them acts."""

import csv
import io
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from service_manager.mail.notify import compose, message
from tasks.bag.model import RequestState
from tasks.csv_text import text_cell
from tasks.operators import audit
from tasks.requests.plan import Gap
from tasks.requests.request_table import RequestTable
from tasks.shown_text import in_one_line
from tests.portal.scripted import LivePortal, live_portal, live_runtime, set_row, settings
from tests.portal.submissions import submitted

ADA = "ada@example.org"
TEXTS = {
    "a script": "<script>alert(1)</script>",
    "an attribute": '" onmouseover="alert(1)',
    "an address": "javascript:alert(1)",
    "a template": "{{ 7 * 7 }}{% raw %}",
    "a formula": '=HYPERLINK("http://192.0.2.1","x")',
    "a call": "@SUM(1+1)*cmd|' /C calc'!A0",
    "a formula behind a mark": "\ufeff=1+1",
    "a formula behind no width": "\u200b\u2060+1+1",
    "a formula behind a space": "\u00a0\u3000-2+3",
    "a colour": "\x1b[31mred\x1b[0m",
    "a title of the terminal": "\x1b]0;owned\x07",
    "a control of one byte": "\x9b2J\x85",
    "turned around": "abc\u202efdp.exe",
    "isolated": "\u2066x\u2069\u2067y",
    "no width": "a\u200bb\u200dc\ufeffd",
    "tags": "a\U000e0041\U000e007f",
    "private": "\ue000\U000f0000",
    "unassigned": "\u0378\U0001fffe",
    "lines": "one\r\nBcc: eve@example.org\n\ntwo\u2028three",
    "an encoded word": "=?utf-8?q?=0ABcc:_eve?=",
}


def unseen(text: str) -> set[str]:
    """The characters of a text that nobody sees and that act, or may."""
    return {
        character
        for character in text
        if not character.isprintable()
        and character not in "\n\t"
        and unicodedata.category(character) != "Zs"
    }


@pytest.fixture(scope="module")
def portal() -> Iterator[LivePortal]:
    with live_portal(live_runtime(), settings()) as running:
        yield running


@pytest.fixture(scope="module")
def ada(portal: LivePortal) -> Iterator[httpx.Client]:
    with portal.browser(ADA) as client:
        yield client


@pytest.mark.parametrize("part", range(4))
def test_no_page_has_a_text_that_acts(portal: LivePortal, ada: httpx.Client, part: int) -> None:
    text = " ".join([*TEXTS.values()][part::4])
    runtime = portal.runtime
    name = submitted(runtime, ADA)
    set_row(
        runtime, name, state=RequestState.FAILED, message=text, labels=(text,), title=text,
        gaps=(Gap(what=text, reason=text),), gap_count=1, package=text, notes=(text,),
    )  # fmt: skip
    audit.complete(runtime.store, audit.begin(runtime, text, text, text, text), text)
    ada.post("/tokens", data={"name": text[:80]})
    ada.post("/groups", data={"name": "team", "members": text})
    with portal.browser("root", "operator") as root:
        pages = [
            ada.get("/"),
            ada.get("/", params={"label": text}),
            ada.get(f"/requests/{name}"),
            ada.get(f"/requests/{quote(text, safe='')}"),
            ada.get("/groups"),
            ada.get("/tokens"),
            ada.get("/new", params={"from": name}),
            ada.post("/new", data={"title": text, "product": text, "layer-u": text}),
            ada.post("/sign-in", data={"address": text}),
            root.get("/?everybody=true"),
            root.get("/operations/actions"),
            root.get("/operations/act", params={"action": "pause owner", "subject": text}),
        ]
    for page in pages:
        assert page.status_code < 500, page.url
        assert unseen(page.text) == set(), page.url
        assert "<script>alert" not in page.text
        assert 'onmouseover="alert' not in page.text
        assert not re.search(r'(href|src|action)="javascript:', page.text)


@pytest.mark.parametrize("kind", TEXTS)
def test_no_error_as_json_writes_to_a_terminal(portal: LivePortal, kind: str) -> None:
    text = TEXTS[kind]
    with portal.client(ADA) as client:
        answers = [
            client.get(f"/api/requests/{quote(text, safe='')}"),
            client.get("/api/requests", params={"group": text}),
            client.post("/api/requests", json={text: text}),
            client.post("/api/requests", json={"title": text, "products": [{"name": text}]}),
            client.put("/api/groups/a", json={"members": [], text: text}),
        ]
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert unseen(answer.text) == set()


@pytest.mark.parametrize("kind", TEXTS)
def test_no_mail_has_a_text_that_acts(kind: str) -> None:
    text = TEXTS[kind]
    runtime = live_runtime()
    name = submitted(runtime, ADA)
    set_row(runtime, name, state=RequestState.FAILED, message=text, title=text)
    row = RequestTable(runtime.store).request(name)
    assert row is not None
    gaps = [Gap(what=text, reason=text)]
    mail = compose(row, (), gaps, to=ADA, portal_url="http://p", now=1.0, notes=(text,))
    assert mail is not None
    sent = message(mail, "swathmill@example.org")
    assert unseen(str(sent["Subject"])) == set()
    assert [name for name, _ in sent.items()].count("Subject") == 1
    assert "Bcc" not in sent
    for part in sent.walk():
        if part.get_content_maintype() == "text":
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            assert unseen(content.decode().replace("\r\n", "\n")) == set()


@pytest.mark.parametrize("kind", TEXTS)
def test_no_cell_runs(kind: str) -> None:
    """Not behind what a spreadsheet drops at the beginning of a cell or a file, either."""
    out = io.StringIO()
    csv.writer(out).writerow([text_cell(TEXTS[kind])])
    visible = "".join(c for c in out.getvalue().strip('"') if c.isprintable() and not c.isspace())
    assert not re.match(r"[=+\-@＝＋－＠]", visible.strip('"'))


@pytest.mark.parametrize("kind", TEXTS)
def test_one_line_is_one(kind: str) -> None:
    assert unseen(in_one_line(TEXTS[kind])) == set()
    assert len(in_one_line(TEXTS[kind]).splitlines()) == 1
