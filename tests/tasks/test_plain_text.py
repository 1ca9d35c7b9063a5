"""Texts of people in the encodings that their programs write: read, or refused with a remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest

from modis.yaml_text import dump_yaml
from portal.serving.documents import decode
from tasks import plain_text
from tasks.errors import RequestRefusedError
from tasks.packages.packages import PackageError, load_package
from tasks.plain_text import NotUtf8Error, decoded
from tasks.request.region.files import RegionFileError, read_region
from tasks.request.request_file import load_request
from tasks.request.sites import parse_sites

TITLE = "Grün über München"
DOCUMENT = {
    "title": TITLE,
    "products": [{"name": "VJ102DNB", "collection": 21, "layers": ["x"]}],
    "region": {"sites": "sites.csv"},
    "time": {"start": "2012-01-01", "end": "2012-01-02"},
}
TEXT = dump_yaml(DOCUMENT).replace("21", "021")
SITES = "id,latitude,longitude,town\r\na,48.1,11.6,München\r\n"
MARKED = ["utf-8", "utf-8-sig", "utf-16", "utf-32"]


@pytest.mark.parametrize("encoding", MARKED)
def test_requests_and_tables_are_read_by_their_mark(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "sites.csv").write_bytes(SITES.encode(encoding))
    (tmp_path / "request.yaml").write_bytes(TEXT.encode(encoding))
    request = load_request(tmp_path / "request.yaml")
    assert request.title == TITLE
    assert request.products[0].collection == "21"
    (site,) = parse_sites(str(request.region.sites))
    assert site.columns == (("town", "München"),)
    assert decode(TEXT.encode(encoding)) == DOCUMENT


def test_both_orders_of_bytes_are_read() -> None:
    for order, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        assert decoded(mark + SITES.encode(order)) == SITES.replace("\r\n", "\n")


def test_another_encoding_is_refused_by_line_and_word(tmp_path: Path) -> None:
    why = "line 1 is not UTF-8, at 'Grün' (as Windows-1252 has it)"
    latin = TEXT.encode("cp1252")
    (tmp_path / "request.yaml").write_bytes(latin)
    reads: list[Callable[[], object]] = [
        lambda: load_request(tmp_path / "request.yaml"),
        lambda: decode(latin),
    ]
    for read in reads:
        with pytest.raises(RequestRefusedError) as refused:
            read()
        assert refused.value.problem == f"{why}."
        assert refused.value.remedy.startswith("Save it as UTF-8")
    (tmp_path / "request.yaml").write_bytes(TEXT.encode())
    (tmp_path / "sites.csv").write_bytes(SITES.encode("cp1252"))
    with pytest.raises(RequestRefusedError) as of_table:
        load_request(tmp_path / "request.yaml")
    assert "sites.csv cannot be read: line 2 is not UTF-8, at 'München'" in of_table.value.problem
    with pytest.raises(RegionFileError, match="line 2 is not UTF-8, at 'München'"):
        read_region(SITES.encode("cp1252"), "sites.csv")
    (tmp_path / "package.yaml").write_bytes("name: ä\n".encode("cp1252"))
    with pytest.raises(PackageError, match="line 1 is not UTF-8, at 'ä'"):
        load_package(tmp_path)


def test_a_mark_that_is_none_is_told() -> None:
    with pytest.raises(NotUtf8Error, match="begins as UTF-16 and is not: byte"):
        decoded(b"\xff\xfe\x00")
    with pytest.raises(NotUtf8Error, match="it is no text"):
        decoded(b"\x89PNG\r\n\x1a\n\0\0")


def test_so_much_of_a_word_is_shown() -> None:
    with pytest.raises(NotUtf8Error) as said:
        plain_text.decoded(b"a" * 50 + b"\xe9" + b"b" * 50)
    assert plain_text._MOST == 40
    assert f"at {'a' * 40 + 'é' + 'b' * 39!r} (as Windows" in str(said.value)
