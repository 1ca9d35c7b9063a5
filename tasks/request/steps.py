"""The steps of a reduction: what each takes of the products and of the steps before it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modis.collection import versioned_text
from tasks.errors import RequestRefusedError
from tasks.request.document import ProductChoice, Reduction, Request
from tasks.storage.schema import PADDED_LABELS, written


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a request's reduction.

    `layers` are the names of the layers it takes, by product choice; `outputs` are those of the
    outputs it takes (file names without ending; None: all), by the number of the earlier step.
    `delivered` says whether its own outputs are among the results. `field` is its place in the
    document.
    """

    number: int
    name: str
    reduction: Reduction
    layers: Mapping[int, frozenset[str]]
    outputs: Mapping[int, frozenset[str] | None]
    delivered: bool
    field: str

    def takes_layer(self, choice: int, layer: str) -> bool:
        """Tell whether it takes a layer of a product choice."""
        return layer in self.layers.get(choice, ())

    def takes_output(self, step: int, output: str) -> bool:
        """Tell whether it takes an output of an earlier step."""
        if step not in self.outputs:
            return False
        names = self.outputs[step]
        return names is None or output in names


def output_name(text: str) -> str:
    """Return the name of a step's output as it is made, of one that a document names.

    Documents of earlier versions have collections in their short spelling: MCD15A2.5.Lai_1km_mean.
    """
    return text if written() < PADDED_LABELS else versioned_text(text)


def steps_of(request: Request) -> tuple[Step, ...]:
    """Return the steps of a request's reduction; none if it has no reduction.

    Raises:
        RequestRefusedError: two steps have one name, or a step takes what is not there.
    """
    many = len(request.steps) > 1
    found: list[Step] = []
    for number, reduction in enumerate(request.steps):
        field = f"reduction.{number}" if many else "reduction"
        _check_name(request, reduction, [step.name for step in found], field)
        layers, outputs = _taken(request, reduction, found, field)
        step = Step(
            number=number,
            name=reduction.label,
            reduction=reduction,
            layers=layers,
            outputs=outputs,
            delivered=reduction.deliver,
            field=field,
        )
        found.append(step)
    used = {number for step in found for number in step.outputs}
    return tuple(
        step if step.delivered or step.number in used else replace(step, delivered=True)
        for step in found
    )


def _check_name(request: Request, reduction: Reduction, earlier: Sequence[str], field: str) -> None:
    if reduction.label in earlier:
        raise RequestRefusedError(
            f"{field}.name",
            f"two steps are called {reduction.label!r}.",
            "Give each step a name of its own: {name: daily-et, ...}.",
        )
    if reduction.label in {choice.asked for choice in request.products}:
        raise RequestRefusedError(
            f"{field}.name",
            f"{reduction.label!r} is the name of a product, too.",
            "Give the step another name.",
        )


def _taken(
    request: Request, reduction: Reduction, earlier: Sequence[Step], field: str
) -> tuple[dict[int, frozenset[str]], dict[int, frozenset[str] | None]]:
    """Return the layers by product choice, and the outputs by earlier step, that a step takes."""
    if not reduction.takes:
        if earlier:
            return {}, {earlier[-1].number: None}
        return {n: frozenset(one.layers) for n, one in enumerate(request.products)}, {}
    layers: dict[int, frozenset[str]] = {}
    outputs: dict[int, frozenset[str] | None] = {}
    for place, text in enumerate(reduction.takes):
        name, slash, part = text.partition("/")
        step = next((one for one in earlier if one.name == name), None)
        choices = [n for n, one in enumerate(request.products) if one.goes_by(name)]
        mine = [n for n in choices if not slash or part in request.products[n].asked_layers]
        if step is not None:
            there = outputs.get(step.number, frozenset())
            outputs[step.number] = (
                None if not slash or there is None else there | {output_name(part)}
            )
        elif mine:
            for number in mine:
                one = request.products[number]
                wanted = {
                    layer for layer in one.layers if not slash or one.asked_layer(layer) == part
                }
                layers[number] = layers.get(number, frozenset()) | wanted
        else:
            raise _not_there(
                request.products, text, bool(choices), earlier, f"{field}.takes.{place}"
            )
    return layers, outputs


def _not_there(
    products: Sequence[ProductChoice],
    text: str,
    known: bool,
    earlier: Sequence[Step],
    field: str,
) -> RequestRefusedError:
    if known:
        name, _, layer = text.partition("/")
        there = [one for choice in products if choice.goes_by(name) for one in choice.asked_layers]
        return RequestRefusedError(
            field,
            f"the request names no layer {layer!r} of {name}.",
            f"Its layers are: {', '.join(dict.fromkeys(there))}.",
        )
    names = [*dict.fromkeys(choice.asked for choice in products), *(step.name for step in earlier)]
    return RequestRefusedError(
        field,
        f"{text!r} is neither a product of the request nor a step before this one.",
        f"There are: {', '.join(names)}.",
    )
