"""What a command prints is sanitised, colours or not."""

from __future__ import annotations

import sys

import pytest

from blindbayes.cli.screen import Screen
from blindbayes.cli.terminal import sanitised_output

EVIL = "hello\x1b]0;PWNED\x07\x1b[31m \u202egnp.exe\u2066 \x9b2J \u2028end"


def test_whatever_a_command_prints_passes_the_border(capsys: pytest.CaptureFixture[str]) -> None:
    with sanitised_output():
        print(EVIL)
        print(EVIL, file=sys.stderr)
        Screen().print(EVIL, markup=False)
    got = capsys.readouterr()
    for text in (got.out, got.err):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "PWNED" in text
