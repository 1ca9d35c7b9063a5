"""What a page tells of how sensors differ, at the bound of what it reads."""

from unittest.mock import Mock

import pytest

from portal.results import sensor_overlaps as told
from portal.results.result_files import ResultFile
from tasks.bag.model import ArtifactFile

HEAD = "record,layer,units,reference,sensor,dates,first,last,cells,n,bias,rmse,r\n"
ROW = "ndvi,NDVI,1,Aqua,NPP,2,2025-01-01,2025-02-02,3,1200,0.08,0.0812345,\n"


def files(text: str) -> tuple[dict[str, ResultFile], Mock]:
    path = "ndvi/NDVI/ndvi.NDVI.overlap.csv"
    file = ArtifactFile(name="a.csv", blob="b/c", size=len(text), sha256="")
    reader = Mock(**{"whole.return_value": [text.encode()]})
    return {path: ResultFile(path=path, file=file, key="k")}, reader


def test_a_page_reads_tables_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reader = files(HEAD + ROW)
    monkeypatch.setattr(told, "_MOST", len(HEAD + ROW))
    (one,) = told.sensor_overlaps(found, reader)
    assert (one.sensor, one.reference, one.n) == ("NPP", "Aqua", "1,200")
    assert one.dates == "2, 2025-01-01 to 2025-02-02"
    assert one.numbers == ("0.08", "0.08123", "")
    reader.whole.reset_mock()
    monkeypatch.setattr(told, "_MOST", len(HEAD + ROW) - 1)
    assert not [*told.sensor_overlaps(found, reader)]
    reader.whole.assert_not_called()


def test_a_file_of_a_package_is_passed_over() -> None:
    for text in ("", "a,b\n1,2\n", HEAD + ROW.replace("1200", "many"), "\x00\xff"):
        assert not [*told.sensor_overlaps(*files(text))]
