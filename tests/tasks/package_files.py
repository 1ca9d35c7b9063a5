"""Packages of tests, and uploads of them as people and enemies send them."""

import io
import tarfile
import zipfile
from pathlib import Path

MANIFEST = 'name: own\ncommand: [sh, run.sh]\noutputs: ["{layer}.tif"]\n'


def manifest(name: str = "own", version: str = "1", more: str = "") -> str:
    """A manifest of this name and version."""
    return MANIFEST.replace("own", name) + f'version: "{version}"\n{more}'


def folder_of(place: Path, name: str = "own", version: str = "1", program: str = "true") -> Path:
    """A package's folder."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "package.yaml").write_text(manifest(name, version), "utf-8")
    (place / "run.sh").write_text(f"#!/bin/sh\n{program}\n", "utf-8")
    return place


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes], mode: str = "w") -> bytes:
    """A tar of files, and of members whose headers are as they are said."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT) as tar:  # type: ignore[call-overload]
        for one in members:
            if isinstance(one, tuple):
                info = tarfile.TarInfo(one[0])
                info.size = len(one[1])
                tar.addfile(info, io.BytesIO(one[1]))
            else:
                tar.addfile(one, io.BytesIO(b"x" * max(0, one.size)))
    return buffer.getvalue()


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """A zip of files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def upload_of(
    name: str = "own", version: str = "1", program: str = "true", more: str = ""
) -> bytes:
    """A good upload, a zip."""
    files = (
        ("package.yaml", manifest(name, version, more).encode()),
        ("run.sh", f"#!/bin/sh\n{program}\n".encode()),
    )
    return zip_of(*files)
