"""What all calls to archives share: the names of errors, redirects, and who is trusted."""

import ssl

import httpx
import pytest

from archives.errors import (
    AnswerBrokenError,
    ArchiveError,
    ArchiveTimeoutError,
    ConnectionFailedError,
    DownloadFailedError,
)
from archives.fetch.http import _trusted, named_errors, redirected
from archives.fetch.timing import Timing


@pytest.mark.parametrize(
    ("raised", "named", "said"),
    [
        (httpx.ConnectError("refused"), ConnectionFailedError, "no connection to HOST: refused"),
        (httpx.ConnectTimeout("late"), ConnectionFailedError, "no connection to HOST: late"),
        (httpx.ProxyError("403"), ConnectionFailedError, "no connection to HOST: 403"),
        (httpx.ReadTimeout(""), ArchiveTimeoutError, "HOST was silent for 7 s"),
        (httpx.PoolTimeout(""), ArchiveTimeoutError, "HOST was silent for 7 s"),
        (httpx.ReadError("reset"), ConnectionFailedError, "HOST was cut off: reset"),
        (httpx.InvalidURL("port"), DownloadFailedError, "HOST is not a valid address: port"),
        (httpx.UnsupportedProtocol("ftp"), DownloadFailedError, "HOST is not a valid address: ftp"),
        (
            httpx.RemoteProtocolError("Server disconnected without sending a response."),
            ConnectionFailedError,
            "HOST was cut off: Server disconnected without sending a response.",
        ),
        (
            httpx.RemoteProtocolError("peer closed connection without sending complete message"),
            ConnectionFailedError,
            "HOST was cut off: peer closed connection without sending complete message",
        ),
        (
            httpx.RemoteProtocolError("illegal status line"),
            AnswerBrokenError,
            "HOST answered with broken HTTP: illegal status line",
        ),
        (
            httpx.DecodingError("incorrect header check"),
            AnswerBrokenError,
            "HOST answered with broken HTTP: incorrect header check",
        ),
    ],
    ids=str,
)
def test_an_error_is_named(raised: Exception, named: type[ArchiveError], said: str) -> None:
    with pytest.raises(named) as found, named_errors("HOST", Timing(stall=7.0)):
        raise raised
    assert (type(found.value), str(found.value)) == (named, said)


def test_a_redirect_stays_with_https() -> None:
    url = "https://a.example/x?token=hush"
    assert redirected(url, "/y") == "https://a.example/y"
    assert redirected("http://a.example/", "https://b.example/") == "https://b.example/"
    for to in ("http://a.example/", "ftp://a.example/", "file:///etc/passwd"):
        with pytest.raises(DownloadFailedError, match="not protected by https") as found:
            redirected(url, to)
        assert "hush" not in str(found.value)


def test_the_authorities_of_the_machine_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(variable, raising=False)
    trusted = _trusted.__wrapped__()
    assert trusted.get_ca_certs() == ssl.create_default_context().get_ca_certs()
