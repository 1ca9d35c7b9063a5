"""The folder of a checkpoint in both tiers: what a program may do there, and what ends it."""

from dataclasses import replace

import pytest

from tasks.bag.categories import Category
from tasks.service.classify import AttemptError
from tests.worker.sandbox.test_sandbox import BOUNDS, places, run, tier, tried
from worker.sandbox import accounts
from worker.sandbox.sandbox import Places, Tier, variables_of

pytestmark = pytest.mark.slow
__all__ = ["places", "tier"]


@pytest.fixture
def keeping(places: Places) -> Places:
    kept = places.package.with_name("checkpoint")
    kept.mkdir()
    (kept / "sums").write_bytes(b"12")
    return replace(places, checkpoint=kept)


def test_a_program_reads_replaces_and_appends_to_what_it_left(tier: Tier, keeping: Places) -> None:
    script = """
    import os, pathlib, sys
    kept = pathlib.Path(os.environ["SWATHMILL_CHECKPOINT"])
    with (kept / "sums").open("ab") as file:
        file.write(b"34")
    (kept / ".next").write_bytes(b"5")
    (kept / ".next").replace(kept / "next")
    pathlib.Path(sys.argv[2], "out.txt").write_text((kept / "sums").read_text())
    print("left in", kept)
    """
    assert run(tier, keeping, script) == "1234"
    assert keeping.checkpoint is not None
    found = {path.name: path.read_bytes() for path in keeping.checkpoint.iterdir()}
    assert found == {"sums": b"1234", "next": b"5"}


def test_without_one_there_is_no_such_variable(tier: Tier, places: Places) -> None:
    script = """
    import os, pathlib, sys
    names = [name for name in os.environ if name.startswith("SWATHMILL")]
    pathlib.Path(sys.argv[2], "out.txt").write_text(repr(names))
    """
    assert run(tier, places, script) == "[]"


def test_the_folder_itself_stays(tier: Tier, keeping: Places) -> None:
    script = """
    kept = os.environ["SWATHMILL_CHECKPOINT"]
    attempt("rename", lambda: os.rename(kept, kept + "-away"))
    attempt("beside", lambda: open(os.path.join(os.path.dirname(kept), "beside"), "w"))
    """
    assert set(tried(tier, keeping, script).values()) <= {"PermissionError", "OSError"}


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("(kept / 'folder').mkdir()", "plain files alone, and 'folder'"),
        ("(kept / 'link').symlink_to('/etc/passwd')", "plain files alone, and 'link'"),
        ("os.mkfifo(kept / 'pipe')", "plain files alone, and 'pipe'"),
        ("os.truncate(kept / 'sums', 26_000_000)", "a quarter of `output_gb`"),
        ("[(kept / str(n)).touch() for n in range(100)]  # and `sums`", "its limit is 100 files"),
        ("(kept / '.hidden').write_bytes(bytes(101_000_000))", "has written 0.10 GB"),
    ],
)
def test_what_cannot_be_kept_ends_the_program(
    does: str, said: str, tier: Tier, keeping: Places
) -> None:
    assert accounts.MOST_STATE_FILES == 100
    script = f"""
    import os, pathlib, time
    kept = pathlib.Path(os.environ["SWATHMILL_CHECKPOINT"])
    {does}
    time.sleep(60)
    """
    with pytest.raises(AttemptError, match=said) as failed:
        run(tier, keeping, script, replace(BOUNDS, output=10**8))
    assert failed.value.category is Category.USER_CODE_FAILED


def test_its_path_is_a_word_in_the_log(
    tier: Tier, keeping: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tier, keeping, "import os; print('in', os.environ['SWATHMILL_CHECKPOINT'], flush=True)")
    assert "in SWATHMILL_CHECKPOINT" in capfd.readouterr().out


def test_shipped_code_finds_it_too(keeping: Places) -> None:
    assert variables_of(keeping, BOUNDS)["SWATHMILL_CHECKPOINT"] == str(keeping.checkpoint)
