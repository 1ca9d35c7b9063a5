"""No secret of a child is in the memory of its maker: real children, and their memory searched."""

import json
import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from processes import proctree
from reprojection.sample.hdfeos_write import write_granule
from tasks.service.connect import connect
from tasks.settings import Settings
from tests.memories import holds
from tests.reprojection.reading_samples import small_tile
from tests.worker.world import collect_spec
from worker.sandbox.children import Children
from worker.sandbox.makers import reading_tier
from worker.sandbox.messages import ChildSettings, Job, Message
from worker.slots import attempt

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys
from pathlib import Path
from tests.worker.sandbox.test_makers_memory import run
from worker.sandbox.children import start_forkserver
if __name__ == "__main__":
    start_forkserver()
    print(json.dumps(run(Path(sys.argv[1]))))
"""


def run(folder: Path) -> dict[str, Any]:
    """Collect a granule in a real child, whose maker then waits for the next; search both."""
    secret = secrets.token_hex(24)
    archive = folder / "archive"
    archive.mkdir()
    tile = small_tile()
    write_granule(archive / tile.local_name, tile)
    settings = Settings(
        storage=SecretStr(f"file:{folder / 'storage'}"),
        redis_url=SecretStr("redis://127.0.0.1:1"),  # nothing here calls it
        earthdata_token=SecretStr(secret),
        data_dir=folder / "data",
        archive=str(archive),
    )
    connect(settings)
    given = ChildSettings(
        settings=settings, cache=folder / "cache", sandbox=None, reading=reading_tier()
    )
    children = Children(partial(attempt.prepare, given), 4 * 10**9, 1, folder / "homes")
    scratch = folder / "scratch"
    scratch.mkdir()
    spec = collect_spec(archive / tile.local_name, archive, "MCD15A2", "5")
    said: list[Message] = []
    try:
        ended = children.start(
            Job(request="r", key=spec.key, claim="c", spec=spec, inputs={}, scratch=scratch)
        ).follow(said.append)
        assert ended is not None
        tree = tree_of(os.getpid(), secret)
    finally:
        children.close()
    return {"kept": ended.kept, "said": said[-1].kind, "tree": tree}


def tree_of(root: int, secret: str) -> dict[str, bool]:
    """Which processes hold the secret: the guard's, by their place below it."""
    found: dict[str, bool] = {}
    for server in proctree.children(root):
        for guard in proctree.children(server):
            for one in proctree.children(guard):
                below = proctree.children(one)
                found["server" if below else "child"] = holds(one, secret)
                for maker in below:
                    found["maker"] = holds(maker, secret)
    return found


def test_no_secret_of_a_child_is_in_the_memory_of_its_maker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    if "PermissionError" in done.stderr and os.geteuid() != 0:
        pytest.skip("this machine lets nobody but root look into other processes")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "kept": True,
        "said": "succeeded",
        "tree": {"server": False, "child": True, "maker": False},
    }
