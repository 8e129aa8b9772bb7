"""With BLINDBAYES_CALLED=<file>: the functions of the library that the tests called, as JSON in that file."""

import json
import os
from pathlib import Path

import pytest

from blindbayes.crypto.kernels.signatures import CheckedFunction

CALLED: set[str] = set()


@pytest.fixture(scope="session", autouse=True)
def called():
    """Record the name of every called function."""
    path, call = os.environ.get("BLINDBAYES_CALLED"), CheckedFunction.__call__
    if path is None:
        yield
        return

    def recorded(function, *args):
        CALLED.add(function.symbol)
        return call(function, *args)

    CheckedFunction.__call__ = recorded
    yield
    CheckedFunction.__call__ = call
    Path(path).write_text(json.dumps(sorted(CALLED)))
