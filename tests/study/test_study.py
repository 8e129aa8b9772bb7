"""Studies: complete signatures, and no change once made."""

from __future__ import annotations

import pytest

from blindbayes.errors import PrivacyError
from blindbayes.study import ColumnStudy, JoinStudy, RowStudy
from blindbayes.study.fields import Privacy
from support.sites import BOOK


def test_a_setting_of_another_kind_is_refused_by_python() -> None:
    for kind, settings in ((RowStudy, ("key", "reveal_to", "duplicates")), (ColumnStudy, ("key", "duplicates"))):
        for name in settings:
            with pytest.raises(TypeError, match=name):
                kind(BOOK, **{name: "id"})


def test_the_signature_of_a_study_is_complete() -> None:
    import inspect

    common = ["codebook", "protocol", "options", "privacy", "limits", "estimation"]
    for kind, own in ((RowStudy, []), (ColumnStudy, ["reveal_to"]), (JoinStudy, ["reveal_to", "key", "duplicates"])):
        parameters = inspect.signature(kind).parameters
        assert [*parameters] == [*common, *own]
        assert all(each.kind is each.KEYWORD_ONLY for name, each in parameters.items() if name != "codebook")
        assert not hasattr(kind, "contribution")
    for runs in (RowStudy.simulate, RowStudy.evaluate, RowStudy.cross_validate):
        parameters = inspect.signature(runs).parameters
        assert {"ledgers", "policies", "coins", "keep"} < {*parameters}
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def test_a_study_does_not_change_once_it_is_made() -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0))
    with pytest.raises(AttributeError):
        study.privacy = Privacy()
    with pytest.raises(AttributeError):
        study.privacy.epsilon = 9.0
    assert study.replace(privacy=Privacy(epsilon=9.0)).privacy.epsilon == 9.0
    assert study.privacy.epsilon == 1.0
    with pytest.raises(PrivacyError, match="delta"):
        study.replace(privacy=Privacy(epsilon=1.0, delta=0.5))
