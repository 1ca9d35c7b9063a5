"""What a host left that is gone is removed; what others use stays."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from worker.files.host_folders import HostFolders


def fill(folder: Path, host: str) -> list[Path]:
    made = [folder / kind / host for kind in ("cache", "packages", "processors")]
    for path in made:
        inner = path / "read-only"
        inner.mkdir(parents=True)
        (inner / "file").write_text("x")
        inner.chmod(0o500)
    return made


def test_folders_of_a_host_without_a_process_are_removed(tmp_path: Path) -> None:
    gone, living, own = (fill(tmp_path, host) for host in ("gone", "living.example", "own"))
    script = "import sys; from pathlib import Path; from worker.files.host_folders import *\n"
    hold = f"{script}held = HostFolders(Path(sys.argv[1]), sys.argv[2])\nprint(flush=True)\n"
    subprocess.run([sys.executable, "-c", hold, str(tmp_path), "gone"], check=True)
    with subprocess.Popen(
        [sys.executable, "-c", f"{hold}input()", str(tmp_path), "living.example"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it holds its folders
        first, second = HostFolders(tmp_path, "own"), HostFolders(tmp_path, "own")
        assert first.remove_abandoned() == ("gone",)
        assert not any(path.exists() for path in gone)
        assert all(path.exists() for path in (*living, *own))
        first.close()
        with closing(HostFolders(tmp_path, "third")) as third:
            assert third.remove_abandoned() == ()  # `second` holds them
        second.close()
        process.communicate(b"\n")
    with closing(HostFolders(tmp_path, "last")) as last:
        assert last.remove_abandoned() == ("living.example", "own", "third")
