"""Studies whose rows are matched by an identifier, through agents: training, both ways of scoring, what policy limits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from blindbayes import NaiveBayes
from blindbayes.agent.approvals.summary import require_study
from blindbayes.agent.runs.context import FolderSite
from blindbayes.crypto.psi.cuckoo import bin_count
from blindbayes.errors import ConfigError, DataError, PeerLost, PeerProtocolError, PrivacyError
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.simulation.models import JoinedModel, LeftJoinedModel
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import open_policy
from support.joined_people import BOOK, HOLDS, people, tables
from support.sites import Office, bounded


def office_of(folder: Path, frames: dict[str, pd.DataFrame], **options: Any) -> Office:
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        frame.to_csv(folder / f"{name}.csv", index=False)
    return Office(folder, tuple(frames), rows={name: str(folder / f"{name}.csv") for name in frames}, **options)


def study_of(office: Office, **options: Any) -> StudyFile:
    given = {"bounds": dict.fromkeys(HOLDS, MIN_BOUND), "queries": 20_000, "min_overlap": 10, **options}
    return office.net.make_study(
        BOOK,
        kind="join",
        key=("id",),
        duplicates="first",
        columns=Holdings(HOLDS, ("bank",)),
        options=given,
        deadlines=Deadlines(step=30, join=30, run=200),
    )


async def train(office: Office, study: StudyFile, runs: int = 1) -> str:
    office.net.approve(study, runs=runs)
    ended = await office.run(study)
    assert {name: run.text() for name, run in ended.items()} == dict.fromkeys(HOLDS, "done")
    return next(iter(ended.values())).run_id


async def predict(office: Office, study: StudyFile, model: str, batch: str, **asked: dict[str, Any]) -> dict[str, Any]:
    runs = {
        name: office.agents[name].predict(study.sha256, {"model": model, "batch": batch, **fields})
        for name, fields in asked.items()
    }
    for run in runs.values():
        await run.done.wait()
    return runs


def loaded(office: Office, model: str, kind: type[JoinedModel] | type[LeftJoinedModel]) -> Any:
    return kind.load({name: site.home.folder / "shares" / f"{model}.share" for name, site in office.net.sites.items()})


def released(office: Office, name: str, run_id: str) -> pd.DataFrame:
    return pd.read_csv(office.net.sites[name].home.folder / "releases" / run_id / "classes.csv", keep_default_na=False)


def test_an_inner_join_is_trained_and_asked_through_agents(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office)
            model = await train(office, study)
            shared = frame[20:45]
            names = list(BOOK.names)
            pooled = NaiveBayes(BOOK).fit(shared[names], shared["class"])
            statistics = loaded(office, model, JoinedModel).statistics()
            assert statistics.class_counts.tolist() == pooled.statistics_.class_counts.tolist()
            assert statistics.by_name()["sums"] == pooled.statistics_.by_name()["sums"]
            # The same instances in one order.
            asked = {}
            for name, held in HOLDS.items():
                frame[list(held)].to_csv(tmp_path / f"{name}-ask.csv", index=False)
                asked[name] = {"rows": str(tmp_path / f"{name}-ask.csv")}
            ended = await predict(office, study, model, "lined up", **asked)
            assert [run.text() for run in ended.values()] == ["done", "done"]
            lined_up = released(office, "telecom", prediction_run(study.sha256, model, "lined up"))
            assert lined_up["class"].tolist() == pooled.predict(frame[names]).tolist()
            # Everybody whom the bank knows, by identifier.
            whole = {name: {"rows": str(tmp_path / f"{name}.csv"), "to": "bank", "keep": ["id"]} for name in HOLDS}
            ended = await predict(office, study, model, "by id", **whole)
            assert [run.text() for run in ended.values()] == ["done", "done"]
            run_id = prediction_run(study.sha256, model, "by id")
            found = released(office, "bank", run_id)
            assert found["id"].tolist() == frame["id"][:45].tolist()
            known = found.set_index("id")["class"][shared["id"]].tolist()
            assert known == pooled.predict(shared[names]).tolist()
            telecom = office.net.sites["telecom"].home.folder / "releases" / run_id
            assert not (telecom / "classes.csv").exists()
            assert "neither whom, nor how many" in (telecom / "statement.md").read_text()
            spent = {site.home.shares.load(model).spent for site in office.net.sites.values()}
            assert spent == {len(frame) + bin_count(MIN_BOUND)}  # what a scorer that deviates could fill
            for site in office.net.sites.values():
                text = (site.home.folder / "releases" / model / "leakage.json").read_text()
                assert set(re.findall(r'"opened": \[\s*([^\]]*?)\s*\]', text)) == {'"enough_overlap"'}
                assert "person-0" not in text

    bounded(test, 120)


def test_a_left_join_is_trained_through_agents(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office, join="left")
            model = await train(office, study)
            statistics = loaded(office, model, LeftJoinedModel).statistics()
            assert statistics.class_counts.sum() == 45
            expected = frame[20:45].groupby("class")["minutes"].count()
            assert statistics.by_name()["n"]["minutes"] == [int(expected[label]) for label in BOOK.classes]
            # How good is it on everybody whom the bank knows? Nobody's class is opened.
            whole = {name: {"rows": str(tmp_path / f"{name}.csv"), "to": "bank"} for name in HOLDS}
            await predict(office, study, model, "by id", **whole)
            found = released(office, "bank", prediction_run(study.sha256, model, "by id"))["class"]
            ended = await predict(
                office, study, model, "any good", **{n: {**each, "evaluate": True} for n, each in whole.items()}
            )
            assert [run.text() for run in ended.values()] == ["done", "done"]
            run_id = prediction_run(study.sha256, model, "any good")
            folders = {name: office.net.sites[name].home.folder / "releases" / run_id for name in HOLDS}
            figures = json.loads((folders["bank"] / "evaluation.json").read_text())
            truth = pd.read_csv(tmp_path / "bank.csv")["class"]
            counts = [[int(((truth == i) & (found == j)).sum()) for j in BOOK.classes] for i in BOOK.classes]
            assert figures["confusion"] == counts
            assert not (folders["telecom"] / "evaluation.json").exists()
            assert not any((folder / "classes.csv").exists() for folder in folders.values())
            opened = set(re.findall(r'"opened": \[\s*([^\]]*?)\s*\]', (folders["bank"] / "leakage.json").read_text()))
            assert opened == {'"class_totals"'}

    bounded(test, 120)


def test_others_learn_totals_of_labelled_instances_once(tmp_path: Path) -> None:
    """The same instances but one would show the class of that one."""
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office, join="left")
            model = await train(office, study)
            texts = []
            for batch, asked in (("all", frame), ("all but one", frame[1:]), ("others bring other columns", frame)):
                requests = {}
                for name, held in HOLDS.items():
                    label = ["class"] if name == "bank" else []
                    path = tmp_path / f"{name} {batch}.csv"
                    asked[[*held, *label]].to_csv(path, index=False)
                    requests[name] = {"rows": str(path), "evaluate": True}
                if texts:
                    del requests["telecom"]  # the bank's site refuses before anything is sent
                ended = await predict(office, study, model, batch, **requests)
                texts.append(ended["bank"].text())
            assert texts[0] == "done"
            assert all("the difference of two may be one instance's class" in text for text in texts[1:]), texts
            spent = office.net.sites["bank"].home.shares.load(model).spent
            assert spent == len(frame)

    bounded(test, 120)


def test_an_evaluation_that_was_read_before_another_one_opened_is_refused_at_its_last_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, real, read = people(), FolderSite.require_totals, set()

    def overlooked_first(site: FolderSite, model: str, run_id: str, *given: Any) -> None:
        if run_id in read:
            real(site, model, run_id, *given)
        read.add(run_id)  # as if each evaluation read its rows before the other one opened

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office, join="left")
            model = await train(office, study)
            monkeypatch.setattr(FolderSite, "require_totals", overlooked_first)
            texts = []
            for batch, asked in (("all", frame), ("all but one", frame[1:])):
                requests = {}
                for name, held in HOLDS.items():
                    path = tmp_path / f"{name} {batch}.csv"
                    asked[[*held, *(["class"] if name == "bank" else [])]].to_csv(path, index=False)
                    requests[name] = {"rows": str(path), "evaluate": True}
                texts.append((await predict(office, study, model, batch, **requests))["bank"].text())
            assert texts[0] == "done"
            assert "the difference of two may be one instance's class" in texts[1]

    bounded(test, 120)


def test_whom_both_have_is_told_only_where_policy_allows_it(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office)
            model = await train(office, study)
            asked = {name: {"rows": str(tmp_path / f"{name}.csv"), "to": "bank", "scope": "shared"} for name in HOLDS}
            run = (await predict(office, study, model, "shared", telecom=asked["telecom"]))["telecom"]
            assert isinstance(run.error, PrivacyError)
            assert "reveal_matches" in str(run.error)
            assert office.net.sites["telecom"].home.shares.load(model).spent == 0
            with pytest.raises(ConfigError, match="--to"):
                office.agents["bank"].predict(study.sha256, {"model": model, "batch": "x", "rows": "a", "scope": "shared"})

    bounded(test, 120)


@pytest.mark.slow
def test_sites_that_ask_for_different_people_are_refused(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office)
            model = await train(office, study)
            asked = {name: {"rows": str(tmp_path / f"{name}.csv"), "to": name} for name in HOLDS}
            ended = await predict(office, study, model, "cross", **asked)
            assert {type(run.error) for run in ended.values()} <= {PeerProtocolError, PeerLost}
            assert PeerProtocolError in {type(run.error) for run in ended.values()}
            assert not any(run.release for run in ended.values())

    bounded(test, 120)


def test_bits_about_the_overlap_are_limited_per_day_and_partner(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        policy = open_policy(min_overlap=0, max_overlap_bits_per_day=1, reveal_matches=True, min_cell=0)
        async with office_of(tmp_path, tables(frame), policy=policy) as office:
            study = study_of(office, min_overlap=10)
            await train(office, study, runs=3)
            again = await office.run(study)
            assert {type(run.error) for run in again.values()} <= {PrivacyError, PeerLost}
            assert any("at most 1 times a day" in str(run.error) for run in again.values())
            assert office.net.sites["bank"].home.history.overlap_bits()[0][1] == study.party("telecom").identity
            # A study of another hash is no way around it, nor one that tells more: who matches.
            for other in (study_of(office, min_overlap=11), study_of(office, reveal="matching")):
                office.net.approve(other)
                assert any("times a day" in str(run.error) for run in (await office.run(other)).values())
            plain = study_of(office, min_overlap=0)
            assert await train(office, plain)

    bounded(test, 120)


@pytest.mark.slow
def test_an_estimate_of_the_overlap_is_paid_from_every_sites_ledger(tmp_path: Path) -> None:
    frame = people()

    async def test() -> None:
        async with office_of(tmp_path, tables(frame)) as office:
            study = study_of(office, overlap_epsilon=0.5)
            model = await train(office, study)
            for site in office.net.sites.values():
                assert site.home.ledger.has_paid(model)
                assert site.home.ledger.balance().spent_epsilon == pytest.approx(0.5)
            dear = study_of(office, overlap_epsilon=11.0)
            office.net.approve(dear)
            with pytest.raises(PrivacyError, match="at most 10"):
                office.agents["bank"].begin(dear.sha256)

    bounded(test, 120)


def test_more_identifiers_than_agreed_send_nothing(tmp_path: Path) -> None:
    frame = people(MIN_BOUND + 30)

    async def test() -> None:
        frames = {"bank": frame[["id", "sector", "income", "class"]], "telecom": frame[:40][["id", "plan", "minutes"]]}
        async with office_of(tmp_path, frames) as office:
            study = study_of(office)
            office.net.approve(study)
            run = office.agents["bank"].begin(study.sha256)
            await run.done.wait()
            assert isinstance(run.error, DataError)
            assert "bound" in str(run.error)

    bounded(test, 60)


def test_a_join_that_could_be_over_one_person_is_refused_by_default(tmp_path: Path) -> None:
    async def test() -> None:
        async with office_of(tmp_path, tables(people())) as office:
            for least in (0, 9):
                with pytest.raises(PrivacyError, match="min_overlap of at least 10"):
                    require_study(open_policy(), study_of(office, min_overlap=least))
            require_study(open_policy(min_cell=0), study_of(office, min_overlap=10))
            require_study(open_policy(min_overlap=0, min_cell=0), study_of(office, min_overlap=0))

    bounded(test, 60)
