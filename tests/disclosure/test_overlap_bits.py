"""The check `overlap_bits`: how often a partner learns whether enough identifiers match."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from blindbayes.disclosure.checks import overlap_bits
from blindbayes.errors import PrivacyError
from blindbayes.testing.loopback import open_policy
from support.disclosure import begin, columns, identity, records


def test_a_partner_learns_a_limited_number_of_bits_a_day(tmp_path: Path) -> None:
    known = records(tmp_path, open_policy(max_overlap_bits_per_day=1))
    request = columns(partners=(identity("b"),))
    overlap_bits.require(request, known)
    begin(known.history.audit, overlap_bits_with=[identity("b")])
    with pytest.raises(PrivacyError, match="at most 1 times a day"):
        overlap_bits.require(request, known)
    overlap_bits.require(columns(partners=(identity("c"),)), known)
    overlap_bits.require(request, replace(known, now=known.now + 86401))
