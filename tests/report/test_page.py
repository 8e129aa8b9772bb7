"""The sequence diagram of a run."""

from __future__ import annotations

from blindbayes.report.leakage import Flow
from blindbayes.report.page import sequence_diagram


def test_the_diagram_draws_arrows_that_were_sent_and_no_others() -> None:
    ring = Flow(1, "Passed", "masked", (("a", "b"), ("b", "c"), ("c", "a")), 3, 30)
    assert sequence_diagram((ring,)).count("<path") == 3
    many = tuple((f"p{at}", "server") for at in range(40))
    drawn = sequence_diagram((Flow(1, "Sent", "clear", many, 40, 400),))
    assert drawn.count("<path") == 1
    assert "40 others" in drawn


def test_a_run_of_many_steps_is_drawn_by_kind() -> None:
    flows = tuple(Flow(at, f"Block{at % 2}", "masked", (("a", "b"),), 1, 10) for at in range(100))
    drawn = sequence_diagram(flows)
    assert drawn.count("<path") == 2
    assert drawn.count("(50, 500 bytes)") == 2
