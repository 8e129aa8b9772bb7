"""The border to a terminal: what others wrote is shown, and never obeyed.

Titles, names and sentences in files of other people may hold sequences that move the cursor, rename the window, hide what
follows, or turn the direction of writing. Everything that the command line prints passes here, and stands as an escape where a
terminal would obey it. Colours of our own go around it, by `cli.screen.Screen` alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from blindbayes.io.untrusted import shown


class _Border:
    """A text stream that writes only what can be seen."""

    def __init__(self, stream: Any) -> None:
        self.inner = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("a terminal is written text, not bytes")
        self.inner.write(shown(text, lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # bytes would pass by the border
            raise AttributeError(name)
        return getattr(self.inner, name)


@contextlib.contextmanager
def bordered() -> Iterator[None]:
    """Standard output and standard error behind the border."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Border(out), _Border(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def table_out() -> Any:
    """Standard output for bytes of a table, whose texts a codebook has checked."""
    return getattr(sys.stdout, "inner", sys.stdout).buffer
