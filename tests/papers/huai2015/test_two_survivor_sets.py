"""oblivious_sum on sparse key graphs: what a coalition can really do is what page, report and noise count on.

The attacks run against the roles as they are; what must hold is that nobody claims to bear them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from blindbayes import Limits, Privacy, RowStudy
from blindbayes.agent.approvals.summary import colluders_of, require_strength
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import dishonest
from blindbayes.errors import PrivacyError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run, Send, receive_all
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.report.leakage import follows_from_sum
from blindbayes.study.file import Party, StudyFile
from blindbayes.study.tasks.sum_plan import Sum
from blindbayes_papers.huai2015.oblivious_sum import miner as miner_module
from blindbayes_papers.huai2015.oblivious_sum.contributor import enrol, survivors_payload
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups
from blindbayes_papers.huai2015.oblivious_sum.messages import (
    CiphertextsSent,
    CorrectionsSent,
    SurvivorsConfirmed,
    SurvivorsNamed,
    SurvivorsSigned,
)
from blindbayes_papers.huai2015.oblivious_sum.miner import enrol_all
from blindbayes_papers.huai2015.oblivious_sum.session import KeySession, channel, edge_key, max_holders
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousSumSetup

PROTOCOL = registry.load("oblivious_sum")
COINS = Coins.seeded(bytes(range(32)))
BOOK = Codebook("class", ("ill", "well"), (Categorical("colour", ("red", "blue")),), max_rows=10_000)
Vectors = Mapping[str, Any]


def setting_of(names: tuple[str, ...], quorum: int | None, width: int, **grown: Any) -> registry.SumSetup:
    options = {"scheme": "ristretto", "width": width, "keys": "standing" if grown else "pairwise"}
    return registry.SumSetup(names, 2, quorum, bound=1000, options=options, **grown)


def attack(setting: registry.SumSetup, bad: Sequence[str], evil: Any) -> tuple[Any, Vectors]:
    """Run the roles with these contributors, who pool their sessions, and this miner; what it says, and the true vectors."""
    runs = local_runs(PROTOCOL.roster(setting), run_id="run", coins=COINS.derive("identities"))
    rng = np.random.default_rng(1)
    vectors = {name: rng.integers(0, 9, 2).astype(np.uint64) for name in setting.contributors}
    shared: dict[str, KeySession] = {}

    def corrupt(name: str) -> Role[None]:
        terms = ObliviousSumSetup(runs[name], setting)
        scheme = terms.scheme(None)
        shared[name] = session = yield from enrol(terms, scheme, COINS.derive(name))
        key = scheme.total([session.zero_key, session.blind])
        sent = scheme.encrypt([int(word) for word in vectors[name]], key, terms.label(session.digest, "sum"))
        yield Send(MINER, CiphertextsSent(tuple(sent)))

    roles: dict[str, Any] = {
        name: corrupt(name) if name in bad else PROTOCOL.role(runs[name], setting, vectors[name], COINS.derive(name))
        for name in setting.contributors
    }
    roles[MINER] = evil(ObliviousSumSetup(runs[MINER], setting), runs, shared)
    return run_in_memory(roles, check=False).outputs.get(MINER), vectors


def two_sets(victim: str, bad: Sequence[str]) -> Any:
    """A miner that shows everybody to some and everybody but the victim to the others: what it reads of the victim."""

    def evil(terms: ObliviousSumSetup, runs: Mapping[str, Run], shared: Mapping[str, KeySession]) -> Role[list[int]]:
        scheme, names = terms.scheme(None), terms.setting.contributors
        groups, quorum = terms.groups(names), terms.setting.quorum_size
        block = groups.segment_of(victim)
        around, threshold = groups.around(block), terms.threshold(groups, block)
        _, _, digest = yield from enrol_all(terms, scheme, COINS.derive(MINER))
        label = terms.label(digest, "sum")
        sent = yield from receive_all(names, CiphertextsSent)
        honest = [name for name in names if name not in bad and name != victim]
        near, far = [name for name in honest if name in around], [name for name in honest if name not in around]
        parts = [[victim, *near[: threshold - len(bad) - 1]], near[threshold - len(bad) - 1 :][: threshold - len(bad)]]
        rest = [name for name in [*near, *far] if name not in parts[0] + parts[1]]
        found = []
        for part, shown in zip(parts, (names, tuple(name for name in names if name != victim)), strict=True):
            while len(part) < quorum - len(bad):
                part.append(rest.pop())
            for name in part:
                yield Send(name, SurvivorsNamed(shown))
            votes = yield from receive_all(part, SurvivorsSigned)
            payload = survivors_payload(terms, label, shown)
            signed = {name: vote.signature for name, vote in votes.items()}
            signed |= {name: runs[name].signer.sign(payload) for name in bad}  # type: ignore[union-attr]
            for name in part:
                yield Send(name, SurvivorsConfirmed(tuple(signed), tuple(signed.values())))
            answers = yield from receive_all(part, CorrectionsSent)
            shares = {
                name: answer.elements[groups.held_by(name).index(block)]
                for name, answer in answers.items()
                if block in groups.held_by(name)
            }
            for name in bad:
                held = shared[name]._held
                mine = scheme.total(held[owner][0] if owner in shown else -held[owner][1] for owner in groups.blocks[block])
                shares[name] = tuple(scheme.masks(mine, label, 2))
            points = [at + 1 for at, name in enumerate(around) if name in shares][:threshold]
            weights = scheme.weights(points, max_holders(groups))
            pairs = zip(points, weights, strict=True)
            found.append(scheme.multiply([scheme.power(shares[around[point - 1]], weight) for point, weight in pairs]))
        mask = scheme.multiply([found[0], scheme.power(found[1], -1)])
        return scheme.open(scheme.multiply([sent[victim].elements, scheme.power(mask, -1)]))

    return evil


@pytest.mark.parametrize(
    ("size", "quorum", "width"), [(11, 6, 2), (24, 13, 4), pytest.param(96, 49, 16, marks=pytest.mark.slow)]
)
def test_a_coalition_that_can_have_two_sets_signed_is_more_than_anybody_claims_to_bear(
    size: int, quorum: int, width: int
) -> None:
    """2q - n double signers read one chosen vector on a sparse graph, however wide its segments are."""
    names = tuple(f"s{at:03d}" for at in range(size))
    setting = setting_of(names, quorum, width)
    run = local_runs(PROTOCOL.roster(setting), run_id="run", coins=COINS.derive("identities"))[MINER]
    groups, victim = ObliviousSumSetup(run, setting).groups(names), names[size // 2]
    assert not groups.is_complete
    bad = [name for name in groups.around(groups.segment_of(victim)) if name != victim][: 2 * quorum - size]
    read, vectors = attack(setting, bad, two_sets(victim, bad))
    assert read == vectors[victim].tolist()
    claim = registry.coalition_of("oblivious_sum", setting)
    assert claim is not None
    assert claim.active < len(bad)
    assert PROTOCOL.smallest(setting, len(bad), malicious=True).honest == 0
    assert PROTOCOL.smallest(setting, len(bad) - 1, malicious=True).honest == quorum - len(bad) + 1


@pytest.mark.parametrize(("quorum", "refused"), [(49, True), (52, True), (53, False), (64, False)])
def test_noise_is_not_calibrated_to_a_set_of_which_there_can_be_two(quorum: int, refused: bool) -> None:
    """96 sites of which nine may be dishonest: 2q - n - 1 is 1 and 7 at the quorums that are refused, and the next is named."""
    names = [f"s{at:03d}" for at in range(96)]
    study = RowStudy(
        BOOK,
        protocol="oblivious_sum",
        options={"scheme": "ristretto"},
        privacy=Privacy(epsilon=1.0, honest_fraction=0.9),
        limits=Limits(quorum=quorum),
    )
    if refused:
        with pytest.raises(PrivacyError, match="raise the quorum to 53"):
            Sum.make(study, names)
        return
    planned = Sum.make(study, names)
    noise = planned.noise
    assert noise is not None
    assert noise.honest <= quorum - dishonest(96, 0.9)


def shrunk(founders: int, width: int, left: int) -> tuple[registry.SumSetup, Groups]:
    """A roster whose members left, always from the largest segment: the graph stays sparse at a number that starts complete."""
    names, steps = tuple(f"p{at:03d}" for at in range(founders)), []
    groups = Groups(names, width)
    while len(groups.parties) > left:
        leaver = max(groups.segments, key=len)[-1]
        steps.append((leaver, False))
        groups.leave(leaver)
    now = tuple(name for name in names if name in groups.parties)
    assert Groups(now, width).is_complete
    return setting_of(now, None, width, founders=names, steps=tuple(steps)), groups


def parts_of(terms: ObliviousSumSetup, runs: Mapping[str, Run], shared: Mapping[str, KeySession]) -> Role[dict[Any, list[int]]]:
    """A miner that follows the steps, and with two whole segments takes the masks off the sums of those between them."""
    kept: list[Any] = []

    class Kept(miner_module._Keys):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            kept.append(self)

    scheme, names = terms.scheme(None), terms.setting.contributors
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(miner_module, "_Keys", Kept)
        yield from enrol_all(terms, scheme, COINS.derive(MINER))  # with keys that stand nothing is sent
    sent, keys, groups = (yield from receive_all(names, CiphertextsSent)), kept[0], terms.groups(names)
    found = {}
    for at in (1, 3):
        edges = []
        for name in groups.segments[at]:
            public, scope = keys._announced[name].public, keys._scope
            edges.append(
                edge_key(scheme, channel(keys._agreement, public, me=MINER, other=name, scope=scope, roster=keys.digest))
            )
            for other in (other for other in groups.neighbours(name) if other in shared):
                edge = edge_key(scheme, shared[other]._channels[name])
                edges.append(edge if name < other else -edge)
        mask = scheme.masks(scheme.total(edges), terms.label(keys.digest, "sum"), 2)
        product = scheme.multiply([sent[name].elements for name in groups.segments[at]])
        found[tuple(groups.segments[at])] = scheme.open(scheme.multiply([product, scheme.power(mask, -1)]))
    return found


def test_a_graph_that_shrank_with_its_roster_is_reported_as_it_is() -> None:
    """Eight left of twelve stand in four segments of two: two of them with the miner read the sums of the other two."""
    setting, groups = shrunk(12, 2, 8)
    bad = [*groups.segments[0], *groups.segments[2]]
    read, vectors = attack(setting, bad, parts_of)
    assert {part: sum(vectors[name] for name in part).tolist() for part in read} == read
    claim = registry.coalition_of("oblivious_sum", setting)
    assert claim is not None
    assert claim.passive == claim.active == groups.tolerance() == len(bad) - 1
    assert "together with up to 3 contributors" in " ".join(follows_from_sum("oblivious_sum", setting, 8))


@pytest.mark.parametrize("quorum", [None, 7])
def test_the_same_parties_bear_less_on_a_graph_that_shrank(quorum: int | None) -> None:
    setting = replace(shrunk(12, 2, 8)[0], quorum=quorum)
    grown, fresh = (registry.coalition_of("oblivious_sum", each) for each in (setting, replace(setting, founders=(), steps=())))
    assert fresh is not None
    assert grown is not None
    assert (fresh.passive, fresh.active) == ((7, 7) if quorum is None else (6, 5))
    assert (grown.passive, grown.active) == ((3, 3) if quorum is None else (1, 1))


@pytest.mark.parametrize("keys", ["pairwise", "standing"])
def test_places_in_the_roster_that_its_author_chose_do_not_part_the_honest_or_noise_does_not_count_on_it(keys: str) -> None:
    """500 sites of which 50 may be dishonest: whoever wrote the study listed them so that they fill two segments."""
    names = tuple(f"s{at:03d}" for at in range(500))
    setting = registry.SumSetup(names, 2, bound=1000, options={"scheme": "ristretto", "keys": keys}, founders=names)
    listed = Groups(names).segments
    bad, found = [*listed[0], *listed[2]], PROTOCOL.smallest(setting, 50, malicious=True)
    assert len(bad) <= 50
    runs = [Run("0" * 64, f"run {at}", ("*",), "*") for at in range(20)]
    graphs = [ObliviousSumSetup(run, setting).groups(names) for run in runs]
    parted = [sum(set(segment) <= set(bad) for segment in graph.segments) >= 2 for graph in graphs]
    assert any(parted) == (keys == "standing") == (found.honest == 0)


def test_the_policy_of_a_site_asks_what_the_graph_of_the_run_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, _ = shrunk(12, 2, 8)
    parties = tuple(Party(name, f"{at:064x}") for at, name in enumerate((*setting.contributors, "lab"), 1))
    made = RowStudy(BOOK, protocol="oblivious_sum", options=dict(setting.options))
    study = StudyFile.make(made, "x", parties, hosts={MINER: "lab"})
    assert colluders_of(study) == 8
    monkeypatch.setattr(StudyFile, "setting", property(lambda _: setting))
    assert colluders_of(study) == 3
    with pytest.raises(PrivacyError, match="bears 3 colluding sites"):
        require_strength(study, 4, weaker=True)
