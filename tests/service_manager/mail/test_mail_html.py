"""A mail as HTML: the words of its text, with headings, lists, links and a picture."""

import re
from html.parser import HTMLParser

from reprojection.read.completeness import Completeness, Missing
from service_manager.mail.mail_html import to_html
from service_manager.mail.mail_text import Failure, RequestSummary, compose
from tasks.bag.categories import Category
from tasks.bag.model import RequestState
from tasks.requests.plan import Gap

LINK = "https://swathmill.example/requests/r1"


class Words(HTMLParser):
    """Collects the text of a document, and checks that its elements are closed in order."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []
        self.feed(document.partition("</style>")[2].replace("</head>", ""))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "img"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        if tag != "html":  # opened before the style
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def text(title: str = "Leaf area") -> str:
    found = RequestSummary(
        results={"MCD15A2.005/Lai_1km": 3},
        size=3_000_000,
        incomplete=(
            (
                "MCD15A2.005/Lai_1km/a.tif",
                Completeness(share=0.5, missing=(Missing(what="MCD15A2 2012-01-09", why="none"),)),
            ),
        ),
        gaps=(Gap(what="MCD15A2 2012-01-09", reason="the archive has no granule " * 8),),
        failures=(
            Failure(
                category=Category.USER_CODE_FAILED,
                count=9,
                said=("mean 2012-01: it ended with exit code 1: " + "no module " * 12, "other <b>"),
                different=5,
            ),
        ),
    )
    return compose(
        title=title,
        state=RequestState.GAPS,
        outcome=found,
        link=LINK,
        notes=["2 of 40 granules are not used"],
    ).body


def test_it_has_every_word_of_the_text() -> None:
    said = text()
    html = Words(to_html(said))
    assert html.open == []
    marks = re.compile(r"^\s*- ", re.MULTILINE)
    expected = [word.rstrip(":") for word in marks.sub(" ", said).split()]
    assert [word.rstrip(":") for word in html.words] == expected


def test_lists_have_headings_and_examples_are_lists_within_them() -> None:
    html = " ".join(to_html(text()).split())
    assert "<h2>Files by folder</h2>" in html
    assert "<h2>What is missing (1 gap)</h2> <ul> <li>MCD15A2 2012-01-09" in html
    assert "<li>other &lt;b&gt;</li><li>and 3 more</li></ul>" in html


def test_a_link_opens_with_its_token_and_shows_its_address() -> None:
    html = to_html(f"All is there:\n  {LINK}?token=a&b\n")
    assert f'<a href="{LINK}?token=a&amp;b">{LINK}</a>' in html


def test_what_people_wrote_is_text() -> None:
    html = to_html(text('<script>alert("x")</script>'), picture='"><b>', alt="<i>")
    assert not re.search(r"<(script|b|i)>", html)


def test_a_picture_stands_after_the_first_paragraph() -> None:
    html = to_html("Complete.\n\nFiles:\n  a  1\n", picture="p@swathmill", alt="Lai_1km/a.tif")
    assert html.index("Complete.") < html.index('src="cid:p@swathmill"') < html.index("<h2>Files")
