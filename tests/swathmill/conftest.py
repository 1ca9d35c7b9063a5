"""The command, in this process, against a real portal."""

from collections.abc import Callable, Iterator

import pytest

from portal.serving import tokens
from swathmill import cli
from tests.portal.scripted import SECRET, LivePortal, live_portal, live_runtime, settings

Command = Callable[..., str]


@pytest.fixture
def copy_hosts() -> str:
    """Hosts of this machine to which the portal may copy; a test names its own."""
    return ""


@pytest.fixture
def portal(copy_hosts: str) -> Iterator[LivePortal]:
    with live_portal(live_runtime(), settings(copy_hosts=copy_hosts)) as running:
        yield running


@pytest.fixture
def command(
    portal: LivePortal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run the command with these words, and return what it printed."""

    def run(*words: str, owner: str = "ada@example.org", status: int = 0) -> str:
        monkeypatch.setenv("SWATHMILL_PORTAL_URL", portal.url)
        monkeypatch.setenv("SWATHMILL_TOKEN", tokens.issue(SECRET, owner))
        monkeypatch.setattr("sys.argv", ["swathmill", *words])
        ended = 0
        try:
            cli.main()
        except SystemExit as end:
            ended = int(end.code or 0)
        shown = capsys.readouterr()
        said = shown.out + shown.err
        assert ended == status, said
        return said

    return run
