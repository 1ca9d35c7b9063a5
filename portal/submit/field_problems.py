"""Errors of a request on the form: their place, the control they concern, and their text."""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.submit.forms import Form, NotFilledError, ProductCard, layers_of
from tasks.errors import RequestRefusedError
from tasks.request.document import GUIDE

SLOTS = (
    "products",
    "region",
    "time",
    "grid.crs",
    "grid.resolution",
    "grid",
    "resampling",
    "qa",
    "reduction",
    "measurements",
    "title",
    "notify",
    "labels",
    "group",
    "standing",
    "options",
)
"""Places on the form that can show an error. A field of the document belongs to the longest name
that it begins with, all other fields to the last. Each product's card has a place of its own."""

_PREDICATES = ("is ", "has ", "names ", "lies ", "removes ", "reaches ", "holds ", "cannot ")
"""Beginnings of problems whose grammatical subject is the field: "Last day is empty." """


@dataclass(frozen=True, kw_only=True)
class FieldProblem:
    """An error, the place on the form that shows it, and the id of the control it concerns.

    `waits`: nothing is wrong, but a part is still to be filled in. `days` are the first and the
    last day that a click takes over.
    """

    slot: str
    control: str
    text: str
    waits: bool = False
    days: tuple[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Problems:
    """All errors of a form."""

    found: tuple[FieldProblem, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.found)

    def at(self, slot: str) -> tuple[FieldProblem, ...]:
        """Select the errors that a place shows."""
        return tuple(problem for problem in self.found if problem.slot == slot)

    def controls(self, slot: str) -> str:
        """Join the ids of the controls that are wrong at a place, separated by spaces."""
        return " ".join(dict.fromkeys(problem.control for problem in self.at(slot)))

    def wrong(self) -> "Problems":
        """Select the errors that filling in more fields does not correct."""
        return Problems(found=tuple(problem for problem in self.found if not problem.waits))

    def and_(self, others: "Problems") -> "Problems":
        """Join these errors and others."""
        return Problems(found=(*self.found, *others.found))

    def waiting(self) -> tuple[FieldProblem, ...]:
        """Select what is still to be filled in."""
        return tuple(problem for problem in self.found if problem.waits)


def problems_of(error: RequestRefusedError, form: Form) -> Problems:
    """Find where and how the form shows a refusal and the refusals that came with it."""
    return Problems(found=tuple(_problem(each, form) for each in (error, *error.also)))


def _problem(error: RequestRefusedError, form: Form) -> FieldProblem:
    return FieldProblem(
        slot=_slot(error.field, form),
        control=control(error.field, form),
        text=told(error),
        waits=isinstance(error, NotFilledError),
    )


def told(error: RequestRefusedError) -> str:
    """Write a refusal for the form: the label of the field, what is wrong, what to do."""
    colon = "" if error.problem.startswith(_PREDICATES) else ":"
    return f"{GUIDE.label(error.field)}{colon} {error.problem} {error.remedy}".strip()


def slots_of(form: Form) -> tuple[str, ...]:
    """List all places of this form that can show an error."""
    return (*SLOTS, *(f"card-{card.uid}" for card in form.products))


def _slot(field: str, form: Form) -> str:
    card = _card(field.split("."), form)
    if card is not None:
        return f"card-{card.uid}"
    fitting = [slot for slot in SLOTS if f"{field}.".startswith(f"{slot}.")]
    return max(fitting, key=len, default="options")


def control(name: str, form: Form) -> str:
    """Find the id of the form's control that a field of the document belongs to."""
    parts = name.split(".")
    if parts[0] == "products":
        return _control_of_product(parts, form)
    if name.startswith("region"):
        own = {one: one for one in ("tiles", "geojson", "place", "sites")}
        kinds = {"bbox": _edge(parts, form), **own}
        return kinds.get(form.region_kind, "west")
    if parts[:2] == ["time", "every"]:
        return "every_to" if parts[-1] == "to" else "every_from"
    if parts[0] == "time":
        return "end" if parts[-1] == "end" or (form.start and not form.end) else "start"
    if parts[0] == "grid":
        if form.grid_kind == "modis":
            return "modis"
        return "resolution" if parts[-1] == "resolution" else "crs"
    if parts[0] == "resampling":
        return "resampling_map" if form.resampling == "map" else "resampling"
    if parts[0] == "qa":
        return "qa" if form.qa != "rule" else "qa_rule" if form.qa_rule else "quality"
    if parts[0] == "reduction":
        if parts[1:2] == ["parameters"]:
            name = ".".join(parts[2:])
            return f"parameter-{name}" if name in form.parameter_fields else "parameters"
        return "window" if parts[1:2] == ["group_by"] else "package"
    if parts[0] == "measurements":
        own = {"table": "measured", "sites": "measured_sites"}
        return own.get(parts[1], parts[1]) if len(parts) > 1 else "measured"
    return parts[0]


def _card(parts: Sequence[str], form: Form) -> ProductCard | None:
    """Find the card that holds a field of a product; None if there is none."""
    if parts[0] != "products" or len(parts) < 2 or not parts[1].isdigit():
        return None
    number = int(parts[1])
    return form.products[number] if number < len(form.products) else None


def _control_of_product(parts: Sequence[str], form: Form) -> str:
    card = _card(parts, form)
    if card is None:
        return "product-search"
    layers = layers_of(card)
    place = int(parts[-1]) if parts[-1].isdigit() and "layers" in parts else len(layers)
    controls = ("use", "look_back", "look_ahead", "prefer", "overlap", "near_real_time")
    if parts[2:] and parts[2] in controls:
        return f"{parts[2]}-{card.uid}"
    if "layers" not in parts:
        return f"card-{card.uid}"
    if place >= len(layers):
        return f"layers-{card.uid}"
    if layers[place] not in card.layers:
        return f"more-{card.uid}"
    return f"layer-{card.uid}-{layers[place].replace(' ', '_')}"


def _edge(parts: Sequence[str], form: Form) -> str:
    edges = ("west", "south", "east", "north")
    if parts[-1].isdigit():
        return edges[min(int(parts[-1]), 3)]
    return next((edge for edge in edges if not getattr(form, edge)), "west")
