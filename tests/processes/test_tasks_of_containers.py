"""The kernel counts tasks of all containers with the same user id, so there they have no limit."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from processes import confine
from processes.refused_calls import filter_of

USER = 64_021  # nobody's on this machine
OTHERS, TASKS = 12, 8
NEW = ["unshare", "--fork", "--kill-child", "--pid", "--mount-proc"]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or not confine._is_first("pid"),
    reason="needs root on a whole machine, and unshare",
)


@pytest.fixture
def others() -> Iterator[None]:
    """Processes of another container under the same user id."""
    running = [subprocess.Popen(["sleep", "600"], user=USER) for _ in range(OTHERS)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def program(container: list[str], how: str) -> subprocess.CompletedProcess[str]:
    """Run a program that forks three times, confined as a package in the tier `limits`."""
    calls = filter_of(shared=how == "shared", one_group=True, tcp=False).hex()
    policy = [f"tasks={TASKS}", f"user={USER}", f"filter={calls}", how]
    forks = ["/bin/sh", "-c", "sleep 0 & sleep 0 & sleep 0 & wait; echo done"]
    return subprocess.run(
        [*container, sys.executable, "-I", "-S", confine.__file__, *policy, "--", *forks],
        capture_output=True,
        text=True,
    )


@pytest.mark.usefixtures("others")
@pytest.mark.parametrize("how", ["shared", "search"])
def test_a_package_in_a_container_may_fork_beside_others_of_its_user_id(how: str) -> None:
    """Tables of sites failed in images: no thread could be started beside other containers."""
    ended = program(NEW, how)
    assert (ended.returncode, ended.stdout.strip()) == (0, "done"), ended.stderr


@pytest.mark.usefixtures("others")
def test_on_a_whole_machine_the_kernel_holds_the_limit() -> None:
    assert program([], "shared").stdout.strip() == "done", "those that are there are counted"
    assert program([], "search").returncode, "an id of its own has none beside"
