"""docs/operations.md tells every failure category as the rules have it."""

from pathlib import Path

from tasks.bag.categories import RULES, Retry

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
WORDS = {
    Retry.BACK_OFF: "again, after a growing pause",
    Retry.ELSEWHERE: "again, after a growing pause, uncharged",
    Retry.ONCE: "once more",
    Retry.NEVER: "no",
    Retry.AT_ONCE: "at once",
    Retry.HEAL: "after its input is made again",
    Retry.REPAIR: "after a damaged input is made again",
}


def test_every_category_has_its_line() -> None:
    lines = PAGE.read_text().splitlines()
    start = lines.index("| category | cause | tried again | what to do |") + 2
    expected = [
        f"| {category.value} | {rule.cause} | {WORDS[rule.retry]} | {rule.remedy} |"
        for category, rule in RULES.items()
    ]
    assert lines[start : start + len(expected) + 1] == [*expected, ""]
