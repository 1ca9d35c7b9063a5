"""Hold a live portal to its OpenAPI description: `python -m tests.portal.fuzz [EXAMPLES]`.

`schemathesis` calls every address with data that the description allows and data that it does not,
signed in as a scientist, as an operator and not at all.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import structlog

from portal.serving import tokens
from portal.serving.tokens import Role
from service_manager.leader.leadership import Leadership
from tasks.bag.categories import Category
from tasks.requests import request_operations
from tasks.settings import Settings
from tests.portal.scripted import (
    SECRET,
    LivePortal,
    live_portal,
    live_runtime,
    put_failed_task,
    put_result,
    raster_bytes,
    settings,
)
from tests.portal.submissions import submitted

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
PROGRAM = Path(sys.executable).with_name("st")
ROLES: tuple[Role | None, ...] = (Role.SCIENTIST, Role.OPERATOR, None)
LEASE = 86400.0


def check(portal: LivePortal, role: Role | None, folder: Path, *options: str) -> str:
    """Run schemathesis; return "" if it found nothing wrong, else what it printed."""
    signed_in = []
    if role is not None:
        token = tokens.issue(SECRET, "ada@example.org", role)
        signed_in = ["--header", f"Authorization: Bearer {token}"]
    ran = subprocess.run(
        [
            PROGRAM,
            f"--config-file={CONFIGURATION}",
            "run",
            f"{portal.url}/api/openapi.json",
            *signed_in,
            "--continue-on-failure",
            "--request-timeout=60",
            "--generation-deterministic",
            "--no-color",
            *options,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "no_proxy": "127.0.0.1"},
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def served(folder: Path) -> Settings:
    """Return the settings of a portal whose archive is there, and empty."""
    archive = folder / "archive"
    archive.mkdir(exist_ok=True)
    return settings(lease_seconds=str(LEASE), archive=str(archive))


def furnish(portal: LivePortal, folder: Path) -> None:
    """Give the portal an acting manager, and Ada a request with a result and a failure."""
    assert Leadership(portal.runtime, LEASE).acquire()
    name = submitted(portal.runtime)
    put_failed_task(portal.runtime, name, "G1", (Category.UNKNOWN,))
    put_result(
        portal.runtime, name, "MCD15A2.005/Lai_1km", "a.2012-01-01.tif", raster_bytes(folder)
    )
    request_operations.submit(
        portal.runtime,
        "ben@example.org",
        request_operations.document_of(request_operations.load(portal.runtime, name)),
    )


def main() -> int:
    """Check with many examples; return the exit status."""
    examples = sys.argv[1] if len(sys.argv) > 1 else "50"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        for role in ROLES:
            # Nobody renews the manager's lease: it holds for as long as this may take.
            with live_portal(live_runtime(), served(Path(name))) as portal:
                furnish(portal, Path(name))
                said = check(portal, role, Path(name), f"--max-examples={examples}")
            sys.stdout.write(f"{role or 'not signed in'}: {said or 'all answers as described'}\n")
            wrong += bool(said)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
