"""The steps of the form: which are done, which wait, and where something is wrong."""

from portal.submit.field_problems import FieldProblem, Problems
from portal.submit.steps import steps_of


def problem(slot: str, *, waits: bool = False) -> FieldProblem:
    return FieldProblem(slot=slot, control="x", text="x", waits=waits)


def test_a_step_is_wrong_or_waits_by_its_fields() -> None:
    found = Problems(
        found=(
            problem("card-0a1b", waits=True),
            problem("region", waits=True),
            problem("region"),
            problem("grid.crs"),
            problem("labels", waits=True),
        )
    )
    assert {step.name: step.state for step in steps_of(found)} == {
        "what": "to do",
        "where": "wrong",
        "when": "done",
        "how": "wrong",
        "send": "to do",
    }
