"""A party that is to learn nothing spoils what the learner reads for one outcome only, and watches whether the run fails.

Found by a reviewer: each of these told the class of an instance of its choice, or whether somebody was asked about.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from blindbayes import ColumnStudy
from blindbayes.agent.offers import Answers
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.garbling.garbling import Garbler
from blindbayes.errors import UndisclosedError
from blindbayes.protocols.memory import Replace, run_in_memory
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE
from blindbayes.protocols.shared_inference.messages import ArgmaxGarbled
from support.argmax import Setup, with_classes
from support.column_sites import errors, pair, predict, small, trained
from support.hidden import Case
from support.sites import bounded


def spoil_ones(message: ArgmaxGarbled) -> ArgmaxGarbled:
    """No label of a 1 fits its tag."""
    tags = message.tags.copy()
    tags[len(tags) // 2 :] ^= np.uint64(1)
    return msgspec.structs.replace(message, tags=tags)


def test_wrong_tags_for_one_class_do_not_stop_the_run():
    setup = Setup(with_classes(2), 12)
    spoilt = Replace(lambda entry: entry.kind is ArgmaxGarbled, spoil_ones)
    outcome = setup.run(learners=("attributes",), check=False, faults=[spoilt])
    assert outcome.error is None
    assert set(setup.expected()) == {0, 1}
    assert np.array_equal(outcome.outputs["attributes"] == UNREADABLE, setup.expected() == 1)


class Targeted(Case):
    """A helper whose list is one person, and whose shares give that person class 1 and everybody else class 0."""

    big = 0

    def aim(self, at: int) -> bool:
        """At one person of its list; whether the scorer asks about them."""
        self.big = int(2.0 ** (self.plan.bits - 3))
        self.items["bank"] = self.items["bank"][[at]]
        self.codes["bank"] = {name: codes[[at]] for name, codes in self.codes["bank"].items()}
        return bool((self.items["telecom"] == self.items["bank"][0]).all(axis=1).any())

    def _raised(self, shape: tuple[int, ...]) -> np.ndarray:
        return lm.from_floats(np.full(shape, float(self.big)), self.plan.limbs)

    def share(self, party: str) -> dict[str, np.ndarray]:
        found = super().share(party)
        if party == "bank":
            table = found["sector"].copy()
            table[:, 1:] = lm.cut(lm.add(table[:, 1:], self._raised(table[:, 1:].shape[:-1])), self.plan.bits)
            found["sector"] = table
        return found

    def known(self, party: str) -> np.ndarray:
        own = super().known(party)
        if party != "bank":
            return own
        half = lm.from_floats(np.full(own.shape[:-1], float(self.big // 2)), self.plan.limbs)
        return lm.cut(lm.subtract(own, half), self.plan.bits)


@pytest.mark.parametrize("at", [0, -1])
def test_a_helper_does_not_see_from_a_failure_whether_somebody_was_asked_about(at):
    case = Targeted(to="telecom", scope="everybody", classes=2, sizes=(60, 50), overlap=20)
    asked = case.aim(int(np.flatnonzero(case.codes["bank"]["sector"] >= 0)[at]))
    assert asked == (at == 0)
    spoilt = Replace(lambda entry: entry.kind is ArgmaxGarbled, spoil_ones)
    outcome = run_in_memory(case.roles(), check=False, faults=[spoilt])
    assert outcome.error is None
    assert (UNREADABLE in outcome.outputs["telecom"]) == asked


def test_between_sites_the_learner_fails_alone_and_the_others_hear_of_a_run_that_ended_well(tmp_path: Path, monkeypatch):
    split = pair()
    genuine = Garbler.tags

    def spoilt(self, wires):
        tags = genuine(self, wires).copy()
        tags[len(tags) // 2 :] ^= np.uint64(1)
        return tags

    async def test() -> None:
        async with trained(tmp_path, split, reveal_to="insurer") as (office, study, model):
            monkeypatch.setattr(Garbler, "tags", spoilt)  # the class holder's software: nobody else makes tags
            ended = await predict(office, study, model, split.ask(tmp_path, small(40, seed=3)))
            assert errors(ended) == {"hospital": None, "insurer": UndisclosedError}
            run_id = ended["insurer"].run_id
            homes = {name: site.home for name, site in office.net.sites.items()}
            assert all(link.aborted is None for role in ended["hospital"].roles.values() for link in role.links.values())
            assert homes["insurer"].runs.outcome(run_id)["told"] == "done"  # who asks later hears the same
            assert not (homes["insurer"].folder / "releases" / run_id).exists()
            heads = [home.audit.where("event", "ended")[-1] for home in homes.values()]
            assert [head["state"] for head in heads] == ["done", "burned"]
            monkeypatch.setattr(Garbler, "tags", genuine)
            again = await predict(office, study, model, split.ask(tmp_path, small(40, seed=3), "again"), batch="again")
            assert errors(again) == dict.fromkeys(split.holds)

    bounded(test, 60)


def test_a_site_that_asks_later_hears_of_a_run_that_ended_well(monkeypatch: pytest.MonkeyPatch) -> None:
    words: list[int] = []
    monkeypatch.setattr(Answers, "send", lambda self, site, pair, word: words.append(word))
    pair = SimpleNamespace(ended=lambda code: code)
    well, alone, failed = (
        {"state": "done"},
        {"state": "failed", "exit_code": 9, "told": "done"},
        {"state": "failed", "exit_code": 9},
    )
    for outcome in (well, alone, failed):
        Answers(SimpleNamespace(), SimpleNamespace()).send_ended("hospital", pair, outcome)
    assert words[0] == words[1] != words[2]


def test_in_one_process_the_learner_fails_likewise(monkeypatch):
    split, genuine = pair(), Garbler.tags
    brought = {name: (*held, *(["class"] if name in split.labelled else [])) for name, held in split.holds.items()}
    frames = {name: split.frame[list(columns)] for name, columns in brought.items()}
    result = ColumnStudy(split.book, reveal_to="insurer", options={"queries": 100}).simulate(frames)

    def spoilt(self, wires):
        tags = genuine(self, wires)
        return tags ^ (np.arange(len(tags)) >= len(tags) // 2).astype(np.uint64)

    monkeypatch.setattr(Garbler, "tags", spoilt)
    with pytest.raises(UndisclosedError) as caught:
        result.model.predict({name: split.frame[list(held)].head(20) for name, held in split.holds.items()})
    assert caught.value.party == "hospital"
    assert "No site is informed" in str(caught.value)
