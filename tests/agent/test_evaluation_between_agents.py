"""Evaluation between agents: the pooled figures, by one more approved exact sum over the same sites."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

from blindbayes import Estimation, Limits, Privacy, load
from blindbayes.agent.agent import Agent
from blindbayes.agent.runs.context import FolderSite, work_of
from blindbayes.agent.runs.folders import VALIDATION
from blindbayes.agent.runs.release import check_release
from blindbayes.agent.runs.run import NotNow
from blindbayes.agent.store.tables import Tables
from blindbayes.data.split import Split, split_rows
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.study.fields import Candidate
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.tasks.evaluation import EvaluationTask
from blindbayes.testing.loopback import open_policy
from support.hub import MemoryHub
from support.sites import BOOK, Gate, Office, bounded

NAMES = ("north", "south", "west")


def tables(folder: Path, rows: int = 150) -> dict[str, str | None]:
    generator = np.random.default_rng(3)
    sources: dict[str, str | None] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        ill = generator.random(rows) < 0.4
        age = np.round(np.clip(generator.normal(np.where(ill, 70, 45), 15), 0, 120), 3).astype(int)
        colour = np.where(generator.random(rows) < 0.5, np.where(ill, "red", "blue"), "green")
        pd.DataFrame({"class": np.where(ill, "ill", "well"), "colour": colour, "age": age}).to_csv(
            folder / f"{name}.csv", index=False
        )
        sources[name] = str(folder / f"{name}.csv")
    return sources


def make(office: Office, held_out: float = 0.3, **fields: Any) -> StudyFile:
    settings: dict[str, Any] = {
        "estimation": Estimation(held_out=held_out),
        "deadlines": Deadlines(step=20, join=20, run=100),
        **fields,
    }
    return office.net.make_study(BOOK, **settings)


def held_out_rows(office: Office, study: StudyFile, sources: dict[str, str | None]) -> pd.DataFrame:
    parts = []
    for name in NAMES:
        site = office.net.sites[name]
        key = FolderSite(site.home, site.identity, study).split_key
        frame = pd.read_csv(str(sources[name]))
        parts.append(frame.iloc[split_rows(frame, BOOK, Split(0.3, True, key))])
    return pd.concat(parts)


def release_of(office: Office, name: str, run_id: str) -> Path:
    return office.net.sites[name].home.folder / "releases" / run_id


def test_agents_open_the_pooled_evaluation_of_rows_that_never_trained(tmp_path: Path) -> None:
    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources) as office:
            study = make(office)
            office.net.approve(study, runs=2)
            trained = await office.run(study)
            assert all(run.error is None for run in trained.values()), [run.error for run in trained.values()]
            training_run = next(iter(trained.values())).run_id
            begun = office.agents["south"].evaluate(study.sha256)
            await begun.done.wait()
            runs = await office.ended(begun.run_id)
            assert set(runs) == set(NAMES)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]

            rows = held_out_rows(office, study, sources)
            model = load(release_of(office, "north", training_run) / "model.json")
            assert json.loads((release_of(office, "north", training_run) / "statement.json").read_text())["rows"] == (
                3 * 150 - len(rows)
            )
            predicted = model.predict(rows[["colour", "age"]])
            scores = model.predict_proba(rows[["colour", "age"]])[:, 0]
            for name in NAMES:
                folder = release_of(office, name, begun.run_id)
                figures = json.loads((folder / "evaluation.json").read_text())["figures"]
                assert figures["rows"] == len(rows)
                assert abs(figures["accuracy"] - metrics.accuracy_score(rows["class"], predicted)) < 1e-12
                auc = figures["classes"]["ill"]["auc"]
                assert auc["low"] <= metrics.roc_auc_score(rows["class"] == "ill", scores) <= auc["high"]
                assert "## How good it is" in (folder / "model_card.md").read_text()
                files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
                keys = {each: office.net.sites[each].identity.card.identity for each in NAMES}
                assert check_release(files, keys)[0].sha256 == study.sha256
            computed = [e for e in office.net.sites["north"].home.audit.where("event", "computing") if e["exact"]]
            assert [entry["run"] for entry in computed] == [training_run, begun.run_id]
            assert computed[0]["rows"] == computed[1]["rows"]
            assert computed[0]["codebook"] == BOOK.sha256 != computed[1]["codebook"]
            assert computed[1]["quorum"] == len(NAMES)

            with pytest.raises(PrivacyError, match="used up"):
                office.agents["south"].evaluate(study.sha256)

    bounded(scenario)


def test_agents_refuse_what_cannot_be_evaluated(tmp_path: Path) -> None:
    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources) as office:
            north = office.agents["north"]
            study, whole = make(office), make(office, held_out=0.0)
            with pytest.raises(PrivacyError, match="approve"):
                north.evaluate(study.sha256)
            for each in (study, whole):
                office.net.approve(each, runs=3)
            with pytest.raises(ConfigError, match="has no folds"):
                north.evaluate(study.sha256, folds=True)
            with pytest.raises(ConfigError, match="holds out no rows"):
                north.evaluate(whole.sha256)
            with pytest.raises(ConfigError, match="train first"):
                north.evaluate(study.sha256)
            with pytest.raises(ConfigError, match="learned no total"):
                north.evaluate(study.sha256, "ab" * 16)

    bounded(scenario)


@pytest.mark.parametrize("epsilon", [None, 1.0], ids=["exact", "noisy"])
def test_agents_evaluate_and_cross_validate_with_noise_and_without(tmp_path: Path, epsilon: float | None) -> None:
    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources) as office:
            estimation = Estimation(held_out=0.3, folds=3, candidates=(Candidate(), Candidate(alpha=20.0)))
            study = make(office, estimation=estimation, privacy=Privacy(epsilon=epsilon))
            office.net.approve(study, runs=3)
            trained = await office.run(study)
            assert all(run.error is None for run in trained.values()), [run.error for run in trained.values()]
            begun = office.agents["south"].evaluate(study.sha256)
            await begun.done.wait()
            runs = await office.ended(begun.run_id)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]
            folder = release_of(office, "north", begun.run_id)
            assert ("noise_intervals" in json.loads((folder / "evaluation.json").read_text())["figures"]) == (
                epsilon is not None
            )
            parent = release_of(office, "north", next(iter(trained.values())).run_id) / "model.json"
            assert load(folder / "recalibrated.json").parent_ == hashlib.sha256(parent.read_bytes()).hexdigest()

            folds = office.agents["west"].evaluate(study.sha256, folds=True)
            await folds.done.wait()
            runs = await office.ended(folds.run_id)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]
            files = [(release_of(office, name, folds.run_id) / "cross_validation.json").read_bytes() for name in NAMES]
            assert files[0] == files[1] == files[2]
            assert len(json.loads(files[0])["candidates"]) == 2
            spent = office.net.sites["north"].home.ledger.balance().spent_epsilon
            assert spent == pytest.approx(3 * epsilon if epsilon else 0.0)

    bounded(scenario)


@pytest.mark.parametrize("epsilon", [None, 1.0], ids=["exact", "noisy"])
def test_both_sums_of_a_cross_validation_are_of_the_same_rows(
    tmp_path: Path, epsilon: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other rows after a crash, in the same folds, would meet the noise and the masks that were used before."""

    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources) as office:
            study = make(office, estimation=Estimation(folds=3), privacy=Privacy(epsilon=epsilon))
            site = office.net.sites["north"]

            def begin() -> Any:
                task = work_of(site.home, site.identity, "ab" * (VALIDATION // 2), study).task
                task.read()
                return task

            before = begin()
            assert begin().digest("north") == before.digest("north")
            source = Path(str(sources["north"]))
            source.write_text(source.read_text() + source.read_text().splitlines()[1] + "\n")
            with pytest.raises(DataError, match="rows changed"):
                before.evaluate([], before.fold(0))
            first = begin()
            monkeypatch.setattr(Tables, "digest", lambda *_: "cd" * 32)  # other rows with the same statistics
            assert begin().digest("north") != first.digest("north")

    bounded(scenario)


def test_a_site_with_too_few_held_out_rows_refuses(tmp_path: Path) -> None:
    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources, policy=open_policy(min_rows=80, min_cell=0)) as office:
            study = make(office, limits=Limits())
            office.net.approve(study, runs=2)
            trained = await office.run(study)
            assert all(run.error is None for run in trained.values())
            begun = office.agents["north"].evaluate(study.sha256)
            await begun.done.wait()
            assert isinstance(begun.error, PrivacyError)

    bounded(scenario)


def test_changed_rows_are_not_evaluated(tmp_path: Path) -> None:
    """The one-table rules hold for the second exact sum as for any other."""

    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources) as office:
            study = make(office)
            office.net.approve(study, runs=2)
            await office.run(study)
            with Path(str(sources["north"])).open("a") as file:
                file.write("ill,red,50\n")
            begun = office.agents["north"].evaluate(study.sha256)
            await begun.done.wait()
            assert isinstance(begun.error, PrivacyError)
            assert "changed since its last exact sum" in str(begun.error)

    bounded(scenario)


def test_an_evaluation_waits_for_a_site_that_still_stores_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither an offer nor a request of a site's own staff fails because the total is not on disk yet."""
    may_write, write = {name: asyncio.Event() for name in NAMES}, Agent._write

    async def slow_write(agent: Agent, *words: Any) -> None:
        await may_write[agent.name].wait()
        await write(agent, *words)

    async def scenario() -> None:
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "tables")) as office:
            study = make(office)
            office.net.approve(study, runs=2)
            monkeypatch.setattr(Agent, "_write", slow_write)
            may_write["south"].set()
            trained = office.agents["south"].begin(study.sha256)
            await trained.done.wait()
            north, west = office.agents["north"], office.agents["west"]
            assert north.unfinished(study.sha256, trained.run_id) is not None
            with pytest.raises(ConfigError, match="train first"):
                north.evaluate(study.sha256)
            asked = asyncio.create_task(north.until_written(study.sha256))  # as the console asks before it evaluates

            begun = office.agents["south"].evaluate(study.sha256)
            while not west.counters["offers_held"] or not north.counters["offers_held"]:
                await asyncio.sleep(0.01)
            assert begun.run_id not in west.runs
            assert not asked.done()
            for name in ("north", "west"):
                may_write[name].set()
            await asked
            assert north.home.increments.has_total(study.sha256, trained.run_id)
            await begun.done.wait()
            runs = await office.ended(begun.run_id)
            assert {name: run.state for name, run in runs.items()} == dict.fromkeys(NAMES, "done")
            assert not [entry for name in NAMES for entry in office.net.sites[name].home.audit.where("event", "refused")]

    bounded(scenario)


def test_staff_who_ask_too_early_are_asked_to_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "tables")) as office:
            study, north = make(office), office.agents["north"]
            office.net.approve(study, runs=2)
            monkeypatch.setattr("blindbayes.agent.agent._WRITTEN_SECONDS", 0)
            trained = north.begin(study.sha256)
            for earlier in (None, trained.run_id):
                with pytest.raises(NotNow, match="ask again"):
                    await north.until_written(study.sha256, earlier)
            await trained.done.wait()
            again = north.begin(study.sha256)
            await north.until_written(study.sha256)  # the model that is stored can be evaluated meanwhile
            with pytest.raises(NotNow, match="ask again"):
                await north.until_written(study.sha256, again.run_id)
            await again.done.wait()
            await north.until_written(study.sha256, again.run_id)

    bounded(scenario)


@pytest.mark.parametrize("messages", [0, 1])
def test_a_site_that_crashes_goes_on_with_the_same_evaluation(tmp_path: Path, messages: int) -> None:
    async def scenario() -> None:
        hub = MemoryHub()
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "tables"), hub=hub) as office:
            study = make(office, deadlines=Deadlines(step=8, join=8, run=30))
            office.net.approve(study, runs=2)
            await office.run(study)
            gate = hub.alter = Gate("south", messages)
            run_id = office.agents["north"].evaluate(study.sha256).run_id
            await gate.shut.wait()
            await office.stop("south")
            hub.alter = None
            await office.start("south")
            runs = await office.ended(run_id)
            assert {name: run.state for name, run in runs.items()} == dict.fromkeys(NAMES, "done")
            assert len({(release_of(office, name, run_id) / "evaluation.json").read_text() for name in NAMES}) == 1
            computed = office.net.sites["south"].home.audit.where("event", "computing")
            assert [entry["run"] for entry in computed].count(run_id) == 1

    bounded(scenario)


def test_nothing_is_opened_without_one_of_the_sites(tmp_path: Path) -> None:
    """A sum over fewer sites than the training would show the difference, although the quorum of the study allows three."""
    names = ("north", "south", "west", "east")

    async def scenario() -> None:
        async with Office(tmp_path, names) as office:
            study = make(office, deadlines=Deadlines(step=4, join=4, run=20))
            assert study.setting.quorum_size == 3
            office.net.approve(study, runs=2)
            trained = await office.run(study)
            assert {run.state for run in trained.values()} == {"done"}
            await office.stop("east")
            begun = office.agents["north"].evaluate(study.sha256)
            await begun.done.wait()
            assert begun.error is not None
            assert not (release_of(office, "north", begun.run_id) / "evaluation.json").exists()

    bounded(scenario)


def test_an_evaluation_is_judged_by_what_it_opens_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that opens more than the training of its study must not pass as a training."""

    async def scenario() -> None:
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "tables")) as office:
            study = make(office)
            office.net.approve(study, runs=2)
            await office.run(study)
            own = EvaluationTask.disclosure.func

            def disclosed(task: EvaluationTask) -> Disclosure:
                """Return more at one site alone: the refusal of another could end its run first, by the luck of threads."""
                return dataclasses.replace(own(task), site_figures="each") if task.site.name == "north" else own(task)

            wider = property(disclosed)
            monkeypatch.setattr(EvaluationTask, "disclosure", wider)
            begun = office.agents["north"].evaluate(study.sha256)
            await begun.done.wait()
            assert isinstance(begun.error, PrivacyError)
            computed = office.net.sites["north"].home.audit.where("event", "computing")
            assert begun.run_id not in [entry["run"] for entry in computed]

    bounded(scenario)


def test_agents_open_the_spread_of_sites_whose_policies_allow_it(tmp_path: Path) -> None:
    names = (*NAMES, "east", "lakes", "islands")

    async def scenario() -> None:
        policy = open_policy(min_cell=0, site_figures="spread")
        async with Office(tmp_path, names, policy=policy) as office:
            study = make(office, held_out=0.5, estimation=Estimation(held_out=0.5, site_figures="spread"))
            office.net.approve(study, runs=2)
            await office.run(study)
            begun = office.agents["north"].evaluate(study.sha256)
            await begun.done.wait()
            runs = await office.ended(begun.run_id)
            assert [run.error for run in runs.values()] == [None] * 6
            stored = json.loads((release_of(office, "west", begun.run_id) / "evaluation.json").read_text())
            assert stored["sites"]["sites"] == 6
            assert "each" not in stored["sites"]
            named = make(office, estimation=Estimation(held_out=0.5, site_figures="each"))
            office.net.approve(named, runs=1)
            with pytest.raises(PrivacyError, match="figures of single sites"):
                office.agents["north"].begin(named.sha256)

    bounded(scenario)
