"""The check `rows_digest`: no exact sum of rows that later sums could not be compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import rows_digest
from blindbayes.errors import LocalProtocolError
from support.disclosure import exact_sum, records


def test_an_exact_sum_needs_the_digest_of_its_rows(tmp_path: Path) -> None:
    rows_digest.require(exact_sum(), records(tmp_path))
    with pytest.raises(LocalProtocolError, match="needs the digest"):
        rows_digest.require(exact_sum(rows=None), records(tmp_path))
