"""A peer over columns can send no more than the study's protocol has to say: sites bound every link from public facts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook
from blindbayes.codebook import Categorical, Feature, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes.net.link import Link
from blindbayes.protocols import link_bytes
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores.roles import JoinedScoresSetup
from blindbayes.study.simulation import driver as simulated
from blindbayes.study.tasks.public import setup_of
from support.column_sites import office_of, pair
from support.sites import bounded
from support.studies import make_columns_study

MIXED: tuple[Feature, ...] = (
    Categorical("a", tuple("pqrst")),
    Numeric("x", 0, 50),
    Categorical("b", tuple("uv")),
    Categorical("c", tuple("klmn")),
)
PLAIN: tuple[Feature, ...] = (MIXED[0], *MIXED[2:])


def table(features: tuple[Feature, ...], classes: int, rows: int, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    drawn = {
        each.name: rng.choice(list(each.values), rows) if isinstance(each, Categorical) else rng.integers(0, 51, rows)
        for each in features
    }
    return pd.DataFrame(
        {"id": [f"p{at}" for at in range(rows)], **drawn, "y": rng.choice([str(at) for at in range(classes)], rows)}
    )


FORMS: dict[str, tuple[tuple[Feature, ...], int, int, dict[str, Any]]] = {
    "two": (MIXED, 3, 2, {}),
    "noise": (MIXED, 2, 2, {"epsilon": 6.0}),
    "three, audited": (MIXED, 3, 3, {"options": {"audit_rate": 0.2}}),
    "all compare": (PLAIN, 2, 3, {"options": {"compare_all": True}}),
    "seven classes, noise, audited": (PLAIN, 7, 2, {"epsilon": 9.0, "options": {"audit_rate": 0.1}}),
    "left join": (PLAIN, 2, 2, {"key": "id", "kind": "join", "options": {"join": "left"}}),
    "inner join, audited": (PLAIN, 2, 2, {"key": "id", "kind": "join", "options": {"audit_rate": 0.2, "min_overlap": 5}}),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_honest_parties_send_lies_below_the_bound_and_not_far(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features, classes, parties, fields = FORMS[form]
    book = Codebook("y", tuple(str(at) for at in range(classes)), features, variance_floor=1.0)
    names = [feature.name for feature in features]
    held = {"p0": [*names[:1], "y"], "p1": names[1:]}
    if parties == 3:
        held |= {"p1": names[1:-1], "p2": names[-1:]}
    key = ["id"] if "key" in fields else []
    largest: list[int] = []

    def watched(run: Any) -> Any:
        def running(*given: Any, **named: Any) -> Any:
            outcome = run(*given, **named)
            sent: Counter[tuple[str, str]] = Counter()
            for entry in outcome.transcript.entries:
                sent[entry.sender, entry.to] += entry.size
            largest.append(max(sent.values()))
            return outcome

        return running

    monkeypatch.setattr(simulated, "run_in_memory", watched(simulated.run_in_memory))
    rows = table(features, classes, 300)
    result = make_columns_study(book, **fields).simulate(
        {name: rows[key + own] for name, own in held.items()}, coins=Coins.seeded(bytes(32))
    )
    asked = table(features, classes, 70, seed=2)
    result.model.classify({name: asked[[each for each in own if each != "y"]] for name, own in held.items()})
    public = result.model.shares["p0"].public
    setup = setup_of(public)
    join = setup if isinstance(setup, JoinSetup) else None
    bounds = [
        link_bytes.training(result.model.columns) if join is None else link_bytes.joined_training(join),
        link_bytes.classification(
            result.model.columns, 70, compare_all=bool(fields.get("options", {}).get("compare_all", False))
        ),
    ]
    if join is not None and not fields["options"].get("audit_rate"):
        result.model.score({name: asked[["id", *(each for each in own if each != "y")]] for name, own in held.items()}, to="p0")
        bounds.append(link_bytes.hidden(JoinedScoresSetup(join, "p0")))
    assert len(largest) == len(bounds)
    for sent, bound in zip(largest, bounds, strict=True):
        assert sent <= bound
        assert bound - (1 << 20) <= 40 * sent


def test_a_column_peer_that_floods_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split, real = pair(), Link.post_now
    flooding: list[int] = []

    def more(link: Link, step: str, payload: bytes) -> None:
        real(link, step, payload)
        if link.pair.me == "insurer" and step == "RowsMasked" and not flooding:
            flooding.append(1)
            real(link, "ModelGarbled", bytes(1 << 26))

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            monkeypatch.setattr(Link, "post_now", more)
            office.net.approve(study)
            runs = await office.run(study)
            assert isinstance(runs["hospital"].error, PeerProtocolError)
            assert "more than the study's protocol has to say" in str(runs["hospital"].error)
            assert runs["hospital"].error.party == "insurer"

    bounded(test)
