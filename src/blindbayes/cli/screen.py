"""rich's console on our side of the border: see `cli.border`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from blindbayes.io.untrusted import shown


class Screen(Console):
    """rich's console, with colours of its own and escapes for everybody else's."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, **options)

    @property
    def file(self) -> IO[str]:
        """The stream behind the border, as it is now."""
        stream = sys.stderr if self.stderr else sys.stdout
        found: IO[str] = getattr(stream, "inner", stream)
        return found

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        raise AttributeError("a screen is standard output or standard error")

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces to be printed, with escapes in their text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text, lines=True), segment.style)
