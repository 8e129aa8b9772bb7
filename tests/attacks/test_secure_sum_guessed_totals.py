"""A contributor that learns nothing adds a guess to its vector, so that the others' count passes a bound or does not.

Found by a reviewer: whoever opened the sum told the whole run if it was past its bounds, and so the guesser whether the others'
count was above its guess. Now the reader fails alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindbayes import RowStudy
from blindbayes.codebook import Codebook
from blindbayes.data import count_table
from blindbayes.errors import ProtocolError
from blindbayes.protocols import registry
from blindbayes.study.file import Deadlines
from blindbayes.study.tasks.sums import SumTask
from support.sites import BOOK as WIDE
from support.sites import Office, bounded, make_rows, paper_policy

BOOK = Codebook(WIDE.target, WIDE.classes, WIDE.features, max_rows=1_000)
SITES, GUESSER = ("north", "south", "west"), "west"
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "oblivious_sum": ("miner", {"proofs": False}),  # with proofs a guess is no table and is not sent
    "chain_sum": ("builder", {}),
}


def guess(monkeypatch: pytest.MonkeyPatch, threshold: int) -> None:
    """The guesser's software: the first cell of the sum passes its bound if the others' is above the threshold."""
    honest = SumTask.role

    def role(self: SumTask, seat: str, run: Any, coins: Any) -> Any:
        if seat != GUESSER:
            return honest(self, seat, run, coins)
        setting = self.agreement.task.setting
        vector = np.zeros(setting.length, dtype=np.uint64)
        most = setting.ranges[0][1] if self.agreement.study.protocol == "chain_sum" else setting.bound
        vector[0] = most - threshold
        return registry.load(self.agreement.study.protocol).role(run, setting, vector, coins.derive("role"))

    monkeypatch.setattr(SumTask, "role", role)


def counted(rows: dict[str, Any]) -> int:
    return sum(int(count_table(rows[name], BOOK).class_counts[0]) for name in SITES if name != GUESSER)


@pytest.mark.parametrize("protocol", READERS)
def test_between_sites_a_guess_that_is_right_looks_like_one_that_is_wrong(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat, options = READERS[protocol]
    seen = []

    async def test() -> None:
        rows = make_rows(tmp_path, SITES) | {"lab": None}
        async with Office(tmp_path, (), rows=rows, policy=paper_policy()) as office:
            deadlines = Deadlines(step=20, join=20, run=40)
            study = office.net.make_study(BOOK, protocol=protocol, options=options, hosts={seat: "lab"}, deadlines=deadlines)
            office.net.approve(study, runs=3)
            lab = office.net.sites["lab"].home
            for offset in (-1, 0):  # "more than one below": right; "more than so many": wrong
                guess(monkeypatch, counted(rows) + offset)
                runs = await office.run(study, by=GUESSER)
                monkeypatch.undo()
                run = runs["lab"]
                assert isinstance(run.error, ProtocolError)
                assert set(run.error.suspects) == set(SITES)
                assert lab.runs.outcome(run.run_id)["told"] == "done"
                assert not (lab.folder / "releases" / run.run_id).exists()
                heard = [link.aborted for each in runs.values() for role in each.roles.values() for link in role.links.values()]
                lines = [line["event"] for line in lab.audit.where("run", run.run_id)]
                seen.append((heard, {name: each.state for name, each in runs.items()}, lines))

    bounded(test, 90)
    assert seen[0] == seen[1]
    assert not any(seen[0][0])


@pytest.mark.parametrize("protocol", READERS)
def test_in_one_process_the_reader_fails_likewise(protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, Any] = make_rows(tmp_path, SITES)
    guess(monkeypatch, counted(rows) - 1)
    with pytest.raises(ProtocolError) as caught:
        RowStudy(BOOK, protocol=protocol, options=READERS[protocol][1]).simulate(rows)
    assert set(caught.value.suspects) == set(SITES)
