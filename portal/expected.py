"""What a request is expected to take, said for people."""

from portal.pages import duration_text, size_text
from tasks.requests import Preview

_HOUR = 3600.0


def takes(preview: Preview) -> str:
    """What there is to do, how long it takes and what it costs, as far as is known."""
    said = [
        f"{preview.tasks:,} tasks over {preview.granules:,} granules, "
        f"{size_text(preview.size)} to fetch, at most {size_text(preview.stored)} to keep."
    ]
    if preview.busy:
        time = f"about {preview.busy / _HOUR:,.1f} hours of one core"
        if preview.elapsed:
            time += f", {duration_text(preview.elapsed)} with the workers there are"
        said.append(f"By what such tasks took before: {time}.")
    if preview.unmeasured:
        said.append(f"{preview.unmeasured:,} tasks are of kinds never timed, and not counted.")
    if preview.cost:
        said.append(f"Expected cost: {preview.cost:,.2f}.")
    if not preview.exact:
        said.append("How much is there already is estimated from a sample.")
    return " ".join(said)
