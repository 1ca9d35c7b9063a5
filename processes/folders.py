"""Removal of folders that programs of others have filled."""

import shutil
from pathlib import Path


def remove_folder(path: Path) -> None:
    """Remove a folder even if user code removed its own permissions."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    path.chmod(0o700)
    for inner in path.iterdir():
        if inner.is_dir() and not inner.is_symlink():
            remove_folder(inner)
    shutil.rmtree(path)
