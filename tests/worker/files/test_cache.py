"""The cache and the scratch folders, shared, bounded, and never believed without a look."""

import errno
import hashlib
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from tasks.bag.model import ArtifactFile
from tasks.settings import Settings
from tests.waiting import until
from worker.files.cache import Cache
from worker.files.scratch import Scratch, WorkerNameTakenError
from worker.slots.service import cache_folder


def artifact(data: bytes, name: str = "granule.hdf") -> ArtifactFile:
    return ArtifactFile(
        name=name, blob="granules/x", size=len(data), sha256=hashlib.sha256(data).hexdigest()
    )


class Source:
    """Where the cache fetches from; counts, and fails when told to."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.fetched = 0
        self.fail: list[Exception] = []

    def __call__(self, path: Path) -> None:
        self.fetched += 1
        if self.fail:
            raise self.fail.pop()
        path.write_bytes(self.data)


def test_a_file_is_fetched_once_and_survives_a_restart(tmp_path: Path) -> None:
    source = Source(b"abc")
    for n in range(3):
        cache = Cache(tmp_path / "cache", 1000)
        to = tmp_path / f"attempt{n}" / "name.hdf"
        assert cache.get(artifact(b"abc"), to, source) is (n > 0)
        assert to.read_bytes() == b"abc"
    assert source.fetched == 1


def test_a_damaged_entry_is_fetched_again(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path / "cache", 1000), Source(b"abc")
    cache.get(artifact(b"abc"), tmp_path / "a" / "f", source)
    (entry,) = (tmp_path / "cache" / "entries").glob("*/*")
    entry.chmod(0o600)
    entry.write_bytes(b"abX")
    assert not cache.get(artifact(b"abc"), tmp_path / "b" / "f", source)
    assert (tmp_path / "b" / "f").read_bytes() == b"abc"
    assert source.fetched == 2


def test_an_entry_that_another_slot_evicts_meanwhile_still_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, source = Cache(tmp_path / "cache", 1000), Source(b"abc")
    cache.get(artifact(b"abc"), tmp_path / "a" / "f", source)

    def evicted(path: Path, **_: object) -> None:
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr("worker.files.cache.os.utime", evicted)
    assert cache.get(artifact(b"abc"), tmp_path / "b" / "f", source)
    assert (tmp_path / "b" / "f").read_bytes() == b"abc"


def test_use_of_a_file_does_not_change_its_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 1000)
    cache.get(artifact(b"abc"), tmp_path / "a", Source(b"abc"))
    os.utime(tmp_path / "a", (1, 1))
    cache.get(artifact(b"abc"), tmp_path / "b", Source(b"abc"))
    assert (tmp_path / "b").stat().st_mtime == 1
    assert (tmp_path / "b").stat().st_atime > 1


def test_a_failed_fetch_leaves_nothing_and_passes_its_error_on(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path / "cache", 1000), Source(b"abc")
    source.fail = [ConnectionError("cut")]
    with pytest.raises(ConnectionError):
        cache.get(artifact(b"abc"), tmp_path / "a" / "f", source)
    assert cache.size() == 0
    assert cache.get(artifact(b"abc"), tmp_path / "a" / "f", source) is False


def test_the_bound_holds_and_the_longest_unused_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 1000)
    files = [bytes([n]) * 300 for n in range(4)]
    for n, data in enumerate(files):
        cache.get(artifact(data), tmp_path / f"first{n}", Source(data))
        for entry in (tmp_path / "cache" / "entries").glob("*/*"):
            if entry.stat().st_mtime > 10**6:
                os.utime(entry, (n, n))
    assert cache.size() <= 1000
    again = Source(files[3])
    assert cache.get(artifact(files[3]), tmp_path / "again3", again)
    assert not cache.get(artifact(files[0]), tmp_path / "again0", Source(files[0]))


def test_an_attempt_keeps_its_file_when_the_cache_drops_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 1000)
    cache.get(artifact(b"abc"), tmp_path / "mine", Source(b"abc"))
    cache.get(artifact(b"abcd"), tmp_path / "other", Source(b"abcd"))
    cache.shrink(0)
    assert (tmp_path / "mine").read_bytes() == b"abc"


def test_a_file_larger_than_the_cache_goes_past_it(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 2)
    assert not cache.get(artifact(b"abc"), tmp_path / "f", Source(b"abc"))
    assert (tmp_path / "f").read_bytes() == b"abc"
    assert cache.size() == 0


def test_a_full_disk_empties_the_cache_and_tries_once_more(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path / "cache", 1000), Source(b"abc")
    for data in (b"old one", b"old two"):
        cache.get(artifact(data), tmp_path / data.decode(), Source(data))
    source.fail = [OSError(errno.ENOSPC, "No space left on device")]
    cache.get(artifact(b"abc"), tmp_path / "f", source)
    assert (tmp_path / "f").read_bytes() == b"abc"
    assert source.fetched == 2
    assert cache.size() < len(b"old oneold twoabc")


def test_the_total_is_counted_again_when_it_is_wrong_or_gone(tmp_path: Path) -> None:
    cache, total = Cache(tmp_path / "cache", 1000), tmp_path / "cache" / "locks" / "evict"
    for n in range(3):
        cache.get(artifact(bytes([n]) * 100), tmp_path / f"a{n}", Source(bytes([n]) * 100))
    assert total.read_bytes() == b"300"
    for wrong in (b"", b"rubbish", b"99999999"):
        total.write_bytes(wrong)
        data = wrong.rjust(100)
        cache.get(artifact(data), tmp_path / data.decode(), Source(data))
        assert int(total.read_bytes()) == cache.size()
    assert cache.size() == 600


def test_downloads_under_way_are_left_alone_and_old_ones_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", 1000)
    cache.get(artifact(b"abc"), tmp_path / "a", Source(b"abc"))
    cache.get(artifact(b"abcd"), tmp_path / "b", Source(b"abcd"))
    folder = tmp_path / "cache" / "entries" / "00"
    folder.mkdir(exist_ok=True)
    young, old = folder / "young.1.part", folder / ".old"
    young.write_bytes(b"x")
    old.write_bytes(b"x")
    os.utime(old, (1, 1))
    cache.shrink(0)
    assert young.exists()
    assert not old.exists()


def _get(folder: Path, number: int) -> None:
    cache = Cache(folder / "cache", 10**7)

    def fetch(path: Path) -> None:
        with (folder / "fetched").open("ab") as log:
            log.write(b"x")
        path.write_bytes(b"z" * 10**6)

    cache.get(artifact(b"z" * 10**6), folder / f"to{number}", fetch)


def test_processes_that_want_one_file_fetch_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_get, args=(tmp_path, n)) for n in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert (tmp_path / "fetched").read_bytes() == b"x"
    assert len(list(tmp_path.glob("to*"))) == 6


def _hang(folder: Path) -> None:
    def fetch(path: Path) -> None:
        path.write_bytes(b"ab")
        (folder / "half").touch()
        time.sleep(60)

    Cache(folder / "cache", 1000).get(artifact(b"abc"), folder / "dead", fetch)


def test_a_process_killed_while_it_fetches_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    process = multiprocessing.get_context("fork").Process(target=_hang, args=(tmp_path,))
    process.start()
    until(lambda: (tmp_path / "half").exists(), 20)
    process.kill()
    process.join()
    assert not (tmp_path / "dead").exists()
    cache = Cache(tmp_path / "cache", 1000)
    assert not cache.get(artifact(b"abc"), tmp_path / "to", Source(b"abc"))
    assert cache.get(artifact(b"abc"), tmp_path / "again", Source(b"abc"))
    (part,) = (tmp_path / "cache" / "entries").glob("*/*.part")
    os.utime(part, (1, 1))
    cache.shrink(0)
    assert not part.exists()


def test_what_one_worker_made_is_at_hand_for_the_others_of_its_machine(tmp_path: Path) -> None:
    folders = [
        cache_folder(Settings(data_dir=tmp_path, worker_name=name)) for name in ("one", "two")
    ]
    made = tmp_path / "made"
    made.write_bytes(b"abc")
    Cache(folders[0], 1000).put(artifact(b"abc"), made)
    assert Cache(folders[1], 1000).get(artifact(b"abc"), tmp_path / "to", Source(b"abc"))


def mistreat(folder: Path) -> None:
    """What user code may do to its folder before it fails."""
    locked = folder / "locked" / "deep"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x", "utf-8")
    (folder / "out").symlink_to(folder.parent.parent)
    locked.chmod(0)
    raise RuntimeError


def test_scratch_folders_go_whatever_was_done_to_them(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, "worker")
    with scratch.attempt("claim") as folder, pytest.raises(RuntimeError):
        mistreat(folder)
    assert not folder.exists()
    assert (tmp_path / "scratch" / "worker").exists()
    scratch.close()
    assert not list((tmp_path / "scratch").iterdir())


def test_leftovers_of_the_dead_are_removed_and_the_living_are_left_alone(tmp_path: Path) -> None:
    living = Scratch(tmp_path, "living")
    for owner in ("living", "dead", "mine"):
        (tmp_path / "scratch" / owner / "claim").mkdir(parents=True)
    mine = Scratch(tmp_path, "mine")
    assert mine.clean() == ("dead",)
    assert (tmp_path / "scratch" / "living" / "claim").exists()
    assert not (tmp_path / "scratch" / "mine" / "claim").exists()
    assert not (tmp_path / "scratch" / "dead").exists()
    mine.close()
    living.close()


def test_two_workers_of_one_name_are_refused(tmp_path: Path) -> None:
    first = Scratch(tmp_path, "worker")
    with pytest.raises(WorkerNameTakenError, match="SWATHMILL_WORKER_NAME"):
        Scratch(tmp_path, "worker")
    first.close()
    Scratch(tmp_path, "worker").close()
