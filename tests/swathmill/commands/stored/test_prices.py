"""`swathmill prices`: files and pages of an address, amounts by hand, what is shown and kept."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from swathmill.cli import application
from swathmill.commands.stored.prices import _MOST_PAGES
from swathmill.errors import ArgumentError
from tests.tasks.operators.test_prices import LIST, page


@pytest.fixture
def site() -> Iterator[str]:
    """A web server whose page `/N` leads to N - 1 more of one item each."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            left = int(self.path.strip("/"))
            following = f"{address}/{left - 1}" if left > 1 else None
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page([LIST[left % len(LIST)]], following).encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


def said(data: Path, *words: str) -> str:
    done = CliRunner().invoke(
        application(["prices"]), ["prices", *words, "--data", str(data)], catch_exceptions=False
    )
    return done.output


def test_a_file_is_read_shown_and_forgotten(tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "list.json"
    assert "no amounts" in said(data)
    file.write_text(page(LIST))
    assert "Prices in EUR" in said(data, str(file))
    shown = said(data)
    assert "0.0864  an hour of one core" in shown
    assert "Hot LRS Data Stored in westeurope: 0.02 for 1 GB/Month, since 2026-01-01" in shown
    assert "none: not in any amount  a GB to or from storage" in shown
    told = json.loads(said(data, "storage=0.5", "--json"))
    assert (told["currency"], told["prices"]["storage"]) == ("EUR", 0.5)
    said(data, "--forget")
    assert "no amounts" in said(data)


def test_a_saved_page_that_others_follow_is_read_with_those_alone(tmp_path: Path) -> None:
    first, last = tmp_path / "1.json", tmp_path / "2.json"
    first.write_text(page(LIST[:2], "https://prices.azure.com/api/retail/prices?$skip=1000"))
    last.write_text(page(LIST[2:]), "utf-8-sig")
    with pytest.raises(ArgumentError, match=r"1\.json is a page that others follow: .*skip=1000"):
        said(tmp_path / "data", str(first))
    assert "0.02  a GB kept for a month" in said(tmp_path / "data", str(first), str(last))


def test_all_pages_of_an_address_are_read_up_to_a_bound(tmp_path: Path, site: str) -> None:
    assert "0.0864" in said(tmp_path / "data", f"{site}/{_MOST_PAGES}")
    with pytest.raises(ArgumentError, match=f"more than {_MOST_PAGES} pages"):
        said(tmp_path / "data", f"{site}/{_MOST_PAGES + 1}")
