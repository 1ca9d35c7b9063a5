"""The statistics of a comparison, at the bound of what a page reads."""

from unittest.mock import Mock

import pytest

from portal.results.result_files import ResultFile
from portal.sites import comparison
from tasks.bag.model import ArtifactFile


def test_a_page_reads_statistics_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"product,layer,column,units,site,n,bias,rmse,r,slope,intercept,regression\n"
    file = ArtifactFile(name="a.csv", blob="b/c", size=len(text), sha256="")
    files = {comparison.STATISTICS: ResultFile(path=comparison.STATISTICS, file=file, key="k")}
    reader = Mock(**{"whole.return_value": [text]})
    monkeypatch.setattr(comparison, "_MOST", len(text))
    assert comparison.comparison(files, reader) == comparison.ComparisonView(rows=(), scatters=())
    reader.whole.reset_mock()
    monkeypatch.setattr(comparison, "_MOST", len(text) - 1)
    assert comparison.comparison(files, reader) is None
    reader.whole.assert_not_called()
