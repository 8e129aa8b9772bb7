"""A party that learns no totals moves one instance from a cell to another, and sees whether the learner fails.

Before the learner kept it to itself, a failure said that the cell is empty: the one bit that the totals were to hide from it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, ColumnStudy
from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError, UndisclosedError
from blindbayes.protocols.memory import Replace
from blindbayes.protocols.shared_inference.messages import TotalsShared
from blindbayes.protocols.shared_inference.tally import is_possible
from support.tally import ROWS, Tally


def guess(cell: int) -> Any:
    def change(message: Any) -> Any:
        shares = message.shares.copy()
        shares[cell] -= np.uint64(1)
        shares[(cell + 1) % len(shares)] += np.uint64(1)
        return TotalsShared(message.mark, shares)

    return change


@pytest.mark.parametrize(("liar", "learner"), [("class", "attributes"), ("attributes", "class")])
def test_whether_a_guess_was_right_does_not_show_outside_the_learner(liar: str, learner: str) -> None:
    made = Tally(7, learners=(learner,))
    totals = made.totals()
    empty, full = int(np.flatnonzero(totals == 0)[0]), int(np.argmax(totals))
    seen = []
    for cell in (empty, full):
        fault = Replace(lambda sent: sent.kind is TotalsShared and sent.sender == liar, guess(cell))
        outcome = made.run(faults=(fault,), check=False)
        seen.append((outcome.error, [(e.sender, e.to, e.kind, e.size) for e in outcome.transcript.entries]))
        assert is_possible(outcome.outputs[learner], ROWS) == (cell == full)
    assert seen[0] == seen[1]
    assert seen[0][0] is None


def test_a_learner_still_names_a_liar_that_learned_the_totals_itself() -> None:
    made = Tally(7)
    empty = int(np.flatnonzero(made.totals() == 0)[0])
    fault = Replace(lambda sent: sent.kind is TotalsShared and sent.sender == "class", guess(empty))
    error = made.run(faults=(fault,), check=False).error
    assert isinstance(error, PeerProtocolError)
    assert error.party == "class"


def test_the_learners_site_fails_alone_and_writes_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Codebook("y", ("a", "b"), (Categorical("u", ("0", "1")), Categorical("v", ("0", "1"))), max_rows=100)
    frames = {
        "clinic": pd.DataFrame({"y": ["a", "b"] * 10, "u": ["0", "1"] * 10}),
        "lab": pd.DataFrame({"v": ["0", "1"] * 10}),
    }
    study = ColumnStudy(book, reveal_to="lab", options={"queries": 100})
    model = study.simulate(frames, coins=Coins.seeded(bytes(32))).model
    opened = "blindbayes.protocols.shared_inference.tally._add"
    monkeypatch.setattr(opened, lambda mine, theirs: np.array([-1, 11, 5, 5], dtype=np.int64))
    with pytest.raises(UndisclosedError):
        model.evaluate(frames)
