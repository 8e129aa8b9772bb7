"""The check `query_limit`: reference answers of a training are queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.disclosure.checks import query_limit
from blindbayes.errors import PrivacyError
from support.disclosure import STUDY, columns, records


def test_answers_count_with_all_that_were_classified(tmp_path: Path) -> None:
    known = records(tmp_path)
    query_limit.require(columns(answers=10, queries=10), known)
    known.history.audit.append("classifying", run="ef" * 16, study=STUDY, model="m", instances=4)
    query_limit.require(columns(answers=6, queries=10), known)
    with pytest.raises(PrivacyError, match="6 of 10 queries are left"):
        query_limit.require(columns(answers=7, queries=10), known)
    query_limit.require(columns(answers=7, queries=None), known)
