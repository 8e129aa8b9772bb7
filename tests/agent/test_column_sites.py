"""Studies over columns between operating-system processes, over mutual TLS: equal to pooled training, and through kill -9."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from blindbayes import NaiveBayes
from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import PeerLost, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.simulation.models import JoinedModel, JointModel
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import Loopback, open_policy
from support.column_sites import Split, classes, joined, shares
from support.oracles import near_tie

EASY = open_policy(max_runs_per_day=1000, min_cell=0)
CANARIES = ("4711.0815", "Zaphod-Beeblebrox-4711")


def wdbc() -> Split:
    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    frame = frame.assign(diagnosis=np.where(data.target == 1, "benign", "malignant"))
    names = [name for name in frame.columns if name != "diagnosis"]
    return Split(frame, "diagnosis", {"hospital": tuple(names[:15]), "insurer": tuple(names[15:])}, ("hospital",))


@pytest.fixture(scope="module")
def split() -> Split:
    return wdbc()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, split: Split) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("net")
    with Loopback(folder / "sites", split.write(folder / "rows"), policy=EASY) as sites:
        yield sites


@pytest.fixture(autouse=True)
def all_running(net: Loopback) -> Iterator[None]:
    """Whatever a test did to the processes, the next one finds them running; none is left over."""
    yield
    for site in net.sites.values():
        if site.process is None or site.process.poll() is not None:
            site.stop()
            site.start()


@pytest.fixture(scope="module")
def trained(net: Loopback, split: Split) -> tuple[StudyFile, str]:
    """One training run that several tests ask."""
    study = split.study(net, options={"queries": 5_000})
    net.approve(study)
    ended = net.run(study)
    assert {name: each["state"] for name, each in ended.items()} == dict.fromkeys(split.holds, "done"), ended
    return study, Path(ended["hospital"]["release"]).name


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.001)
    raise AssertionError("did not happen in time")


def states(ended: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: each["state"] for name, each in ended.items()}


def test_raw_breast_cancer_data_train_to_shares_of_the_pooled_statistics(
    net: Loopback, split: Split, trained: tuple[StudyFile, str]
) -> None:
    assert joined(net, trained[1]).statistics() == split.pooled().statistics_
    for site in net.sites.values():
        facts = json.loads((site.home.folder / "releases" / trained[1] / "run.json").read_text())
        assert facts["study"] == trained[0].sha256
        leaks = json.loads((site.home.folder / "releases" / trained[1] / "leakage.json").read_text())
        assert "opened" in json.dumps(leaks)
        assert not list((site.home.folder / "releases").rglob("*.share"))


def test_predictions_between_processes_equal_pooled_ones(
    net: Loopback, split: Split, trained: tuple[StudyFile, str], tmp_path: Path
) -> None:
    study, model = trained
    before = shares(net, model)["insurer"].spent
    asked = split.ask(tmp_path, split.frame)
    assert states(net.predict(study, model, "all of them", asked)) == dict.fromkeys(split.holds, "done")
    expected = split.pooled().predict(split.frame[split.features])
    for name in split.holds:
        found = classes(net, prediction_run(study.sha256, model, "all of them"), name)
        assert found["diagnosis"].tolist() == expected.tolist()
    assert {share.spent - before for share in shares(net, model).values()} == {len(split.frame)}
    again = net.predict(study, model, "all of them", asked)
    assert all("another name" in each["message"] for each in again.values())


def test_processes_refuse_when_the_budget_is_used_up(net: Loopback, split: Split, tmp_path: Path) -> None:
    study = split.study(net, options={"queries": 30}, title="few")
    net.approve(study)
    model = Path(net.run(study)["hospital"]["release"]).name
    net.predict(study, model, "one", split.ask(tmp_path, split.frame[:30]))
    ended = net.predict(study, model, "two", split.ask(tmp_path, split.frame[:1]))
    assert {each["error"] for each in ended.values()} == {PrivacyError.__name__}
    run_id = prediction_run(study.sha256, model, "two")
    assert not any((site.home.folder / "releases" / run_id).exists() for site in net.sites.values())
    assert {share.spent for share in shares(net, model).values()} == {30}


@pytest.mark.parametrize("who", ["hospital", pytest.param("insurer", marks=pytest.mark.slow)])
def test_a_process_killed_in_training_goes_on_to_the_same_sums(net: Loopback, split: Split, who: str) -> None:
    study = split.study(net, title=f"killed {who}", deadlines=Deadlines(step=60, join=60, run=300))
    net.approve(study)
    run_id = net.sites["hospital"].operator.call("POST", "/runs", {"study": study.sha256})["run"]
    journal = net.sites[who].home.folder / "runs" / run_id / who / "journal"
    until(lambda: journal.exists() and journal.stat().st_size > 20_000)
    net.sites[who].kill(signal.SIGKILL)
    assert net.sites[who].home.runs.outcome(run_id) is None, "it was done before it was killed"
    net.sites[who].start()
    ended = net.follow(run_id)
    assert states(ended) == dict.fromkeys(split.holds, "done"), [each["text"] for each in ended.values()]
    assert joined(net, run_id).statistics() == split.pooled().statistics_


@pytest.mark.parametrize("who", ["insurer", pytest.param("hospital", marks=pytest.mark.slow)])
def test_a_process_killed_in_a_prediction_goes_on_to_the_same_classes_and_pays_once(
    net: Loopback, split: Split, trained: tuple[StudyFile, str], tmp_path: Path, who: str
) -> None:
    study, model = trained
    before = {name: share.spent for name, share in shares(net, model).items()}
    rows = pd.concat([split.frame] * 2)
    for name, fields in split.ask(tmp_path, rows).items():
        asked = {"study": study.sha256, "model": model, "batch": f"killed {who}", **fields}
        run_id = net.sites[name].operator.call("POST", "/predictions", asked)["run"]
    spent = net.sites[who].home.folder / "shares" / f"{model}.share.spent"
    until(lambda: run_id in (spent.read_text() if spent.exists() else ""))
    net.sites[who].kill(signal.SIGKILL)
    assert net.sites[who].home.runs.outcome(run_id) is None, "it was done before it was killed"
    net.sites[who].start()
    ended = net.follow(run_id)
    assert states(ended) == dict.fromkeys(split.holds, "done"), [each["text"] for each in ended.values()]
    assert {name: share.spent - before[name] for name, share in shares(net, model).items()} == dict.fromkeys(
        split.holds, len(rows)
    )
    expected = split.pooled().predict(rows[split.features])
    for name in split.holds:
        assert classes(net, run_id, name)["diagnosis"].tolist() == expected.tolist()


def test_an_unapproved_study_gets_no_answer_and_the_asker_an_error(net: Loopback, split: Split) -> None:
    study = split.study(net, title="unapproved", deadlines=Deadlines(step=1, join=1, run=20))
    net.sites["hospital"].home.approvals.approve(study)
    asker = net.sites["hospital"].operator
    ended = asker.follow(asker.start("/runs", {"study": study.sha256}))
    assert ended["error"] == PeerLost.__name__
    assert ended["party"] == "insurer"
    assert {"study": study.sha256, "by": "hospital"} in net.sites["insurer"].operator.call("GET", "/status")["proposed"]


def test_values_of_rows_stand_in_no_file_but_the_owners_own(tmp_path: Path) -> None:
    """Canaries: a number and a category of one party, looked for in everything that the other party's site keeps."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "income": [*rng.uniform(1000, 9000, 39).round(4), float(CANARIES[0])],
            "name": [*rng.choice(["Arthur", "Ford"], 39), CANARIES[1]],
            "age": rng.integers(20, 90, 40),
            "class": rng.choice(["a", "b"], 40),
        }
    )
    split = Split(frame, "class", {"bank": ("income", "name"), "shop": ("age",)}, ("shop",))
    # The codebook is public and names every category: so the category is looked for in what the agents write, not in studies.
    with Loopback(tmp_path / "sites", split.write(tmp_path / "rows"), policy=EASY) as net:
        study = split.study(net, reveal_to="shop")
        net.approve(study)
        model = Path(net.run(study)["bank"]["release"]).name
        asked = split.ask(tmp_path, frame[-3:], "canary")
        assert states(net.predict(study, model, "m", asked)) == {"bank": "done", "shop": "done"}
    run_id = prediction_run(study.sha256, model, "m")
    assert not (net.sites["bank"].home.folder / "releases" / run_id / "classes.csv").exists()
    looked = 0
    for name, site in net.sites.items():
        for path in site.home.folder.rglob("*"):
            if not path.is_file() or path.name.endswith((".toml", ".share")):
                continue
            looked += 1
            raw = path.read_bytes()
            for canary in CANARIES:
                assert canary.encode() not in raw, f"{name}: {path.name}"
            assert np.float64(CANARIES[0]).tobytes() not in raw, f"{name}: {path.name}"
    assert looked > 20
    other = ModelShare.load(net.sites["shop"].home.folder / "shares" / f"{model}.share")
    assert set(other.tables) == {"bank"}


# -- three parties, and the papers' data ------------------------------------------------------------------------------------


def run_through(folder: Path, split: Split, test: pd.DataFrame, **fields: Any) -> None:
    with Loopback(folder / "sites", split.write(folder / "rows"), policy=EASY) as net:
        study = split.study(net, **fields)
        net.approve(study)
        model = Path(net.run(study)[next(iter(split.holds))]["release"]).name
        pooled = split.pooled()
        assert joined(net, model).statistics() == pooled.statistics_
        assert states(net.predict(study, model, "m", split.ask(folder, test))) == dict.fromkeys(split.holds, "done")
        whole: JointModel = joined(net, model)
        scores = pooled.predict_joint_log_proba(test[split.features])
        for name in split.holds:
            found = classes(net, prediction_run(study.sha256, model, "m"), name)[split.target].astype(str).to_numpy()
            wrong = found != pooled.predict(test[split.features])
            assert not (wrong & ~near_tie(whole.columns.plan, scores)).any()


@pytest.mark.slow
def test_three_processes_share_a_model_of_car(tmp_path: Path, dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("car"), keep_default_na=False)
    names = [name for name in frame.columns if name != "class"]
    holds = {"maker": tuple(names[:2]), "dealer": tuple(names[2:4]), "club": tuple(names[4:])}
    run_through(tmp_path, Split(frame, "class", holds, ("dealer",)), frame[::7])


@pytest.mark.slow
def test_mushroom_with_missing_values_between_processes(tmp_path: Path, dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("mushroom"), keep_default_na=False)
    names = [name for name in frame.columns if name != "class"]
    holds = {"left": tuple(names[:11]), "right": tuple(names[11:])}
    run_through(tmp_path, Split(frame, "class", holds, ("left",), ("?",)), frame)


@pytest.mark.slow
def test_three_processes_compare_together(tmp_path: Path, dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("iris"), keep_default_na=False)
    names = [name for name in frame.columns if name != "class"]
    holds = {"a": tuple(names[:1]), "b": tuple(names[1:3]), "c": tuple(names[3:])}
    run_through(tmp_path, Split(frame, "class", holds, ("b",)), frame, options={"queries": 1000, "compare_all": True})


@pytest.mark.slow
@pytest.mark.parametrize("who", ["bank", "telecom"])
def test_rows_matched_by_an_identifier_survive_a_kill(tmp_path: Path, who: str) -> None:
    rng = np.random.default_rng(5)
    label = rng.integers(0, 2, 3000)
    frame = pd.DataFrame(
        {
            "id": [f"p{at:05}" for at in range(3000)],
            "income": np.clip(np.rint(rng.normal(40 + 15 * label, 10)), 0, 100),
            "minutes": np.clip(np.rint(rng.normal(80 + 30 * label, 20)), 0, 200),
            "class": np.array(["bad", "good"])[label],
        }
    )
    book = Codebook("class", ("bad", "good"), (Numeric("income", 0, 100), Numeric("minutes", 0, 200)), variance_floor=0.25)
    frame[:2000][["id", "income", "class"]].to_csv(tmp_path / "bank.csv", index=False)
    frame[1000:][["id", "minutes"]].sample(frac=1, random_state=1).to_csv(tmp_path / "telecom.csv", index=False)
    rows = {name: str(tmp_path / f"{name}.csv") for name in ("bank", "telecom")}
    with Loopback(tmp_path / "sites", rows, policy=EASY) as net:
        study = net.make_study(
            book,
            kind="join",
            key=("id",),
            duplicates="first",
            columns=Holdings({"bank": ("income",), "telecom": ("minutes",)}, ("bank",)),
            options={"bounds": {"bank": 4096, "telecom": 4096}, "queries": 10_000, "min_overlap": 10},
            deadlines=Deadlines(step=60, join=60, run=300),
        )
        net.approve(study)
        run_id = net.sites["bank"].operator.call("POST", "/runs", {"study": study.sha256})["run"]
        journal = net.sites[who].home.folder / "runs" / run_id / who / "journal"
        until(lambda: journal.exists() and journal.stat().st_size > 100_000)
        net.sites[who].kill(signal.SIGKILL)
        assert net.sites[who].home.runs.outcome(run_id) is None, "it was done before it was killed"
        net.sites[who].start()
        ended = net.follow(run_id)
        assert states(ended) == {"bank": "done", "telecom": "done"}, [each["text"] for each in ended.values()]
        files = {name: site.home.folder / "shares" / f"{run_id}.share" for name, site in net.sites.items()}
        both = frame[1000:2000]
        pooled = NaiveBayes(book).fit(both[["income", "minutes"]], both["class"])
        assert JoinedModel.load(files).statistics().by_name()["sums"] == pooled.statistics_.by_name()["sums"]
        asked = {name: {"rows": path, "to": "bank", "keep": ["id"]} for name, path in rows.items()}
        asked["telecom"].pop("keep")
        assert states(net.predict(study, run_id, "all", asked)) == {"bank": "done", "telecom": "done"}
        found = classes(net, prediction_run(study.sha256, run_id, "all"), "bank").set_index("id")["class"]
        assert found[both["id"]].tolist() == pooled.predict(both[["income", "minutes"]]).tolist()


def test_processes_open_totals_of_a_labelled_batch_and_no_class(
    net: Loopback, split: Split, trained: tuple[StudyFile, str], tmp_path: Path
) -> None:
    study, model = trained
    rows = split.frame.sample(60, random_state=3)
    asked = split.ask(tmp_path, rows, "evaluated")
    rows[[*split.holds["hospital"], split.target]].to_csv(asked["hospital"]["rows"], index=False)
    asked = {name: {**fields, "evaluate": True} for name, fields in asked.items()}
    ended = net.predict(study, model, "evaluated", asked)
    assert {each["state"] for each in ended.values()} == {"done"}, ended
    predicted = joined(net, model).combine().predict(rows[split.features])
    labels = list(split.book.classes)
    expected = [[int(((rows[split.target] == i) & (predicted == j)).sum()) for j in labels] for i in labels]
    for name, each in ended.items():
        release = Path(each["release"])
        assert json.loads((release / "evaluation.json").read_text())["confusion"] == expected, name
        assert not (release / "classes.csv").exists()


def test_three_processes_open_the_totals_of_combined_shares(tmp_path: Path) -> None:
    frame = wdbc().frame
    names = [name for name in frame.columns if name != "diagnosis"]
    holds = {"registry": (), "hospital": tuple(names[:4]), "insurer": tuple(names[4:8])}
    split = Split(frame[[*names[:8], "diagnosis"]], "diagnosis", holds, ("registry",))
    with Loopback(tmp_path / "sites", split.write(tmp_path / "rows"), policy=EASY) as net:
        study = split.study(net)
        net.approve(study)
        ended = net.run(study)
        model = Path(ended["hospital"]["release"]).name
        rows = split.frame.sample(40, random_state=4)
        asked = split.ask(tmp_path, rows)
        rows[[split.target]].to_csv(tmp_path / "classes.csv", index=False)
        asked["registry"] = {"rows": str(tmp_path / "classes.csv")}
        ended = net.predict(study, model, "batch", {name: {**each, "evaluate": True} for name, each in asked.items()})
        assert {each["state"] for each in ended.values()} == {"done"}, ended
        predicted = joined(net, model).combine().predict(rows[split.features])
    labels = list(split.book.classes)
    expected = [[int(((rows[split.target] == i) & (predicted == j)).sum()) for j in labels] for i in labels]
    for each in ended.values():
        assert json.loads((Path(each["release"]) / "evaluation.json").read_text())["confusion"] == expected
