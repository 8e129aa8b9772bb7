"""A progress bar on standard error for work that lasts, silent where nobody watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from blindbayes.cli.screen import Screen
from blindbayes.data.counting import Progress as Tell


@contextmanager
def counting(what: str) -> Iterator[Tell]:
    """A callback (done, all, name) that draws a bar."""
    console = Screen(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what)

        def tell(done: int, steps: int, name: str) -> None:
            bar.update(task, completed=done, total=steps, description=f"{what} {escape(name)}" if name else what)

        yield tell
