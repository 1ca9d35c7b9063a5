"""The counts of a dry run in words."""

from portal.serving.quantities import size_text
from tasks.answers.requests import PreviewAnswer, WindowAnswer


def lines_of(counts: PreviewAnswer) -> list[str]:
    """Write the counts as lines for people."""
    about = "" if counts.exact else ", estimated from a sample"
    lines = [
        f"Granules  {counts.granules:,}, {size_text(counts.bytes)} to fetch",
        f"Tasks     {counts.tasks:,}, of which {counts.reused:,} are done already{about}",
        f"Storage   {size_text(counts.stored)} at most",
        *([f"Raster    {counts.raster}"] if counts.raster else []),
        f"Time      {counts.expected_time}",
        f"Cost      {counts.expected_cost}",
        *(f"          {note}" for note in counts.notes),
        f"Gaps      {counts.gaps:,}" + (":" if counts.missing else ""),
        *(f"  {gap}" for gap in counts.missing),
    ]
    if counts.gaps > len(counts.missing) > 0:
        lines.append(f"  and {counts.gaps - len(counts.missing):,} more")
    if counts.windows:
        lines.append(f"Windows   {counts.window_count:,}:")
        lines += [_window_line(window) for window in counts.windows]
    if counts.window_count > len(counts.windows):
        lines.append(f"  and {counts.window_count - len(counts.windows):,} more")
    if counts.message:
        lines.append(counts.message)
    return lines


def _window_line(window: WindowAnswer) -> str:
    runs = f"{window.runs:,} {'run' if window.runs == 1 else 'runs'}" if window.runs else "no run"
    lacks = f"; lacks {window.lacks}" if window.lacks else ""
    days = f" ({window.first} to {window.last})" if window.first != window.last else ""
    return f"  {window.step} {window.window}{days}: {runs}; has {window.has or 'nothing'}{lacks}"
