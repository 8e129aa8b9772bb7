"""The check `same_reading`: unchanged rows give unchanged statistics under one codebook."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import same_reading
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import bound_by, exact_sum, past


def test_rows_that_are_read_otherwise_are_refused(tmp_path: Path) -> None:
    known = bound_by(tmp_path, past("abc", counted=("c0", "s0")))
    same_reading.require(exact_sum(statistics="s0"), known)
    with pytest.raises(PrivacyError, match="a study with another held_out"):
        same_reading.require(exact_sum(statistics="s1"), known)
    same_reading.require(exact_sum(statistics="s1", codebook="c1"), known)
    consents = bound_by(tmp_path, past("abc", counted=("c0", "s0")), policy=open_policy(changed_data=True))
    same_reading.require(exact_sum(statistics="s1"), consents)
