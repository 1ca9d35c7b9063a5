"""The listed faults fit the code and the documentation, and a sample of them is seen."""

import re
import subprocess
import sys

import pytest

from tests.mutants.faults import ROOT, load_faults
from tests.mutants.mutate import load_modules, load_verdicts, only_words

FAULTS = load_faults()


def test_each_fault_fits_the_code_and_says_who_sees_it() -> None:
    assert [text for fault in FAULTS if (text := fault.stale())] == []
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) > 200
    for fault in FAULTS:
        assert bool(fault.test) is not bool(fault.equivalent), fault.what
        assert not fault.test or _is_there(fault.test), fault.what


def _is_there(test: str) -> bool:
    """Tell whether a file has the test, of all or some parameters, or is meant as a whole."""
    file, *names = test.split("::")
    if not (ROOT / file).is_file():
        return False
    text = (ROOT / file).read_text("utf-8")
    defined = {
        name for _, name in re.findall(r"^ *(async def|def|class) (\w+)", text, re.MULTILINE)
    }
    return {name.partition("[")[0] for name in names} <= defined


def test_the_page_of_what_enforces_what_names_listed_faults() -> None:
    page = re.sub(r"\s+", " ", (ROOT / "docs/invariants.md").read_text("utf-8"))
    named = set(re.findall("“(.+?)”", page))
    assert len(named) > 40
    assert named - {fault.what for fault in FAULTS} == set()


def test_each_mutated_module_and_its_tests_exist_and_the_counts_of_a_run_add_up() -> None:
    modules = load_modules()
    assert len({module.file for module in modules}) == len(modules)
    for module in modules:
        assert module.tests, module.file
        files = [module.file, *(test for test in module.tests if not test.startswith("--"))]
        assert all((ROOT / name.partition("::")[0]).is_file() for name in files), module.file
        counts = (module.killed, module.words, module.equivalent, module.survived)
        assert sum(counts) == module.mutants, module.file
    assert {file for file, _, _ in load_verdicts()} <= {module.file for module in modules}
    assert all(load_verdicts().values())


def test_words_of_a_log_line_and_of_an_error_are_told_from_what_is_done() -> None:
    code = "def f(a):\n    log.info('done', key=a)\n    raise KeyError(f'no {a}')\n"
    assert only_words(code, code.replace("'done'", "None").replace("no {a}", "{a}"))
    assert not only_words(code, code.replace("KeyError", "ValueError"))
    assert not only_words(code, code.replace("log.info('done', key=a)", "do(a)"))
    own = "def f(self):\n    log = self._log.bind(task=1)\n    self._log.info('done')\n"
    own += "    self.go()\n"
    assert only_words(own, own.replace("task=1", "").replace("'done'", ""))
    assert not only_words(own, own.replace("self.go()", "self.stop()"))


@pytest.mark.slow
def test_a_sample_of_the_faults_is_seen() -> None:
    """`make mutants` tries all."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants.run", "--every", "300"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
