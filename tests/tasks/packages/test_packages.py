"""Manifests and archives of packages at their bounds."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from tasks.packages import packages
from tasks.packages.packages import MOST_HALO, Inputs, PackageError, unpack, unpack_environment
from tests.tasks.package_files import tar_of


def test_a_halo_has_so_many_pixels_at_most() -> None:
    """A quarter of a cell's side: what is read for it is still mostly the cell."""
    assert Inputs(halo=MOST_HALO).halo == 256
    with pytest.raises(ValidationError, match="less than or equal to 256"):
        Inputs(halo=257)


PLAIN = (unpack, "MAX_BYTES", "MAX_FILES")
ENVIRONMENT = (unpack_environment, "MOST_ENVIRONMENT_BYTES", "MOST_ENVIRONMENT_FILES")


@pytest.mark.parametrize(("how", "most_bytes", "most_files"), [PLAIN, ENVIRONMENT])
@pytest.mark.parametrize(
    ("files", "size", "words"),
    [
        (3, 0, ""),
        (4, 0, "'f3' is one file more than the 3 that are allowed"),
        (2, 2**20, ""),
        (2, 2**20 + 1, "'f1' makes the package larger than 2 MiB"),
    ],
)
def test_an_archive_unpacks_to_so_many_files_and_bytes_at_most(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Callable[[Path, Path], object],
    most_bytes: str,
    most_files: str,
    files: int,
    size: int,
    words: str,
) -> None:
    monkeypatch.setattr(packages, most_bytes, 2**21)
    monkeypatch.setattr(packages, most_files, 3)
    monkeypatch.setattr(packages, "load_package", lambda _: None)
    made = tar_of(*((f"f{number}", bytes(size if number else 2**20)) for number in range(files)))
    (tmp_path / "made.tar").write_bytes(made)
    to = tmp_path / "to"
    to.mkdir()
    if words:
        with pytest.raises(PackageError, match=words):
            how(tmp_path / "made.tar", to)
    else:
        how(tmp_path / "made.tar", to)
    assert len([*to.iterdir()]) == (0 if words else files)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("n" * packages._LONGEST_NAME, True),
        ("n" * (packages._LONGEST_NAME + 1), False),
        ("é" * 128, False),  # by bytes
        ("/".join(["n" * 255] * 3 + ["n" * 256]), False),
        ("/".join([*["n" * 204] * 4, "n" * 204]), True),  # 1,024 bytes
        ("/".join([*["n" * 204] * 4, "n" * 205]), False),
    ],
)
def test_a_name_and_a_path_have_so_many_bytes(name: str, taken: bool) -> None:
    assert (packages._LONGEST_NAME, packages._LONGEST_PATH) == (255, 1024)
    assert packages.wrong_path(name) == ("" if taken else "has too long a name")
