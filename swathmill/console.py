"""The terminal that commands print on."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tasks.shown_text import shown


class PlainConsole(Console):
    """A terminal in long lines and without colours of its own; no text of a stranger acts on it."""

    def __init__(self, *, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(highlight=False, soft_wrap=True, stderr=stderr, quiet=quiet)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, with escapes for what cannot be seen."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(shown(segment.text), segment.style)
