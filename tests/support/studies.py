"""Studies from settings by their own names, for tests that vary one setting at a time."""

from __future__ import annotations

from typing import Any

from blindbayes import Codebook, Estimation, Limits, Privacy
from blindbayes.study.study import KINDS, Study

_GROUPS = {"privacy": Privacy, "limits": Limits, "estimation": Estimation}


def make_study(codebook: Codebook, *, kind: str = "rows", **settings: Any) -> Study:
    """Make a study of a kind; settings of a group are given by their own names."""
    groups = {
        name: group(**{each: settings.pop(each) for each in group.__struct_fields__ if each in settings})
        for name, group in _GROUPS.items()
        if set(group.__struct_fields__) & set(settings)
    }
    return KINDS[kind](codebook, **groups, **settings)


def make_columns_study(codebook: Codebook, **settings: Any) -> Study:
    """Make a study over columns whose rows line up, unless the settings say `kind`."""
    return make_study(codebook, **{"kind": "columns", **settings})
