"""When the results of a running request are listed again."""

_SHARE = 20


def worth_listing(delivered: int, listed: int) -> bool:
    """Tell whether so many results are worth a list, after one of so many.

    A list names all results, so it is asked for when there are a twentieth more, one at least.
    """
    return delivered >= listed + max(1, listed // _SHARE)
