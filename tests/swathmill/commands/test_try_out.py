"""`swathmill try`: its request; one command leads to the page, and leaves nothing running."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from processes.proctree import alive, descendants
from swathmill.commands.try_out import REQUEST
from tasks.request.document import parse_request
from tasks.request.request_file import load_request
from tests.portal.scripted import client_of
from tests.waiting import until

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_its_request_is_that_of_the_examples() -> None:
    assert parse_request(REQUEST) == load_request(EXAMPLES / "sample.yaml")


@pytest.mark.proof
@pytest.mark.integration
def test_one_command_leads_to_a_page_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "swathmill.cli", "try", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if "SWATHMILL" not in name},
        # A shell has its children in the background ignore Ctrl-C; not here.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdout is not None
        link = next(line for line in process.stdout if line.startswith("http"))
        family = descendants(process.pid)
        found = re.match(r"(http://[^/]+)(/.*)", link)
        assert found is not None
        with client_of(found[1], follow_redirects=True) as visitor:
            page = visitor.get(found[2])
        assert page.url.path.startswith("/requests/")
        assert "Spring over the North Sea" in page.text
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    until(lambda: not any(map(alive, family)), what="the end of its children")
