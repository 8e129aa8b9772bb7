"""Limits of the parsers for untrusted JSON."""

from __future__ import annotations

import pytest

from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import MAX_DEPTH, read_json


def test_json_is_nested_up_to_the_limit_and_no_deeper() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "a file") is not None
    with pytest.raises(ConfigError, match="a file"):
        read_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "a file")
