"""Python dependencies of a package: declared, resolved once at upload, kept with the version."""

import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from portal.uploads.packages import push
from tasks.packages import python_dependencies
from tasks.packages.package_uploads import Upload, repack
from tasks.packages.packages import PackageError, Packages, blob_of, unpack, unpack_environment
from tasks.packages.python_dependencies import (
    MOST_DEPENDENCIES,
    DeclarationError,
    Needs,
    declared,
    environment_blob,
    read_environment,
)
from tasks.packages.python_environments import resolve
from tasks.service.memory_runtime import memory_runtime
from tasks.settings import Settings
from tasks.storage.blobs import PACKAGES
from tasks.uploads import upload_operations
from tasks.uploads.package_operations import PACKAGE_UPLOADS
from tasks.uploads.upload_operations import UploadConflictError
from tests.tasks.wheels import registry, write_sdist, write_wheel

pytestmark = pytest.mark.slow

SCRIPT = """# /// script
# requires-python = ">=3.11"
# dependencies = ["parcel>=1", "wrap"]
# ///
import parcel
"""
COMMAND = ("python", "run.py")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    write_wheel(folder, "parcel", "1.0", {"parcel.py": "SIZE = 1\n"})
    # A set becomes a frozenset, whose order in the compiled file depends on the process.
    known = "def known(x):\n    return x in {'a', 'b', 'c', 'd', 'e', 'f', 'g'}\n"
    newer = {"parcel.py": f"import string_tools\nSIZE = 2\n{known}"}
    write_wheel(folder, "parcel", "1.5", newer, "string-tools")
    write_wheel(folder, "string-tools", "3.0", {"string_tools.py": "KNOTS = 7\n"})
    write_wheel(folder, "wrap", "0.1", {"wrap/__init__.py": "PAPER = 'brown'\n"})
    write_sdist(folder, "source-only", "1.0")
    return folder


@pytest.fixture(scope="module")
def settings(index: Path) -> Iterator[Settings]:
    with registry(index) as address:
        yield Settings(python_index=address)


def files(tmp_path: Path, **texts: str) -> dict[PurePosixPath, Path]:
    found = {}
    for name, text in texts.items():
        path = tmp_path / name.replace("_", ".")
        path.write_text(text)
        found[PurePosixPath(path.name)] = path
    return found


def package(
    tmp_path: Path, script: str = SCRIPT, requirements: str = "", version: str = "1"
) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(exist_ok=True)
    (folder / "package.yaml").write_text(
        f"name: own\nversion: '{version}'\ncommand: [python, run.py]\noutputs: [a.txt]\n"
    )
    (folder / "run.py").write_text(script)
    if requirements:
        (folder / "requirements.txt").write_text(requirements)
    return folder


def packed(folder: Path, tmp_path: Path) -> tuple[Upload, Path]:
    upload = Path(shutil.make_archive(str(tmp_path / "upload"), "zip", folder))
    at = tmp_path / f"work{len([*tmp_path.iterdir()])}"
    (at / "files").mkdir(parents=True)
    return repack(upload, at / "files", at / "archive.tar"), at


def test_inline_metadata_and_requirements_are_read(tmp_path: Path) -> None:
    found = declared(COMMAND, files(tmp_path, run_py=SCRIPT))
    assert found == Needs(requirements=("parcel>=1", "wrap"), python=">=3.11", said_in="run.py")
    text = "# a comment\nparcel == 1.0  # why\n\nwrap\n"
    assert declared(COMMAND, files(tmp_path, requirements_txt=text)) == Needs(
        requirements=("parcel==1.0", "wrap")
    )
    assert declared(COMMAND, files(tmp_path, run_py="import numpy\n")) is None
    lock = f"parcel==1.0 \\\n    --hash=sha256:{'a' * 64}\n"
    found = declared(COMMAND, files(tmp_path, requirements_txt=lock))
    assert found == Needs(requirements=(f"parcel==1.0 --hash=sha256:{'a' * 64}",), locked=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-r /etc/passwd", "has the option '-r /etc/passwd'"),
        ("--index-url http://elsewhere", "has the option"),
        ("parcel @ file:///etc/passwd", "parcel is given by an address"),
        ("parcel @ git+https://example.org/x", "given by an address"),
        ("./folder", "is not a requirement"),
        ("parcel==1.0 --config-settings=a=b", "is not a requirement"),
        (f"parcel==1 --hash=sha256:{'a' * 64}\nwrap", "has hashes for 1 of 2 packages"),
        (f"parcel>=1 --hash=sha256:{'a' * 64}", "give its exact version"),
    ],
)
def test_only_names_of_the_registry_may_be_declared(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        declared(COMMAND, files(tmp_path, requirements_txt=text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# /// script\n# dependencies = parcel\n# ///\n", "is not TOML"),
        ("# /// script\n# dependencies = 'parcel'\n# ///\n", "is not a list of texts"),
        ("# /// script\n# requires-python = 'new'\n# ///\n", "requires-python"),
        (SCRIPT + SCRIPT, "has 2 blocks"),
    ],
)
def test_wrong_metadata_is_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        declared(COMMAND, files(tmp_path, run_py=text))


@pytest.mark.parametrize("place", ["run.py", "requirements.txt"])
def test_so_many_packages_may_be_named_and_no_more(tmp_path: Path, place: str) -> None:
    def named(number: int) -> Needs | None:
        names = [f"p{one}" for one in range(number)]
        listed = f"# /// script\n# dependencies = {names}\n# ///\n"
        text = listed if place == "run.py" else "\n".join(names)
        return declared(COMMAND, files(tmp_path, **{place.replace(".", "_"): text}))

    most = named(MOST_DEPENDENCIES)
    assert most is not None
    assert len(most.requirements) == 200
    with pytest.raises(DeclarationError, match=f"{place} names 201 packages; 200 may be named"):
        named(201)


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_that_declares_some_has_so_many_bytes(tmp_path: Path, more: int) -> None:
    text = "wrap\n#"
    text += "x" * (python_dependencies._LONGEST - len(text) + more)
    given = files(tmp_path, requirements_txt=text)
    if more:
        with pytest.raises(DeclarationError, match=r"requirements.txt is larger than 1 MiB"):
            declared(COMMAND, given)
    else:
        assert declared(COMMAND, given) == Needs(requirements=("wrap",))


def test_dependencies_are_declared_in_one_place(tmp_path: Path) -> None:
    both = files(tmp_path, run_py=SCRIPT, requirements_txt="wrap")
    with pytest.raises(DeclarationError, match=r"in run.py and in requirements.txt"):
        declared(COMMAND, both)


def test_they_are_resolved_into_an_environment_that_the_archive_names(
    tmp_path: Path, settings: Settings
) -> None:
    upload, at = packed(package(tmp_path), tmp_path)
    digest = upload.digest
    made, environment = resolve(upload, at / "archive.tar", at / "resolved", settings)
    assert made.source == digest != made.digest
    (tmp_path / "unpacked").mkdir()
    unpack(at / "archive.tar", tmp_path / "unpacked")
    said = read_environment(tmp_path / "unpacked")
    assert said == made.environment
    assert said is not None
    assert said.packages == ("parcel==1.5", "string-tools==3.0", "wrap==0.1")
    assert said.lock.count("--hash=sha256:") == 3
    (tmp_path / "site").mkdir()
    unpack_environment(environment, tmp_path / "site")
    assert (tmp_path / "site" / "string_tools.py").read_text() == "KNOTS = 7\n"
    assert [*(tmp_path / "site").glob("__pycache__/parcel.*.pyc")]
    again, other = packed(package(tmp_path), tmp_path)
    same, _ = resolve(again, other / "archive.tar", other / "resolved", settings)
    assert same.digest == made.digest


def test_a_lock_gives_its_versions_and_checks_their_hashes(
    tmp_path: Path, index: Path, settings: Settings
) -> None:
    digest = write_wheel(index, "parcel", "1.0", {"parcel.py": "SIZE = 1\n"})
    lock = f"parcel==1.0 --hash=sha256:{digest}\n"
    upload, at = packed(package(tmp_path, "", lock), tmp_path)
    made, _ = resolve(upload, at / "archive.tar", at / "resolved", settings)
    assert made.environment is not None
    assert made.environment.packages == ("parcel==1.0",)
    wrong = f"parcel==1.0 --hash=sha256:{'0' * 64}\n"
    upload, at = packed(package(tmp_path, "", wrong), tmp_path)
    with pytest.raises(PackageError, match=r"(?i)hash"):
        resolve(upload, at / "archive.tar", at / "resolved", settings)


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ("no-such-thing", "no-such-thing"),
        ("parcel>=9", "parcel"),
        ("source-only", "source-only"),
    ],
)
def test_what_cannot_be_resolved_is_the_uploaders_error_at_once(
    tmp_path: Path, settings: Settings, requirements: str, words: str
) -> None:
    upload, at = packed(package(tmp_path, "", requirements), tmp_path)
    with pytest.raises(PackageError, match=words) as caught:
        resolve(upload, at / "archive.tar", at / "resolved", settings)
    assert "cannot be resolved" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_another_python_and_a_service_without_a_registry_are_told(
    tmp_path: Path, settings: Settings
) -> None:
    script = SCRIPT.replace(">=3.11", ">=4")
    upload, at = packed(package(tmp_path, script), tmp_path)
    with pytest.raises(PackageError, match=r"run.py takes Python >=4"):
        resolve(upload, at / "archive.tar", at / "resolved", settings)
    with pytest.raises(PackageError, match="SWATHMILL_PYTHON_INDEX is empty"):
        resolve(upload, at / "archive.tar", at / "other", Settings(python_index=""))


def test_a_version_is_resolved_once_and_its_environment_goes_with_it(
    tmp_path: Path, index: Path, settings: Settings
) -> None:
    runtime = memory_runtime()

    def upload(version: str = "1", script: str = SCRIPT) -> str:
        made = shutil.make_archive(
            str(tmp_path / "upload"), "zip", package(tmp_path, script, version=version)
        )
        return push(runtime, settings, "ada", Path(made))[1].digest

    digest = upload()
    write_wheel(index, "wrap", "0.2", {"wrap/__init__.py": "PAPER = 'red'\n"})
    assert upload() == digest
    row = upload_operations.own(
        PACKAGE_UPLOADS.table(runtime), "ada", PACKAGE_UPLOADS.table(runtime).owned("ada")[0]
    )
    version = PACKAGE_UPLOADS.table(runtime).version(row.id, "1")
    assert version is not None
    assert "wrap==0.1" in version.dependencies
    with pytest.raises(UploadConflictError, match="Raise `version`"):
        upload(script=SCRIPT + "# changed\n")
    other = upload("2")
    newer = PACKAGE_UPLOADS.table(runtime).version(row.id, "2")
    assert newer is not None
    assert "wrap==0.2" in newer.dependencies
    for one in (digest, other):
        assert runtime.blobs.exists(PACKAGES, environment_blob(one))
    upload_operations.delete(PACKAGE_UPLOADS.table(runtime), row, "1")
    upload_operations.collect(runtime, PACKAGE_UPLOADS)
    upload_operations.collect(runtime, PACKAGE_UPLOADS)
    for name in (blob_of(digest), environment_blob(digest)):
        assert not runtime.blobs.exists(PACKAGES, name)
    assert runtime.blobs.exists(PACKAGES, environment_blob(other))


def test_a_package_in_a_folder_has_to_be_uploaded_for_its_dependencies(tmp_path: Path) -> None:
    found = Packages([package(tmp_path).parent]).find("own")
    with pytest.raises(PackageError, match="swathmill package push"):
        found.archive()
