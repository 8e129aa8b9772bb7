"""Limits of the parsers for untrusted JSON."""

from __future__ import annotations

import json
import time

import pytest

from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import MAX_BYTES, MAX_DEPTH, read_json, read_toml


def test_json_is_nested_up_to_the_limit_and_no_deeper() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH, "a file") is not None
    with pytest.raises(ConfigError, match="a file"):
        read_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "a file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "name twice"),
        ('{"b": {"a": 1, "a": 2}}', "name twice"),
        ("[" * 49 + "]" * 49, "within tables"),
        ("9" * 1301, "digits"),
        ("1e400", "not finite"),
        ("Infinity", "does not have"),
        (b"\xff", "UTF-8"),
        ("[1,", "not valid JSON"),
        (" " * (MAX_BYTES + 1), "size limit"),
    ],
)
def test_json_is_read_within_bounds(text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^the file .*{said}"):
        read_json(text, "the file")


def test_brackets_within_a_text_are_no_depth_and_escapes_are_understood() -> None:
    value = {"a": "[" * 100, 'b"\\': '\\"[' * 60, "c": ["\\\\", "]"]}
    assert read_json(json.dumps(value), "the file") == value


def test_dotted_keys_take_no_time_by_the_square_of_their_number() -> None:
    start = time.process_time()
    for text in ("a." * 200_000 + "a = 1", "x = {" + '"a" . ' * 100_000 + "a = 1}", "a" * 1_000_000 + " = 1", '"' * 100_000):
        try:
            read_toml(text, "the file")
        except ConfigError:
            continue
    assert time.process_time() - start < 5
