"""Paths of an attempt's folders in what a program prints."""

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from worker.sandbox.plain_paths import PlainPaths
from worker.sandbox.sandbox import Places

ROOT = Path("/data/scratch/worker/0a1b")
SEEN = Places(
    package=ROOT / "package",
    inputs=ROOT / "input",
    outputs=ROOT / "output",
    temporary=ROOT / "temporary",
)
PRINTED = f"""  File "{ROOT}/package/lib/run.py", line 3
no such file: {ROOT}/input/Lai_1km.tif; wrote {ROOT}/output/a.tif
{ROOT}/other and /data/scratch end with /data/scratch/worker""".encode()
PLAIN = f"""  File "lib/run.py", line 3
no such file: INPUT_DIR/Lai_1km.tif; wrote OUTPUT_DIR/a.tif
{ROOT}/other and /data/scratch end with /data/scratch/worker""".encode()


@given(st.lists(st.integers(0, len(PRINTED)), max_size=12))
def test_paths_have_the_words_of_the_documentation_however_the_text_is_cut(cuts: list[int]) -> None:
    paths = PlainPaths(SEEN)
    ends = [0, *sorted(cuts), len(PRINTED)]
    said = b"".join(paths.put(PRINTED[a:b]) for a, b in pairwise(ends))
    assert said + paths.end() == PLAIN


def test_what_is_no_path_waits_for_nothing() -> None:
    assert PlainPaths(SEEN).put(b"asleep\n") == b"asleep\n"
