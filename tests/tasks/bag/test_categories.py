"""Every failure category has its rule, its place in the history, and a test that provokes it."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tasks.bag.categories import RULES, Category

TESTS = Path(__file__).parents[2]


@cache
def texts() -> dict[str, str]:
    """The test files with marks."""
    found = {path.name: path.read_text("utf-8") for path in TESTS.rglob("test_*.py")}
    return {name: text for name, text in found.items() if "mark.provokes(" in text}


@cache
def provoking() -> list[tuple[str, str, Category]]:
    """File, test and category of every mark `provokes`."""
    found = []
    for name, text in texts().items():
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.provokes":
                    names = [ast.unparse(one).removeprefix("Category.") for one in mark.args]
                    found += [(name, node.name, Category[one]) for one in names]
    return found


@pytest.mark.parametrize("category", Category)
def test_every_category_is_provoked(category: Category) -> None:
    assert category in [provoked for _, _, provoked in provoking()]


def test_what_provokes_a_category_names_it_beside_the_mark() -> None:
    marked = Counter((file, category) for file, _, category in provoking())
    for (file, category), number in marked.items():
        assert texts()[file].count(f"Category.{category.name}") > number, (file, category)


def test_every_category_has_a_rule_with_cause_and_remedy() -> None:
    assert set(RULES) == set(Category)
    assert all(rule.cause and rule.remedy for rule in RULES.values())
