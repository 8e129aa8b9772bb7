"""Fields of a form: the protocols that it offers."""

from __future__ import annotations

from blindbayes.study.form import protocols_of


def test_protocols_that_protect_nothing_are_not_offered() -> None:
    assert protocols_of("rows") == ("masked_sum", "private_ratio")
    assert "reference" not in {*protocols_of("rows"), *protocols_of("columns"), *protocols_of("join")}
