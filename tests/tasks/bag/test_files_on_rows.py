"""Files of an artifact as rows have them."""

from reprojection.read.completeness import Completeness, Missing
from tasks.bag.model import ArtifactFile
from tasks.bag.task_rows import NAMED, dump_files, load_files

WHOLE = ArtifactFile(name="a.tif", blob="artifacts/a", size=1, sha256="0")


def lacking(count: int) -> ArtifactFile:
    names = tuple(Missing(what=f"granule {n:04d}", why="x" * 900) for n in range(count))
    said = Completeness(share=0.5, missing=names)
    return ArtifactFile(name="b.tif", blob="artifacts/b", size=2, sha256="1", completeness=said)


def test_files_that_lack_nothing_are_as_they_were() -> None:
    assert dump_files([WHOLE]) == b'[["a.tif", "artifacts/a", 1, "0"]]'
    assert load_files(dump_files([WHOLE])) == (WHOLE,)


def test_missing_inputs_come_back_as_many_as_a_row_holds() -> None:
    few, many = lacking(3), lacking(1000)
    (found,) = load_files(dump_files([few]))
    assert [one.what for one in found.completeness.missing] == [
        one.what for one in few.completeness.missing
    ]
    for files in ([many], [WHOLE, many, many]):
        data = dump_files(files)
        assert len(data) < 60_000
        loaded = load_files(data)
        assert [file.completeness.count for file in loaded] == [
            file.completeness.count for file in files
        ]
        assert sum(len(file.completeness.missing) for file in loaded) <= NAMED
