"""What is unpacked for a package's Python dependencies, at its bounds."""

from pathlib import Path

import pytest

from tasks.packages import python_environments
from tasks.packages.packages import PackageError


def filled(folder: Path, sizes: dict[str, int]) -> Path:
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(size))
    return folder


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ({"site/a": 1, "site/b/c": 1, "cache/d": 1, "home/e": 1}, True),
        ({"site/a": 1, "site/b/c": 1, "site/b/d": 1}, False),
        ({"site/a": 10, "cache/b": 20}, True),
        ({"site/a": 10, "cache/b": 21}, False),
    ],
)
def test_while_it_is_made_an_environment_has_its_cache_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], taken: bool
) -> None:
    monkeypatch.setattr(python_environments, "MOST_ENVIRONMENT_BYTES", 10)
    monkeypatch.setattr(python_environments, "MOST_ENVIRONMENT_FILES", 2)
    folder = filled(tmp_path / "sites", sizes)  # its own name counts for nothing
    if taken:
        python_environments._check_size(folder)
    else:
        with pytest.raises(PackageError, match="they are larger than 0 MiB or more than 2 files"):
            python_environments._check_size(folder)


def test_an_environment_has_so_many_bytes_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_environments, "MOST_ENVIRONMENT_BYTES", 10)
    site = filled(tmp_path / "site", {"a": 6, "b/c": 4, "bin/script": 9})
    assert [str(name) for name, _ in python_environments._files(site)] == ["a", "b/c"]
    with pytest.raises(PackageError, match="they are larger than"):
        [*python_environments._files(filled(site, {"d": 1}))]
