"""Groups of settings are checked when they are made."""

from __future__ import annotations

import pytest

from blindbayes import Estimation
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.study import RowStudy
from blindbayes.study.fields import Limits, Privacy
from support.sites import BOOK


def test_groups_are_checked_when_they_are_made() -> None:
    for make in (
        lambda: Privacy(epsilon=-1),
        lambda: Privacy(delta=1e-9),
        lambda: Limits(quorum=0),
        lambda: Estimation(alpha=0),
    ):
        with pytest.raises((ConfigError, PrivacyError)):
            make()
    for name in ("privacy", "limits", "estimation"):
        with pytest.raises(ConfigError, match=f"{name} must be a blindbayes"):
            RowStudy(BOOK, **{name: {}})
    with pytest.raises(ConfigError, match="name of a protocol"):
        RowStudy(BOOK, protocol=3)


def test_whole_numbers_and_floats_have_one_hash() -> None:
    typed = RowStudy(BOOK, privacy=Privacy(epsilon=1, delta=1e-9), limits=Limits(min_parties=4), estimation=Estimation(alpha=2))
    same = RowStudy(
        BOOK, privacy=Privacy(epsilon=1.0, delta=1e-9), limits=Limits(min_parties=4), estimation=Estimation(alpha=2.0)
    )
    assert typed.sha256 == same.sha256
    assert typed == same
