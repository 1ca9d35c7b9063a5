"""The development kit: skeletons run, `check` says what an upload would, `try` runs as a worker."""

import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner, Result

from swathmill.cli import application
from swathmill.errors import ArgumentError
from swathmill.package_kit import Language, checked, write_group, write_skeleton
from tasks.packages.packages import PackageError
from tests.tasks.wheels import registry, write_wheel

pytestmark = pytest.mark.slow

NEEDS = {
    Language.C: "cc",
    Language.FORTRAN: "gfortran",
    Language.R: "Rscript",
    Language.JULIA: "julia",
    Language.MATLAB: "mcc",
}


def command(*words: str) -> Result:
    return CliRunner().invoke(application(("package",)), ["package", *words])


def expected(folder: Path) -> np.ndarray:
    """The mean of the made-up group by plain numpy."""
    write_group(folder)
    with rasterio.open(folder / "Lai_1km.tif") as stack:
        stored = stack.read()
    values = np.ma.masked_equal(stored, 255) * 0.1
    return np.asarray(values.mean(axis=0).filled(np.nan))


@pytest.mark.parametrize("language", [Language.PYTHON, *NEEDS])
def test_a_skeleton_runs_and_computes_what_it_says(tmp_path: Path, language: Language) -> None:
    package = tmp_path / "my-mean"
    said = command("new", str(package), "--language", language.value)
    assert said.exit_code == 0, said.output
    if language in NEEDS and shutil.which(NEEDS[language]) is None:
        pytest.skip(f"{NEEDS[language]} is not installed")
    if language is Language.C:
        with pytest.raises(PackageError, match="which it does not hold"):
            checked(package)
    if (package / "Makefile").is_file():
        subprocess.run(["make", "-s", "-C", str(package)], check=True, timeout=60)
    tried = command("try", str(package), "--out", str(tmp_path / "out"))
    assert tried.exit_code == 0, tried.output
    with rasterio.open(tmp_path / "out" / "Lai_1km_mean.tif") as out:
        found = out.read(1)
    (tmp_path / "group").mkdir()
    np.testing.assert_allclose(found, expected(tmp_path / "group"), rtol=1e-6)
    assert "swathmill: it took" in tried.output


def test_new_and_try_answer_in_json(tmp_path: Path) -> None:
    package, out = tmp_path / "own", tmp_path / "out"
    made = json.loads(command("new", str(package), "--language", "shell", "--json").stdout)
    assert made["files"] == sorted(path.name for path in package.iterdir())
    tried = command("try", str(package), "--out", str(out), "--json")
    (only,) = json.loads(tried.stdout)["outputs"]
    assert Path(only["path"]).read_bytes() == (out / "layers.csv").read_bytes()
    assert "swathmill: it took" in tried.stderr
    program = next(path for path in package.iterdir() if path.suffix == ".sh")
    program.write_text("echo 'I say no'; exit 3\n")
    failed = command("try", str(package), "--out", str(out), "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["outcome"] == "user code failed"
    assert "I say no" in failed.stderr


def test_the_shell_skeleton_lists_the_layers(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.SHELL)
    tried = command("try", str(tmp_path / "own"), "--out", str(tmp_path / "out"))
    assert tried.exit_code == 0, tried.output
    lines = (tmp_path / "out" / "layers.csv").read_text().splitlines()
    assert lines == ["file,days,columns_and_rows", "Lai_1km.tif,4,40x60"]


def test_check_says_what_an_upload_would(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.PYTHON)
    said = command("check", str(tmp_path / "own"))
    assert said.exit_code == 0
    assert f"own@1  {checked(tmp_path / 'own').digest}" in said.output
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", tmp_path, "own")
    assert checked(Path(archive)).digest == checked(tmp_path / "own").digest
    (tmp_path / "own" / "package.yaml").write_text("name: own\n")
    with pytest.raises(PackageError, match="command"):
        checked(tmp_path / "own")


def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.C)
    (tmp_path / "own" / "mean_of_days").write_text("x")
    with pytest.raises(PackageError, match="chmod"):
        checked(tmp_path / "own")


def test_inputs_of_a_run_are_tried_as_a_zip_with_their_parameters(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.PYTHON)
    (tmp_path / "group").mkdir()
    write_group(tmp_path / "group")
    (tmp_path / "group" / "parameters.json").write_text('{"least": "99"}')
    with zipfile.ZipFile(tmp_path / "inputs.zip", "w") as archive:
        for path in (tmp_path / "group").iterdir():
            archive.write(path, path.name)
    words = ("try", str(tmp_path / "own"), "--on", str(tmp_path / "inputs.zip"))
    tried = command(*words, "--out", str(tmp_path / "out"))
    assert "0% of pixels have a value" in tried.output
    tried = command(*words, "-p", "least=0", "--out", str(tmp_path / "out"))
    assert "95% of pixels have a value" in tried.output


def test_what_would_fail_on_a_worker_fails_here(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.SHELL)
    program = tmp_path / "own" / "run.sh"
    program.write_text("echo the reason >&2; exit 3\n")
    tried = command("try", str(tmp_path / "own"), "--out", str(tmp_path / "out"))
    assert tried.exit_code == 1
    assert "user code failed" in tried.output
    assert "exit code 3: the reason" in tried.output
    program.write_text("cat /etc/shadow; touch ../outside; echo > $2/layers.csv\n")
    assert command("try", str(tmp_path / "own"), "--out", str(tmp_path / "out")).exit_code == 0
    assert not (tmp_path / "outside").exists()


def test_wrong_folders_and_names_are_named(tmp_path: Path) -> None:
    write_skeleton(tmp_path / "own", Language.PYTHON)
    with pytest.raises(ArgumentError, match="is there already"):
        write_skeleton(tmp_path / "own", Language.PYTHON)
    with pytest.raises(ArgumentError, match="name"):
        write_skeleton(tmp_path / "My Package", Language.PYTHON)
    assert not (tmp_path / "My Package").exists()
    (tmp_path / "empty").mkdir()
    tried = command("try", str(tmp_path / "own"), "--on", str(tmp_path / "empty"))
    assert "no inputs of a group" in str(tried.exception)
    tried = command("try", str(tmp_path / "own"), "-p", "laest=2", "--out", str(tmp_path / "out"))
    assert "has no parameter 'laest'. Did you mean least?" in str(tried.exception)


def test_python_dependencies_are_there_when_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path / "registry", "parcel", "1.5", {"parcel.py": "SIZE = 42\n"})
    write_skeleton(tmp_path / "own", Language.PYTHON)
    script = tmp_path / "own" / "mean_of_days.py"
    inline = '# /// script\n# dependencies = ["parcel"]\n# ///\n'
    used = "import parcel, sys\nsys.stdout.write(f'size {parcel.SIZE} {parcel.__cached__}\\n')\n"
    script.write_text(inline + script.read_text() + used)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with registry(tmp_path / "registry") as address:
        monkeypatch.setenv("SWATHMILL_PYTHON_INDEX", address)
        assert "parcel==1.5" in command("check", str(tmp_path / "own")).output
        tried = command("try", str(tmp_path / "own"), "--out", str(tmp_path / "out"))
    assert tried.exit_code == 0, tried.output
    assert "size 42" in tried.output
    script.write_text(script.read_text().replace("parcel", "no-such"))
    monkeypatch.setenv("SWATHMILL_PYTHON_INDEX", "")
    refused = command("check", str(tmp_path / "own"))
    assert "resolves no Python dependencies" in str(refused.exception)


def test_the_example_goes_on_behind_the_rows_of_its_checkpoint_to_the_same_bytes(
    tmp_path: Path,
) -> None:
    package = Path(__file__).parents[2] / "examples/checkpoint/packages/theil-sen"
    kept = tmp_path / "kept"
    for out in ("whole", "continued"):
        tried = command(
            *("try", str(package), "--out", str(tmp_path / out), "--checkpoint", str(kept))
        )
        assert tried.exit_code == 0, tried.output
        if out == "whole":
            (state,) = kept.iterdir()
            np.save(state, np.load(state)[:16])  # as after the first block
    whole, continued = (tmp_path / out / "Lai_1km_slope.tif" for out in ("whole", "continued"))
    assert whole.read_bytes() == continued.read_bytes()
    assert "16 of 40 rows were done" in tried.output
    group = tmp_path / "group"
    group.mkdir()
    write_group(group)
    with rasterio.open(group / "Lai_1km.tif") as stack, rasterio.open(whole) as out:
        series = np.ma.masked_equal(stack.read(), 255)[:, 20, 30] * 0.1
        pairs = [(a, b) for a in range(4) for b in range(a) if series[a] and series[b]]
        slopes = [(series[a] - series[b]) / (8 * (a - b)) for a, b in pairs]
        assert out.read(1)[20, 30] == pytest.approx(np.median(slopes), rel=1e-6)
