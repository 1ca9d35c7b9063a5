"""Calls of Azure's command `az`, which signs in, knows the clouds and compiles Bicep."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from swathmill.errors import StackError

INSTALL = "Install Azure's command: https://learn.microsoft.com/cli/azure/install-azure-cli"


class Az:
    """Runs `az` in a folder; what a call prints as JSON is returned."""

    def __init__(self, folder: Path) -> None:
        """Find the command. Raises StackError where there is none."""
        found = shutil.which("az")
        if found is None:
            raise StackError("The command az is absent.", INSTALL)
        self._program = found
        self._folder = folder

    def ask(self, *words: str, given: Mapping[str, str] | None = None) -> object:
        """Run a call and return its answer; `given` are variables of its environment.

        Raises:
            StackError: it failed; the message is its own.
        """
        done = subprocess.run(
            [self._program, *words, "--output", "json", "--only-show-errors"],
            cwd=self._folder,
            env={**os.environ, **(given or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _failed(words, done.stderr)
        return json.loads(done.stdout) if done.stdout.strip() else None

    def show(self, *words: str, given: Mapping[str, str] | None = None) -> None:
        """Run a call whose output people read. Raises StackError."""
        done = subprocess.run(
            [self._program, *words],
            cwd=self._folder,
            env={**os.environ, **(given or {})},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise _failed(words, done.stderr)


def _failed(words: Sequence[str], said: str) -> StackError:
    call = "az " + " ".join(word for word in words[:3] if not word.startswith("-"))
    if "az login" in said:
        return StackError("az is not signed in to Azure.", "Run `az login`, then the same again.")
    return StackError(
        f"`{call}` failed: {said.strip()[-2000:]}", "Correct it, then the same again."
    )


def row(answer: object) -> dict[str, object]:
    """Return an answer that is an object. Raises StackError for another one."""
    if not isinstance(answer, dict):
        raise StackError(
            f"az answered something unexpected: {str(answer)[:300]}", "Update az: `az upgrade`."
        )
    return answer


def rows(answer: object) -> list[dict[str, object]]:
    """Return an answer that is a list of objects; another one has none."""
    return [row(one) for one in answer] if isinstance(answer, list) else []
