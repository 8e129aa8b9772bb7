"""The check `one_name`: the same rows keep their table name."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import one_name
from blindbayes.errors import PrivacyError
from support.disclosure import bound_by, exact_sum, past


def test_the_same_rows_under_another_name_are_refused(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", rows="d0", table="rows"))
    with pytest.raises(PrivacyError, match="are those of the table 'rows'"):
        one_name.require(exact_sum("axy", table="year-2", rows="d0"), known)
    one_name.require(exact_sum("axy", table="year-2", rows="d1"), known)
    one_name.require(exact_sum(rows="d0"), known)
