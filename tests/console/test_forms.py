"""Forms: fields and files, bounded, in one pass."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from blindbayes.console.forms import fields_of, urlencoded
from blindbayes.errors import ConfigError
from support.forms import FORM, form, nested


def steps(work: Any) -> int:
    """How many functions a piece of work calls."""
    count = 0

    def tick(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        work()
    except ConfigError:
        pass
    finally:
        sys.setprofile(None)
    return count


def test_a_form_has_its_fields_and_a_file_fills_an_empty_one() -> None:
    body = form(("text", b""), ("text", b"a = 1\r\nb = '--x'\r\n"), ("words", "zw\u00f6lf".encode()))
    assert fields_of(FORM, body) == {"text": "a = 1\r\nb = '--x'\r\n", "words": "zw\u00f6lf"}
    assert fields_of('multipart/form-data; boundary="x"', body)["words"] == "zw\u00f6lf"
    assert fields_of("application/x-www-form-urlencoded", b"a=1&b=") == {"a": "1", "b": ""}


@pytest.mark.parametrize(
    "body",
    [nested(250, 900_000), form(*(("a", b"x") for _ in range(129))), b"--x\r\n" * 100_000, b"--x" * 300_000, b"\r\n" * 450_000,
     b"--x\r\n" + b"h: v\r\n" * 100_000 + b"\r\n\r\n--x--", b"--x\r\n\r\nno name\r\n--x--", b"", b"--x--",
     b"text" + form(("a", b"b")),
     form(("a", b"\xff")), form(("a", b"b"))[:-4], form(("a" * 65, b"b"))],
    ids=range(13),
)  # fmt: skip
def test_a_hostile_form_is_refused_in_one_pass(body: bytes) -> None:
    assert steps(lambda: fields_of(FORM, body)) < 1500
    if body != b"--x--":
        with pytest.raises(ConfigError):
            fields_of(FORM, body)


@pytest.mark.parametrize(
    "kind",
    ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "x" * 71,
     "multipart/form-data; boundary=x\r\n", "multipart/form-data; charset=x", 'multipart/form-data; boundary="x'],
)  # fmt: skip
def test_a_form_without_a_boundary_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="boundary"):
        fields_of(kind, form(("a", b"b")))


def test_an_urlencoded_form_has_a_bounded_number_of_fields() -> None:
    assert len(urlencoded(b"&".join(b"a%d=1" % at for at in range(256)))) == 256
    with pytest.raises(ConfigError, match="too many fields"):
        urlencoded(b"&" * 256)
