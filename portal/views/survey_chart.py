"""The histogram of a layer on the form's map: its values before the quality rule and with it."""

from collections.abc import Sequence

from portal.results.charts import Bar, Chart, bars

_LEAST = 1e-6  # percent, the height of an axis over which nothing stands


def survey_chart(
    edges: tuple[float, float], kept: Sequence[float], before: Sequence[float], *, has_rule: bool
) -> Chart:
    """Draw shares of pixels, 0 to 1, in equal bins between two values.

    With a rule, what was there before it stands behind what is kept.
    """
    low, step = edges[0], (edges[1] - edges[0]) / max(1, len(kept))
    every = []
    for number, (share, was) in enumerate(zip(kept, before, strict=True)):
        text = f"{low + step * number:.4g} to {low + step * (number + 1):.4g}: {_percent(share)}"
        if has_rule:
            text += f" of pixels with the rule, {_percent(was)} before"
        else:
            text += " of pixels"
        every.append(
            Bar(
                name=f"{low + step * number:.4g}",
                parts=[("", 100 * share)],
                text=text,
                behind=100 * was if has_rule else None,
            )
        )
    return bars(every, "% of pixels", least=_LEAST, edges=edges)


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
