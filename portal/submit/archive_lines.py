"""What the form says of the archive while it is filled in: a calm line, which refuses nothing."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

from portal.submit import catalogue
from portal.submit.field_problems import FieldProblem, Problems, problems_of
from portal.submit.forms import Form, ProductCard, layers_of, so_far
from tasks.errors import RequestRefusedError
from tasks.holdings.held import held_text, lacking, named
from tasks.holdings.holdings import Holdings
from tasks.request.resolved import resolve


def archive_slots(form: Form) -> tuple[str, ...]:
    """List the places of the form that may say something of the archive."""
    return ("time", "region", *(f"card-{card.uid}" for card in form.products))


def lacks_of(form: Form, held: Holdings | None) -> Problems:
    """Find what the archive lacks of the form so far; without days, say which it has."""
    if held is None or not held.products:
        return Problems()
    first = min(each.first for each in held.products)
    last = max(each.last for each in held.products)
    filled = replace(form, products=tuple(_with_layer(card, held) for card in form.products))
    made = so_far(filled, first, last)
    if made is None:
        return Problems()
    found: list[FieldProblem] = []
    try:
        for error in lacking(resolve(made), held):
            found += [_calm(one, error) for one in problems_of(error, form).found]
    except RequestRefusedError:
        return Problems()  # the check of the form says what is wrong
    if form.start and form.end and not found:
        found += _beyond(filled, made.time.start, made.time.end, held)
    if not (form.start and form.end):
        found += [
            FieldProblem(
                slot="time",
                control="start",
                text=f"The archive has {has}.",
                days=(each.first.isoformat(), each.last.isoformat()),
            )
            for card in form.products
            if (each := held.of(card.name, card.collection)) is not None
            for has in [f"{named(each)}: {held_text(each)}"]
        ]
    return Problems(found=tuple(found))


def _beyond(form: Form, start: dt.date, end: dt.date, held: Holdings) -> Iterator[FieldProblem]:
    """Say which products have nothing for the first or the last of the days asked for."""
    for card in form.products:
        each, known = (
            held.of(card.name, card.collection),
            catalogue.find(card.name, card.collection),
        )
        if each is None:
            continue
        last = each.last + dt.timedelta(days=max(1, known.period if known else 1) - 1)
        parts = [f"begins at {each.first}"] if start < each.first else []
        parts += [f"ends at {last}"] if end > last else []
        if parts:
            days = (max(start, each.first).isoformat(), min(end, last).isoformat())
            yield FieldProblem(
                slot="time",
                control="end" if end > last else "start",
                text=f"The archive's {named(each)} {' and '.join(parts)}: there is nothing beyond.",
                days=days,
            )


def _calm(problem: FieldProblem, error: RequestRefusedError) -> FieldProblem:
    text = f"{error.problem} {error.remedy}".strip()
    return replace(problem, text=text[:1].upper() + text[1:])


def _with_layer(card: ProductCard, held: Holdings) -> ProductCard:
    """Choose a layer where none is chosen yet: days and places do not depend on it."""
    if layers_of(card):
        return card
    each, known = held.of(card.name, card.collection), catalogue.find(card.name, card.collection)
    names = [
        *(each.layers if each else ()),
        *(layer.name for layer in (known.layers if known else ())),
    ]
    return replace(card, layers=tuple(names[:1]) or ("any",))
