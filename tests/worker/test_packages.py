"""Packages: found by name, checked, archived to the same bytes, unpacked whole."""

import io
import tarfile
from datetime import date
from pathlib import Path

import pytest

from tasks.packages.packages import (
    MAX_BYTES,
    PackageError,
    Packages,
    layer_labels,
    load_package,
    pack,
    unpack,
)
from tasks.settings import Settings
from tasks.spec_parts import Band


def make(folder: Path, manifest: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "package.yaml").write_text(manifest, "utf-8")
    (folder / "run.sh").write_text("#!/bin/sh\n", "utf-8")
    return folder


GOOD = 'name: own\ncommand: [sh, run.sh]\noutputs: ["{layer}.tif", summary.csv]\n'


def test_shipped_packages_are_found_and_declare_a_raster_per_layer() -> None:
    packages = Packages.of(Settings())
    assert {"mean", "monthly-mean"} <= set(packages.names())
    found = packages.find("monthly-mean")
    assert found.package.expand(["Lai_1km", "Fpar_1km"]) == (
        "Lai_1km_mean.tif",
        "Fpar_1km_mean.tif",
    )
    assert found.package.outputs[0].kind == "raster"


def test_a_package_of_the_users_folder_hides_a_shipped_one(tmp_path: Path) -> None:
    make(tmp_path / "mean", GOOD.replace("own", "mean"))
    found = Packages.of(Settings(packages=str(tmp_path))).find("mean")
    assert found.folder == tmp_path / "mean"
    assert [o.kind for o in found.package.outputs] == ["raster", "file"]
    assert found.package.expand(["A", "B"]) == ("A.tif", "B.tif", "summary.csv")


@pytest.mark.parametrize(
    ("name", "named"),
    [("nonesuch", "monthly-mean"), ("../mean", "Did you mean mean"), (".", "monthly-mean")],
)
def test_an_unknown_package_names_those_there_are(name: str, named: str) -> None:
    with pytest.raises(PackageError, match=named):
        Packages.of(Settings()).find(name)


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        ("name: own\ncommand: [x]\n", "outputs"),
        (GOOD + "colour: red\n", "colour"),
        (GOOD.replace("summary.csv", '"../x"'), "outputs"),
        (GOOD.replace("summary.csv", '"{day}.tif"'), "outputs"),
        (GOOD + "resources: {memory_gb: 0}\n", "memory_gb"),
        ("[", "YAML"),
        pytest.param("[" * 100_000, "YAML", id="nested"),
        pytest.param(GOOD + "since: 2012-13-45\n", "since", id="no day"),
    ],
)
def test_a_wrong_manifest_names_the_field(tmp_path: Path, manifest: str, field: str) -> None:
    with pytest.raises(PackageError, match=field):
        load_package(make(tmp_path / "own", manifest))


def test_equal_folders_give_equal_archives_and_unpack_whole(tmp_path: Path) -> None:
    one, two = make(tmp_path / "a" / "own", GOOD), make(tmp_path / "b" / "own", GOOD)
    (two / "__pycache__").mkdir()
    (two / "__pycache__" / "run.pyc").write_bytes(b"x")
    (one / "run.sh").chmod(0o700)
    (two / "run.sh").chmod(0o755)
    assert pack(one) == pack(two)
    target = tmp_path / "out"
    target.mkdir()
    assert unpack(pack(one).data, target) == load_package(one)
    assert (target / "run.sh").read_text("utf-8") == "#!/bin/sh\n"
    assert (target / "run.sh").stat().st_mode & 0o100
    (one / "run.sh").write_text("#!/bin/sh\ntrue\n", "utf-8")
    assert pack(one).digest != pack(two).digest


def test_a_link_is_not_packed(tmp_path: Path) -> None:
    folder = make(tmp_path / "own", GOOD)
    (tmp_path / "elsewhere").write_text("of another", "utf-8")
    (folder / "secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PackageError, match="plain file"):
        pack(folder)


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="damaged"):
        unpack(b"no tar at all" * 100, tmp_path)


def member(name: str, size: int = 1, **changes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    for field, value in changes.items():
        setattr(info, field, value)
    return info


def archive_of(*members: tarfile.TarInfo) -> bytes:
    """A tar of these members, headers as they are said, behind a package's own files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in (("package.yaml", GOOD.encode()), ("run.sh", b"#!/bin/sh\n")):
            tar.addfile(member(name, len(data)), io.BytesIO(data))
        for info in members:
            tar.addfile(info, io.BytesIO(b"x" * max(0, info.size)))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("data/../../outside")],
        [member("/tmp/outside")],
        [member("")],
        [member(".")],
        [member("link", 0, type=tarfile.SYMTYPE, linkname="/nowhere/secret")],
        [member("link", 0, type=tarfile.SYMTYPE, linkname=".."), member("link/outside")],
        [member("hard", 0, type=tarfile.LNKTYPE, linkname="../outside")],
        [member("hard", 0, type=tarfile.LNKTYPE, linkname="run.sh")],
        [member("pipe", 0, type=tarfile.FIFOTYPE)],
        [member("disk", 0, type=tarfile.BLKTYPE, devmajor=8)],
        [member("zero", 0, type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
        [member("folder", 0, type=tarfile.DIRTYPE, mode=0o777)],
        [member("run.sh")],
        [member("run.sh/below")],
        [member("deep/file"), member("deep")],
        [member("n" * 256)],
        [member("/".join(["n" * 200] * 6))],
    ],
    ids=lambda members: f"{members[-1].name[:20]}-{members[0].type.decode()}",
)
def test_a_hostile_archive_writes_nothing(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    target = tmp_path / "a" / "package"
    target.mkdir(parents=True)
    with pytest.raises(PackageError, match="not safe"):
        unpack(archive_of(*members), target)
    assert [*tmp_path.rglob("*")] == [target.parent, target]


@pytest.mark.parametrize("size", [-512, -1024, MAX_BYTES + 1, 2**62])
def test_a_size_that_lies_is_refused_at_once(tmp_path: Path, size: int) -> None:
    header = member("big", size).tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(PackageError, match="larger than 512 MiB"):
        unpack(header + b"x" * 20480, tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_cut_archive_is_damaged(tmp_path: Path) -> None:
    whole = archive_of(member("data", 5000))
    for length in (0, 100, 700, 2000, 4000):
        with pytest.raises(PackageError, match="damaged"):
            unpack(whole[:length], tmp_path / "never")


def test_special_bits_and_open_modes_are_not_taken_over(tmp_path: Path) -> None:
    unpack(archive_of(member("data", mode=0o6666), member("tool", mode=0o7777)), tmp_path)
    assert (tmp_path / "data").stat().st_mode & 0o7777 == 0o644
    assert (tmp_path / "tool").stat().st_mode & 0o7777 == 0o755


def band(product: str, layer: str) -> Band:
    return Band(product=product, collection="5", layer=layer, day=date(2012, 1, 1), cell="c")


def test_labels_are_file_names_and_tell_products_apart() -> None:
    bands = [band("MCD15A2", "Lai_1km"), band("MOD13A2", "1 km 16 days NDVI")]
    assert list(layer_labels([*bands, bands[0]], short=False).values()) == [
        "Lai_1km",
        "1_km_16_days_NDVI",
    ]
    both = [band("MCD15A2", "Lai_1km"), band("MOD15A2", "Lai_1km")]
    for short, label in ((False, "005"), (True, "5")):
        assert list(layer_labels(both, short=short).values()) == [
            f"MCD15A2.{label}.Lai_1km",
            f"MOD15A2.{label}.Lai_1km",
        ]
