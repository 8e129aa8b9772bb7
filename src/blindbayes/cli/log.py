"""Logging with redaction: whatever is logged, no text from a row reaches the stream.

The package logs constants and counts. As a second line, a filter replaces every argument of a log record that is not a
number, a truth value or a name from a short list of public kinds.
"""

from __future__ import annotations

import logging
from typing import Any


class Public(str):
    """A text that may stand in a log: a column name, a party's name, a hash."""

    __slots__ = ()


class Redact(logging.Filter):
    """Replace arguments that might carry a row by their type."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_redacted(value) for value in record.args)
        elif isinstance(record.args, dict):
            record.args = {key: _redacted(value) for key, value in record.args.items()}
        record.exc_info = None  # tracebacks of libraries quote values
        record.exc_text = None
        return True


def _redacted(value: Any) -> Any:
    if isinstance(value, bool | int | Public):
        return value
    return f"<{type(value).__name__}>"


def set_up_logging(verbose: int) -> None:
    """Log of the package to standard error: warnings, or more with -v and -vv."""
    logger = logging.getLogger("blindbayes")
    logger.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)])
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handler.addFilter(Redact())
        logger.addHandler(handler)
    logger.propagate = False
