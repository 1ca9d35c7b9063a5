"""`swathmill run`: what it starts before it has read the request, and that a refusal ends it."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from swathmill.commands import run as command
from tasks.errors import RequestRefusedError


def test_workers_start_while_the_request_is_read_and_end_where_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Mock()
    monkeypatch.setattr(command, "Stack", Mock(return_value=stack))
    monkeypatch.setattr("swathmill.stack.interruption.listen", Mock())
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("products: []\n")
    with pytest.raises(RequestRefusedError):
        command.run(wrong, tmp_path / "out", archive=str(tmp_path), data=tmp_path / "data", slots=1)
    assert [name for name, _, _ in stack.method_calls] == ["begin", "kill", "stop"]
