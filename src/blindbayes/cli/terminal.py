"""Sanitise what the command line prints and redact what the package logs.

Titles and names in files of other parties may hold control sequences that move the cursor, rename the window, hide text or
change the writing direction. All output passes through here and shows such characters as escapes. Our own colours are added
afterwards, by `cli.screen.Screen` alone.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from blindbayes.io.untrusted import shown


class _SanitisedStream:
    def __init__(self, stream: Any) -> None:
        self.inner = stream

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError("the terminal takes text, not bytes")
        self.inner.write(shown(text, lines=True))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # bytes would bypass the sanitiser
            raise AttributeError(name)
        return getattr(self.inner, name)


@contextlib.contextmanager
def sanitised_output() -> Iterator[None]:
    """Escape control characters on standard output and standard error."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _SanitisedStream(out), _SanitisedStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def binary_stdout() -> Any:
    """Return standard output for the bytes of a table whose texts a codebook has checked."""
    return getattr(sys.stdout, "inner", sys.stdout).buffer


class Public(str):
    """A text that may be logged: the name of a column or a party, a hash."""

    __slots__ = ()


class Redact(logging.Filter):
    """Replace log arguments that may come from a row by their type.

    The package logs constants and counts only. This filter is the second line of defence.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_redacted(value) for value in record.args)
        elif isinstance(record.args, dict):
            record.args = {key: _redacted(value) for key, value in record.args.items()}
        record.exc_info = None  # tracebacks of libraries quote values
        record.exc_text = None
        return True


def _redacted(value: Any) -> Any:
    return value if isinstance(value, bool | int | Public) else f"<{type(value).__name__}>"


def set_up_logging(verbose: int) -> None:
    """Log warnings of the package to standard error; with `verbose` 1 or 2 also infos or everything."""
    logger = logging.getLogger("blindbayes")
    logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handler.addFilter(Redact())
        logger.addHandler(handler)
    logger.propagate = False
