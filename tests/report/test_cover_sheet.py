"""The cover sheet of a release."""

from __future__ import annotations

import pytest

from blindbayes import ConfigError
from blindbayes.report.cover_sheet import Cover


def test_a_cover_refuses_what_it_does_not_know() -> None:
    for text in (b"titel = 'x'", b"title = 3", b"title = 'x'\n[officer]\nlawful = 'y'", b"officer = 'x'"):
        with pytest.raises(ConfigError):
            Cover.from_toml(text, "cover.toml", title="t")
    with pytest.raises(ConfigError, match="title"):
        Cover.from_toml(b"", "")
