"""A PostgreSQL server of a test's own, on loopback, with a password."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from swathmill.stack import ports

MOST_CONNECTIONS = 220  # 192 clients and some


def program(name: str) -> str | None:
    """Return where a program of the server is, if it is installed."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ["PATH"]]))


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server; yield the URL of its database. It refuses to run as root: another user does."""
    initdb, control = program("initdb"), program("pg_ctl")
    assert initdb is not None
    assert control is not None
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    (port,) = ports.choose(1)
    password = secrets.token_hex(16)
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, user.pw_uid, user.pw_gid)
        secret, data = Path(name) / "password", Path(name) / "data"
        secret.write_text(password)
        os.chown(secret, user.pw_uid, user.pw_gid)

        def call(*words: str) -> None:
            subprocess.run(
                words, check=True, user=user.pw_uid, group=user.pw_gid, cwd=name,
                stdout=subprocess.DEVNULL, timeout=300,
            )  # fmt: skip

        call(initdb, "-D", str(data), "-U", "study", "-A", "scram-sha-256", "--no-sync",
             f"--pwfile={secret}")  # fmt: skip
        given = (
            f"-p {port} -k {name} -c listen_addresses={ports.LOOPBACK} "
            f"-c max_connections={MOST_CONNECTIONS}"
        )
        log = str(Path(name) / "log")
        call(control, "start", "-w", "-t", "240", "-D", str(data), "-l", log, "-o", given)
        try:
            yield f"postgresql://study:{password}@{ports.LOOPBACK}:{port}/postgres"
        finally:
            call(control, "stop", "-m", "immediate", "-D", str(data))
