"""noisy_histograms through agents: each site pays from its own ledger, the miner alone gets a model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindbayes import NaiveBayes
from blindbayes.errors import ConfigError, PeerLost, PrivacyError
from blindbayes.naive_bayes.load import load
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Privacy, StudyFile
from support.noisy_columns import BOOK, FRAME, HOLDS, office_of, study_of
from support.sites import bounded, paper_policy


def test_each_site_pays_for_its_own_columns_and_the_miner_gets_the_model(tmp_path: Path) -> None:
    async def test() -> None:
        async with office_of(tmp_path) as office:
            study = study_of(office)
            office.net.approve(study, runs=2)
            ended = await office.run(study, by="hospital")
            assert {name: run.text() for name, run in ended.items()} == dict.fromkeys(HOLDS, "done")
            spent = {name: site.home.ledger.balance().spent_epsilon for name, site in office.net.sites.items()}
            assert spent == pytest.approx({"hospital": 1.5, "insurer": 0.5, "office": 0.0})
            run_id = ended["office"].run_id
            releases = {name: site.home.folder / "releases" / run_id for name, site in office.net.sites.items()}
            model = load(releases["office"] / "model.json")
            pooled = NaiveBayes(BOOK).fit(FRAME[list(BOOK.names)], FRAME["class"])
            both = np.mean(model.predict(FRAME[list(BOOK.names)]) == pooled.predict(FRAME[list(BOOK.names)]))
            assert both > 0.9
            counts = model.statistics_.class_counts
            assert counts.tolist() != pooled.statistics_.class_counts.tolist() or not np.array_equal(
                model.statistics_.vector, pooled.statistics_.vector
            )
            for name in ("hospital", "insurer"):
                assert not (releases[name] / "model.json").exists()
                assert "to the miner" in (releases[name] / "statement.md").read_text()
            leaks = json.loads((releases["office"] / "leakage.json").read_text())
            assert "noisy_histograms" in json.dumps(leaks)
            second = await office.run(study, by="insurer")  # a second release costs again, and has other noise
            assert {run.text() for run in second.values()} == {"done"}
            again = load(office.net.sites["office"].home.folder / "releases" / second["office"].run_id / "model.json")
            assert not np.array_equal(again.statistics_.vector, model.statistics_.vector)
            assert office.net.sites["hospital"].home.ledger.balance().spent_epsilon == pytest.approx(3.0)
            with pytest.raises(ConfigError, match="blindbayes predict"):
                office.agents["hospital"].predict(study.sha256, {"model": run_id, "batch": "b", "count": 1})

    bounded(test)


def test_an_agent_that_stops_pays_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with office_of(tmp_path) as office:
            study = study_of(office)
            office.net.approve(study)
            await office.stop("office")  # the miner comes later: the hospital waits with nothing sent
            run = office.agents["hospital"].begin(study.sha256)
            await asyncio.sleep(0.3)
            await office.stop("hospital")
            await office.start("hospital")
            await office.start("office")
            ended = await office.ended(run.run_id)
            for name in HOLDS:
                while run.run_id not in office.agents[name].runs:
                    await asyncio.sleep(0.02)
            ended = await office.ended(run.run_id)
            assert {each.text() for each in ended.values()} == {"done"}
            assert office.net.sites["hospital"].home.ledger.balance().spent_epsilon == pytest.approx(1.5)

    bounded(test)


def test_without_budget_nothing_is_released(tmp_path: Path) -> None:
    async def test() -> None:
        async with office_of(tmp_path, policy=paper_policy(max_epsilon_per_run=20)) as office:
            study = study_of(office, privacy=Privacy(epsilon=15.0))  # the hospital's part is 11.25, its ledger holds 10
            office.net.approve(study)
            ended = await office.run(study, by="office")
            assert isinstance(ended["hospital"].error, PrivacyError)
            assert isinstance(ended["office"].error, PeerLost)
            assert not (office.net.sites["office"].home.folder / "releases").exists()
            dear = study_of(office, privacy=Privacy(epsilon=21.0))
            office.net.approve(dear)
            with pytest.raises(PrivacyError, match="at most 20"):
                office.agents["hospital"].begin(dear.sha256)

    bounded(test)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"privacy": Privacy()}, "needs epsilon"),
        ({"hosts": {}}, "who hosts the role 'miner'"),
        ({"hosts": {"miner": "office", "server": "office"}}, "no role 'server' to host"),
        ({"columns": Holdings(HOLDS, ("hospital",))}, "insurer does not know the class"),
        ({"columns": Holdings(HOLDS, ("hospital", "insurer"), 400)}, "takes no rows"),
        ({"options": {"queries": 5}}, "unknown protocol option"),
        ({"privacy": Privacy(epsilon=1.0, delta=1e-6)}, "purely epsilon-private"),
        ({"columns": Holdings({**HOLDS, "insurer": ()}, ("hospital", "insurer"))}, "held by no party"),
    ],
)
def test_a_study_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    office = office_of(tmp_path)
    with pytest.raises((ConfigError, PrivacyError), match=message):
        study_of(office, **change)


def test_a_study_survives_its_file(tmp_path: Path) -> None:
    study = study_of(office_of(tmp_path))
    again = StudyFile.from_text(study.to_toml())
    assert again == study
    assert again.roles == ("hospital", "insurer", "miner")
    assert again.hosts == {"miner": "office"}
