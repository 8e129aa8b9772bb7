"""Tables, colours and progress bars: rich behind the sanitiser of `cli.terminal`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from blindbayes.io.untrusted import shown

if TYPE_CHECKING:
    from blindbayes.data.counting import Progress as Callback


class Screen(Console):
    """A rich console that escapes control characters in every text it prints."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, **options)

    @property
    def file(self) -> IO[str]:
        """The current stream, without the sanitiser: `render` has escaped the text."""
        stream = sys.stderr if self.stderr else sys.stdout
        inner: IO[str] = getattr(stream, "inner", stream)
        return inner

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        raise AttributeError("a screen is standard output or standard error")

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text, lines=True), segment.style)

    def line(self, text: str = "") -> None:  # type: ignore[override]
        """Print one line of plain text, without markup, highlighting or wrapping."""
        self.print(text, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callback]:
    """Draw a progress bar on standard error, if it is a terminal; yield the callback (done, total, name)."""
    screen = Screen(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(title)

        def update(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{title} {escape(name)}" if name else title)

        yield update
