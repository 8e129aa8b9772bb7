"""The check `exact_withdrawal`: rows are taken back with noise only."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import exact_withdrawal
from blindbayes.errors import PrivacyError
from support.disclosure import exact_sum, records


def test_an_exact_sum_takes_no_table_back(tmp_path: Path) -> None:
    exact_withdrawal.require(exact_sum(), records(tmp_path))
    with pytest.raises(PrivacyError, match="its whole table"):
        exact_withdrawal.require(exact_sum(withdrawn=True, base="cd" * 16), records(tmp_path))
