"""`python -m tests.mutants.mutate`: mutate modules by mutmut, and hold what survives to the list.

`mutmut/survivors.toml` lists the modules, each with the tests that see its faults and what the last
run found, and the survivors that change nothing that is promised, each with the reason. mutmut
works in a copy of the code.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutants.faults import ROOT

LIST = Path(__file__).parent / "mutmut" / "survivors.toml"
PACKAGES = ("archives", "modis", "processes", "reprojection", "service_manager", "tasks", "worker")
COPY = ROOT / "build" / "mutate"
_LEFT_OUT = ("__pycache__", "bench", "browser", "acceptance", "portal", "infra")
_WORDS = ("log", "_log")  # loggers
COUNTS = ("mutants", "killed", "words", "equivalent", "survived")


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module to mutate, the tests that see its faults, and what the last run found.

    `tests` are files or single tests, and options of pytest that leave slow tests out.
    `words` are mutants that change log lines or the text of an error alone: no test holds those.
    """

    file: str
    tests: tuple[str, ...]
    mutants: int = 0
    killed: int = 0
    words: int = 0
    equivalent: int = 0
    survived: int = 0

    @property
    def score(self) -> float:
        """Return the percentage killed of the mutants that change something."""
        counted = self.mutants - self.words - self.equivalent
        return 100 * self.killed / counted if counted else 100.0


@dataclass(frozen=True, kw_only=True)
class Survivor:
    """A mutant: the lines of a function before and after, as one line of text."""

    function: str
    change: str


def load_modules() -> list[Module]:
    """Load the listed modules."""
    entries = tomllib.loads(LIST.read_text("utf-8"))["module"]
    return [Module(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def load_verdicts() -> dict[tuple[str, str, str], str]:
    """Load why a survivor is equivalent, by file, function and change."""
    entries = tomllib.loads(LIST.read_text("utf-8")).get("equivalent", [])
    return {(e["file"], e["function"], e["change"]): e["why"] for e in entries}


def only_words(before: str, after: str) -> bool:
    """Whether two versions of a function differ only in log lines or the text of errors."""
    return ast.dump(_Wordless().visit(ast.parse(before))) == ast.dump(
        _Wordless().visit(ast.parse(after))
    )


class _Wordless(ast.NodeTransformer):
    """Takes out log lines, what is bound to a logger, and the arguments of errors."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            return ast.Pass() if _is_logger(call.func.value) else node
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return ast.Pass() if all(map(_is_logger, node.targets)) else node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return node


def _is_logger(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in _WORDS


def _prepare(module: Module) -> None:
    """Copy the code and tell mutmut what to mutate and which tests to run."""
    shutil.rmtree(COPY, ignore_errors=True)
    for package in (*PACKAGES, "tests"):
        shutil.copytree(
            ROOT / package, COPY / package, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True
        )
    tests = "".join(f"\n    {test}" for test in module.tests)
    also = "".join(f"\n    {package}" for package in (*PACKAGES, "tests", "pyproject.toml"))
    (COPY / "setup.cfg").write_text(
        f"[mutmut]\nsource_paths = {module.file.partition('/')[0]}/\n"
        f"only_mutate = {module.file}\n"
        "timeout_multiplier = 10\n"
        f"pytest_add_cli_args_test_selection ={tests}\n"
        f"also_copy ={also}\n"
    )
    (COPY / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = \"--import-mode=importlib -m 'not slow'\"\n"
        'markers = ["slow", "proof", "real_data"]\npythonpath = ["."]\n'
    )


def _mutmut(*arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build" / "mutmut")}
    log = COPY / "run.log"
    with log.open("w") as out:
        code = subprocess.run(
            [sys.executable, "-m", "mutmut", *arguments],
            cwd=COPY,
            env=environment,
            stdout=out,
            stderr=out,
            check=False,
        ).returncode
    if code:
        raise SystemExit(f"mutmut ended with {code}:\n{log.read_text()[-3000:]}")


def _survivors(module: Module) -> Iterator[tuple[Survivor, bool]]:
    """Yield each mutant that its tests did not see, and whether it changes words alone."""
    sys.path.insert(0, str(ROOT / "build" / "mutmut"))
    os.chdir(COPY)
    import libcst  # type: ignore[import-not-found]
    from mutmut.mutation.diff_apply import (  # type: ignore[import-not-found]
        get_diff_for_mutant,
        read_functions_from_index,
    )

    for name, code in _codes(module).items():
        if _killed(code):
            continue
        before, after = (
            libcst.Module([function]).code
            for function in read_functions_from_index(name, module.file)
        )
        lines = get_diff_for_mutant(name, path=module.file).split("\n")[3:]
        old = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
        new = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
        function = name.rpartition(".")[2].rpartition("__mutmut_")[0]
        function = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        yield (
            Survivor(function=function, change=f"{old} -> {new}"),
            only_words(before.lstrip("\n"), after.lstrip("\n")),
        )


def _codes(module: Module) -> dict[str, Any]:
    meta = json.loads((COPY / "mutants" / f"{module.file}.meta").read_text("utf-8"))
    codes: dict[str, Any] = meta["exit_code_by_key"]
    return codes


def _killed(code: int | None) -> bool:
    """Whether a mutant was seen: a test failed, or took for ever, or its process died."""
    return code not in (0, 33, 34, None)


def mutate(module: Module, children: int) -> tuple[Module, list[Survivor]]:
    """Mutate a module and return what came of it, with the survivors that no verdict names."""
    _prepare(module)
    _mutmut("run", "--max-children", str(children))
    verdicts = load_verdicts()
    counts: Counter[str] = Counter()
    left: list[Survivor] = []
    for survivor, words in _survivors(module):
        if words:
            counts["words"] += 1
        elif (module.file, survivor.function, survivor.change) in verdicts:
            counts["equivalent"] += 1
        else:
            left.append(survivor)
    total = len(_codes(module))
    os.chdir(ROOT)
    done = Module(
        file=module.file,
        tests=module.tests,
        mutants=total,
        killed=total - counts.total() - len(left),
        words=counts["words"],
        equivalent=counts["equivalent"],
        survived=len(left),
    )
    return done, left


def note(done: Module) -> None:
    """Write what a run found into the module's entry."""
    head, found, rest = LIST.read_text("utf-8").partition(f'file = "{done.file}"\n')
    if not found:
        raise SystemExit(f"{done.file} is not listed in {LIST}")
    entry, gap, others = rest.partition("\n\n")
    kept = [line for line in entry.rstrip("\n").split("\n") if line.partition(" ")[0] not in COUNTS]
    counts = [f"{name} = {getattr(done, name)}" for name in COUNTS]
    LIST.write_text(head + found + "\n".join([*kept, *counts]) + (gap or "\n") + others, "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate the chosen modules; 1 when one has survivors that the list does not name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="modules whose file contains this")
    parser.add_argument("--children", type=int, default=2, help="processes")
    parser.add_argument("--note", action="store_true", help="note the counts in the list")
    options = parser.parse_args(arguments)
    unseen = 0
    for module in load_modules():
        if options.only not in module.file:
            continue
        done, left = mutate(module, options.children)
        unseen += len(left)
        print(
            f"{done.file}: {done.mutants} mutants, {done.killed} killed, {done.words} of words, "
            f"{done.equivalent} equivalent, {done.survived} survivors, {done.score:.1f}%",
            flush=True,
        )
        if options.note:
            note(done)
        for survivor in left:
            print(f"  {survivor.function}: {survivor.change}", flush=True)
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
