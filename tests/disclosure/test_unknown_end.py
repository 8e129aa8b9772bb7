"""The check `unknown_end`: a run that may have opened one of several sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import unknown_end
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import bound_by, exact_sum, past


def test_no_exact_sum_until_the_set_of_an_earlier_one_is_known(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abcd", quorum_size=3), policy=open_policy(changed_data=True))
    with pytest.raises(PrivacyError, match="settled"):
        unknown_end.require(exact_sum("abcd"), known)
    unknown_end.require(exact_sum("abcd", table="others"), known)  # of another table
    unknown_end.require(exact_sum("abcd"), bound_by(tmp_path, past("abcd")))
