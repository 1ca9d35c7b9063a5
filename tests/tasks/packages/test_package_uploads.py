"""Uploads: the same files make the same archive however they come; hostile ones are refused."""

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from tasks.packages import package_uploads
from tasks.packages.package_uploads import Upload, repack
from tasks.packages.packages import PackageError, pack, unpack
from tests.tasks.package_files import folder_of, manifest, tar_of, upload_of, zip_of

GOOD = ("package.yaml", manifest().encode())
RUN = ("run.sh", b"#!/bin/sh\ntrue\n")


def read(data: bytes, at: Path) -> Upload:
    """Repack an upload in a folder of its own."""
    at.mkdir(parents=True, exist_ok=True)
    (at / "upload").write_bytes(data)
    (at / "files").mkdir()
    return repack(at / "upload", at / "files", at / "archive.tar")


def linked(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = tarfile.SYMTYPE
    info.linkname = target
    return info


def of_kind(name: str, kind: bytes, linkname: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, linkname, size
    return info


def zip_member(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def test_equal_files_make_one_archive_in_every_format(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "own")
    uploads = {
        "folder": pack(folder).data,
        "tar": tar_of(GOOD, RUN),
        "gz": tar_of(RUN, GOOD, mode="w:gz"),
        "bz2": tar_of(GOOD, RUN, mode="w:bz2"),
        "xz": tar_of(GOOD, RUN, mode="w:xz"),
        "below": tar_of(("own/package.yaml", GOOD[1]), ("own/run.sh", RUN[1])),
        "dots": tar_of(("./package.yaml", GOOD[1]), ("./run.sh", RUN[1])),
        "junk": tar_of(GOOD, RUN, ("__MACOSX/x", b"1"), ("__pycache__/y.pyc", b"2")),
        "folders": tar_of(of_kind("lib", tarfile.DIRTYPE), GOOD, RUN),
        "zip": zip_of(
            (zip_member("package.yaml", 0o100644), GOOD[1]),
            (zip_member("run.sh", 0o100644), RUN[1]),
        ),
        "zip with a folder": zip_of(
            ("lib/", b""),
            (zip_member("package.yaml", 0o100644), GOOD[1]),
            (zip_member("run.sh", 0o100644), RUN[1]),
        ),
    }
    found = {how: read(data, tmp_path / how) for how, data in uploads.items()}
    assert {one.digest for one in found.values()} == {pack(folder).digest}
    assert {one.files for one in found.values()} == {2}
    assert (tmp_path / "zip" / "archive.tar").read_bytes() == pack(folder).data


def test_what_can_be_run_stays_so(tmp_path: Path) -> None:
    data = zip_of(
        (zip_member("package.yaml", 0o100644), GOOD[1]), (zip_member("run.sh", 0o100755), RUN[1])
    )
    upload = read(data, tmp_path)
    (tmp_path / "out").mkdir()
    assert unpack(tmp_path / "archive.tar", tmp_path / "out") == upload.package
    assert (tmp_path / "out" / "run.sh").stat().st_mode & stat.S_IXUSR
    assert not (tmp_path / "out" / "package.yaml").stat().st_mode & stat.S_IXUSR


def test_a_zip_of_a_system_without_modes_runs_what_looks_like_a_program(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("run.sh")
    info.create_system = 0
    read(zip_of(GOOD, (info, RUN[1])), tmp_path)
    with tarfile.open(tmp_path / "archive.tar") as tar:
        assert tar.getmember("run.sh").mode == 0o755
        assert tar.getmember("package.yaml").mode == 0o644


@pytest.mark.parametrize(
    ("command", "files", "wrong"),
    [
        ("./run", {"run": b"#!/bin/sh\r\nset -e\r\n"}, "run"),
        ("sh, steps", {"steps": b"set -e\r\n"}, "steps"),
        ("./run", {"run": b"#!/bin/sh\n. ./own.sh\n", "own.sh": b"a=1\n\r\n"}, "own.sh"),
        ("./run.py", {"run.py": b"#!/usr/bin/env python3\r\n"}, "run.py"),
        ("python, run.py", {"run.py": b"#!/usr/bin/env python3\r\nprint()\r\n"}, ""),
        ("./run", {"run": b"#!/bin/sh\nset -e\n", "table.csv": b"a,b\r\n"}, ""),
    ],
)
def test_a_script_with_the_lines_of_windows_is_told(
    command: str, files: dict[str, bytes], wrong: str, tmp_path: Path
) -> None:
    said = manifest().replace("[sh, run.sh]", f"[{command}]").encode()
    members = [(zip_member(name, 0o100755), data) for name, data in files.items()]
    data = zip_of(("package.yaml", said), *members)
    if not wrong:
        assert read(data, tmp_path).files == 1 + len(files)
        return
    with pytest.raises(PackageError, match=f"the lines of {wrong} end with CR LF"):
        read(data, tmp_path)


def encrypted() -> bytes:
    data = bytearray(zip_of(GOOD, RUN))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.find(magic)
        data[start + at] |= 1
    return bytes(data)


def with_pax(key: str, value: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (GOOD, RUN):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.pax_headers = {key: value} if name == "run.sh" else {}
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


HOSTILE = {
    "climbs": (tar_of(GOOD, ("../outside", b"x")), "does not lie below"),
    "climbs inside": (tar_of(GOOD, ("a/../../outside", b"x")), "does not lie below"),
    "absolute": (tar_of(GOOD, ("/tmp/outside", b"x")), "does not lie below"),
    "climbs by zip": (zip_of(GOOD, ("../outside", b"x")), "does not lie below"),
    "absolute by zip": (zip_of(GOOD, ("/tmp/outside", b"x")), "does not lie below"),
    "backslash": (zip_of(GOOD, ("a\\..\\b", b"x")), "no name may have"),
    "control": (tar_of(GOOD, ("a\nb", b"x")), "no name may have"),
    "symbolic link": (tar_of(GOOD, linked("x", "/nowhere/x")), "a link to '/nowhere/x'"),
    "hard link": (tar_of(GOOD, of_kind("x", tarfile.LNKTYPE, "package.yaml")), "a link"),
    "link by zip": (zip_of(GOOD, (zip_member("x", 0o120777), b"/nowhere/x")), "is a link"),
    "device": (tar_of(GOOD, of_kind("x", tarfile.CHRTYPE)), "a device"),
    "disk": (tar_of(GOOD, of_kind("x", tarfile.BLKTYPE)), "a device"),
    "pipe": (tar_of(GOOD, of_kind("x", tarfile.FIFOTYPE)), "a pipe"),
    "pipe by zip": (zip_of(GOOD, (zip_member("x", 0o010644), b"")), "no plain file"),
    "twice": (tar_of(GOOD, RUN, RUN), "is there twice"),
    "below a file": (tar_of(GOOD, ("run.sh", b"x"), ("run.sh/x", b"y")), "lies below the file"),
    "long name": (tar_of(GOOD, ("n" * 256, b"x")), "too long a name"),
    "encrypted": (encrypted(), "encrypted"),
    "no manifest": (tar_of(RUN), "has no package.yaml"),
    "wrong manifest": (tar_of(("package.yaml", b"name: own\n")), "command"),
    "long manifest": (tar_of(("package.yaml", b"#" * 40_000 + GOOD[1])), "longer than 32 KiB"),
    "version": (upload_of(version="../1"), "cannot be part of a name"),
    "no archive": (b"hello", "neither a zip nor a tar"),
    "empty": (b"", "neither a zip nor a tar"),
    "cut": (tar_of(GOOD, ("data", b"x" * 5000))[:2500], "damaged"),
    "cut gz": (tar_of(GOOD, RUN, mode="w:gz")[:-20], "damaged"),
    "cut zip": (zip_of(GOOD, RUN)[:-30], "damaged"),
    "long header": (with_pax("comment", "x" * 2**21), "has a header of"),
    "negative size": (with_pax("size", "-512"), "-512|damaged"),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_upload_is_refused_with_the_reason(tmp_path: Path, how: str) -> None:
    data, why = HOSTILE[how]
    with pytest.raises(PackageError, match=why):
        read(data, tmp_path / "in" / "here")
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["here"]
    assert not (tmp_path / "in" / "here" / "archive.tar").exists()


def test_bombs_end_at_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_uploads, "MAX_BYTES", 2**20)
    monkeypatch.setattr(package_uploads, "_MOST_TAR", 2**21)
    zeros = ("zeros", bytes(2**22))
    parts = [(f"part{n}", bytes(2**18)) for n in range(5)]
    for how, data in {
        "zip": zip_of(GOOD, zeros),
        "tar": tar_of(GOOD, zeros),
        "gz": tar_of(GOOD, zeros, mode="w:gz"),
        "sum": tar_of(*parts, GOOD),
        "sum of a zip": zip_of(*parts, GOOD),
    }.items():
        with pytest.raises(PackageError, match="larger than"):
            read(data, tmp_path / how)
        written = sum(path.stat().st_size for path in (tmp_path / how / "files").iterdir())
        assert written <= 3 * 2**20, how


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_uploads, "MAX_FILES", 20)
    monkeypatch.setattr(package_uploads, "_MOST_MEMBERS", 40)
    monkeypatch.setattr(package_uploads, "_LONGEST_LIST", 2000)
    files = tuple((f"f{n}", b"") for n in range(25))
    zip_with_long_list = zip_of(GOOD, *((f"f{n}", b"") for n in range(60)))
    for how, data in {
        "tar": tar_of(GOOD, *files),
        "folders": tar_of(GOOD, *(of_kind(f"d{n}", tarfile.DIRTYPE) for n in range(60))),
        "zip": zip_of(GOOD, *files),
    }.items():
        with pytest.raises(PackageError, match="more than 20 files"):
            read(data, tmp_path / how)
    monkeypatch.setattr(zipfile, "ZipFile", None)  # it would read the whole list at once
    with pytest.raises(PackageError, match="more than 20 files"):
        read(zip_with_long_list, tmp_path / "list")


@pytest.mark.parametrize("more", [0, 1])
def test_a_manifest_has_so_many_bytes(tmp_path: Path, more: int) -> None:
    text = GOOD[1] + b"#"
    text += b"x" * (package_uploads.LONGEST_MANIFEST - len(text) + more)
    if more:
        with pytest.raises(PackageError, match=r"its package.yaml is longer than 32 KiB"):
            read(tar_of(("package.yaml", text), RUN), tmp_path)
    else:
        assert read(tar_of(("package.yaml", text), RUN), tmp_path).package.name == "own"


@pytest.mark.parametrize("more", [0, 1])
def test_what_is_no_files_content_has_so_many_bytes(more: int) -> None:
    header = of_kind("a", tarfile.XHDTYPE, size=package_uploads._LONGEST_HEADER + more)
    data = header.tobuf(tarfile.GNU_FORMAT)
    if more:
        with pytest.raises(PackageError, match="has a header of 1,048,577 bytes"):
            package_uploads._BoundedHeader.frombuf(data, "utf-8", "strict")
    else:
        assert package_uploads._BoundedHeader.frombuf(data, "utf-8", "strict").size == 2**20


def test_a_zip_with_the_longest_comment_is_read(tmp_path: Path) -> None:
    """Its end is looked for in the last `_LONGEST_END` bytes."""
    data = io.BytesIO(zip_of(GOOD, RUN))
    with zipfile.ZipFile(data, "a") as archive:
        archive.comment = b"c" * 0xFFFF
    assert package_uploads._LONGEST_END == 22 + 0xFFFF
    assert read(data.getvalue(), tmp_path).package.name == "own"
