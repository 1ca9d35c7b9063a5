"""The bridge of a record, which a document may give in one word, as the reduction that it is."""

from tasks.request.records.part import is_record

BRIDGES = ("none", "offset", "linear")
"""The ways to adjust the sensors of a record; by default none."""


def with_bridge(document: object) -> object:
    """Write `bridge` of a record as `overlap: all` and the shipped package over the whole time.

    Raises:
        ValueError: there is no such bridge, or the document asks for what it cannot go with.
    """
    products = document.get("products") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(products, list | tuple):
        return document
    given = [one for one in products if isinstance(one, dict) and "bridge" in one]
    if not given:
        return document
    plain = [_without(one) if one in given else one for one in products]
    ways = {str(one["bridge"]) for one in given}
    for way in sorted(ways - {*BRIDGES}):
        raise ValueError(f"bridge is {way!r}; write none, offset or linear")
    for one in given:
        if "record" not in one and not is_record(str(one.get("name", ""))):
            raise ValueError("`bridge` says something of records alone; leave it out")
    if ways == {"none"}:
        return {**document, "products": plain}
    (first, *more), (way, *_) = plain, sorted(ways - {"none"})
    layers = first.get("layers", ())
    if more or (isinstance(layers, list | tuple) and len(layers) > 1):
        raise ValueError(
            f"`bridge: {way}` joins one layer of one record; ask for others in requests of their "
            "own"
        )
    if document.get("reduction"):
        raise ValueError(
            f"`bridge: {way}` is a reduction itself; leave it out, and name the package bridge as "
            "a step of the reduction"
        )
    if first.get("overlap", "all") != "all":
        raise ValueError(f"`bridge: {way}` takes each sensor by itself; leave overlap out")
    return {
        **document,
        "products": [{**first, "overlap": "all"}],
        "reduction": {
            "package": "bridge",
            "group_by": ["cell", "all"],
            "parameters": {"method": way},
        },
    }


def _without(product: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in product.items() if name != "bridge"}
