"""Studies over columns through agents (memory courier): who may learn what, budgets, refusals."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes.disclosure.policy import Policy
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerLost, PeerProtocolError, PrivacyError
from blindbayes.study.file import Deadlines
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import open_policy
from blindbayes.wire import encode
from support.column_sites import HURRY, Split, classes, errors, joined, office_of, pair, predict, shares, small, train, trained
from support.sites import Office, bounded

PARTIES = {
    "two": Split(small(), "class", {"hospital": ("age", "colour"), "insurer": ("weight", "smokes")}, ("hospital",)),
    "class alone": Split(small(), "class", {"hospital": ("age", "colour", "weight", "smokes"), "registry": ()}, ("registry",)),
    "class known to all": Split(
        small(), "class", {"hospital": ("age", "colour"), "insurer": ("weight", "smokes")}, ("hospital", "insurer")
    ),
    "three": Split(
        small(), "class", {"hospital": ("age",), "insurer": ("weight", "smokes"), "lab": ("colour",)}, ("hospital",)
    ),
    "three, two know": Split(
        small(), "class", {"hospital": ("age",), "insurer": ("weight", "smokes"), "lab": ("colour",)}, ("insurer", "lab")
    ),
}


_REST = [(case, reveal) for case in PARTIES for reveal in ("all", "hospital", "other")]
_FIRST = [("two", "all"), ("class alone", "all"), ("three, two know", "hospital")]


@pytest.mark.parametrize(
    ("case", "reveal_to"), [*_FIRST, *(pytest.param(*each, marks=pytest.mark.slow) for each in _REST if each not in _FIRST)]
)
def test_training_and_prediction_equal_pooled_training(tmp_path: Path, case: str, reveal_to: str) -> None:
    split = PARTIES[case]
    reveal_to = list(split.holds)[1] if reveal_to == "other" else reveal_to

    async def test() -> None:
        async with trained(tmp_path, split, reveal_to=reveal_to) as (office, study, model):
            pooled = split.pooled()
            assert joined(office.net, model).statistics() == pooled.statistics_
            asked = split.ask(tmp_path, small(40, seed=3))
            ended = await predict(office, study, model, asked)
            assert errors(ended) == dict.fromkeys(split.holds)
            run_id = prediction_run(study.sha256, model, "monday")
            expected = pooled.predict(small(40, seed=3)[split.features])
            learners = set(split.holds) if reveal_to == "all" else {reveal_to}
            for name in split.holds:
                release = office.net.sites[name].home.folder / "releases" / run_id
                assert (release / "classes.csv").exists() == (name in learners)
                assert (release / "leakage.json").exists()
                assert not list(release.glob("*.share"))
                if name in learners:
                    assert classes(office.net, run_id, name)["class"].tolist() == expected.tolist()
            assert {share.spent for share in shares(office.net, model).values()} == {40}

    bounded(test, 60)


@pytest.mark.parametrize("compare_all", [pytest.param(False, marks=pytest.mark.slow), True])
def test_three_parties_may_compare_together(tmp_path: Path, compare_all: bool) -> None:
    split = PARTIES["three"]

    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 100, "compare_all": compare_all}) as (office, study, model):
            await predict(office, study, model, split.ask(tmp_path, small(25, seed=3)))
            found = classes(office.net, prediction_run(study.sha256, model, "monday"), "lab")
            assert found["class"].tolist() == split.pooled().predict(small(25, seed=3)[split.features]).tolist()

    bounded(test, 60)


def test_training_opens_nothing_and_its_release_holds_no_share(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            for site in office.net.sites.values():
                release = site.home.folder / "releases" / model
                assert '"opened": []' in (release / "leakage.json").read_text()
                assert "Training opened nothing" in (release / "statement.md").read_text()
                own = (site.home.folder / "shares" / f"{model}.share").read_bytes()
                assert all(own not in path.read_bytes() for path in release.iterdir())
                assert (site.home.folder / "shares" / f"{model}.share").stat().st_mode & 0o077 == 0
                assert site.home.shares.all() == [{"run": model, "study": study.sha256, "queries": 10_000, "spent": 0}]

    bounded(test)


def test_batches_are_cut_and_kept_columns_stand_beside_the_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindbayes.study.tasks.classify.BATCH", 16)
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            rows = small(70, seed=4).assign(number=[f"n{at:03}" for at in range(70)])
            asked = split.ask(tmp_path, rows, number="number")
            asked["insurer"]["keep"] = ["number", "smokes"]
            await predict(office, study, model, asked)
            run_id = prediction_run(study.sha256, model, "monday")
            own = classes(office.net, run_id, "insurer")
            assert own.columns.tolist() == ["row", "number", "smokes", "class"]
            assert own["number"].tolist() == rows["number"].tolist()
            assert own["row"].tolist() == list(range(1, 71))
            assert classes(office.net, run_id, "hospital").columns.tolist() == ["row", "class"]
            assert own["class"].tolist() == split.pooled().predict(rows[split.features]).tolist()

    bounded(test)


def test_no_message_holds_a_value_of_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that leaves a role, before it is sealed: canaries of either site, as text, as a number and as their codes."""
    frame = small(60)
    frame.loc[0, ["age", "weight"]] = [47.1, 81.5]
    frame = frame.assign(name=["Ford"] * 59 + ["Zaphod"], ship=["Heart"] * 59 + ["Vogon"])
    split = Split(
        frame, "class", {"hospital": ("age", "colour", "name"), "insurer": ("weight", "smokes", "ship")}, ("hospital",)
    )
    sent: list[bytes] = []

    def keeping(message: Any) -> bytes:
        sent.append(encode(message))
        return sent[-1]

    monkeypatch.setattr("blindbayes.net.driver.encode", keeping)

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            await predict(office, study, model, split.ask(tmp_path, frame[:20]))

    bounded(test)
    whole = b"".join(sent)
    assert len(sent) > 20
    assert len(whole) > 100_000
    words = [text.encode() for text in ("Zaphod", "Vogon", "Heart")]  # shorter ones come up by chance
    words += [np.float64(number).tobytes() for number in (47.1, 81.5)]
    words += [np.array(codes, dtype="<i8").tobytes() for codes in ([471, 815], [815, 471])]
    label = (frame["class"] == "well").to_numpy()
    words += [np.packbits(label[:56], bitorder="little").tobytes(), label[:12].astype("<i8").tobytes()]
    for word in words:
        assert word not in whole


# -- both sides' people, and the budget ------------------------------------------------------------------------------------


def test_nothing_is_classified_before_both_sides_ask_and_a_name_is_used_once(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=Deadlines(step=3, join=3, run=60)) as (office, study, model):
            asked = split.ask(tmp_path, small(10, seed=5))
            run_id = prediction_run(study.sha256, model, "alone")
            alone = (await predict(office, study, model, {"hospital": asked["hospital"]}, "alone"))["hospital"]
            assert isinstance(alone.error, PeerLost)
            assert alone.error.party == "insurer"
            assert run_id not in office.agents["insurer"].runs
            wishes = office.agents["insurer"].show()["pending_predictions"]
            assert wishes == [{"run": run_id, "by": "hospital", "study": study.sha256, "model": model}]
            assert {share.spent for share in shares(office.net, model).values()} == {0}
            # The run has ended at the hospital: the insurer is told so and does not wait for its deadline.
            late = (await predict(office, study, model, {"insurer": asked["insurer"]}, "alone"))["insurer"]
            assert isinstance(late.error, PeerLost)
            assert "was given up by hospital" in str(late.error)
            await predict(office, study, model, asked, "both")
            for name in split.holds:
                with pytest.raises(ConfigError, match="take another name"):
                    office.agents[name].predict(study.sha256, {"model": model, "batch": "both", **asked[name]})
            assert {share.spent for share in shares(office.net, model).values()} == {10}

    bounded(test, 60)


def test_an_exhausted_budget_refuses_at_both_sides_and_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 25}, deadlines=HURRY) as (office, study, model):
            assert errors(await predict(office, study, model, split.ask(tmp_path, small(20, seed=5)), "one")) == {
                "hospital": None,
                "insurer": None,
            }
            ended = await predict(office, study, model, split.ask(tmp_path, small(6, seed=6)), "two")
            assert errors(ended) == dict.fromkeys(split.holds, PrivacyError)
            assert all("query budget" in str(run.error) for run in ended.values())
            # One side that pretends to have more left does not help itself: the other refuses.
            spent = office.net.sites["insurer"].home.folder / "shares" / f"{model}.share.spent"
            spent.write_text("")
            monkeypatch.setattr(
                "blindbayes.disclosure.history.History.classified", lambda *_, **__: 0
            )  # nor does its log count
            ended = await predict(office, study, model, split.ask(tmp_path, small(6, seed=6)), "three")
            assert errors(ended) == {"hospital": PrivacyError, "insurer": PeerLost}
            for batch in ("two", "three"):
                run_id = prediction_run(study.sha256, model, batch)
                assert not any((site.home.folder / "releases" / run_id).exists() for site in office.net.sites.values())
            assert errors(await predict(office, study, model, split.ask(tmp_path, small(5, seed=6)), "four")) == {
                "hospital": None,
                "insurer": None,
            }

    bounded(test, 60)


def test_a_destroyed_share_ends_the_model(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=HURRY) as (office, study, model):
            home = office.net.sites["hospital"].home
            home.shares.destroy(model)
            assert home.shares.all() == []
            assert [entry["event"] for entry in home.history.entries() if entry["event"] == "destroyed"] == ["destroyed"]
            asked = split.ask(tmp_path, small(5))
            with pytest.raises(ConfigError, match="destroyed"):
                office.agents["hospital"].predict(study.sha256, {"model": model, "batch": "b", **asked["hospital"]})
            with pytest.raises(ConfigError, match="no share"):
                home.shares.destroy(model)
            ended = await predict(office, study, model, {"insurer": asked["insurer"]}, "b")
            assert errors(ended) == {"insurer": PeerLost}
            assert office.net.sites["insurer"].home.shares.load(model).spent == 0

    bounded(test)


# -- what does not fit -------------------------------------------------------------------------------------------------------


def test_different_numbers_of_instances_are_refused_before_anything_is_computed(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            asked = split.ask(tmp_path, small(10))
            asked["insurer"] = split.ask(tmp_path, small(11), "other")["insurer"]
            ended = await predict(office, study, model, asked)
            assert set(errors(ended).values()) <= {PeerProtocolError, PeerLost}
            assert PeerProtocolError in errors(ended).values()
            assert "do not agree on the public facts" in " ".join(str(run.error) for run in ended.values())
            assert all(not run.release for run in ended.values())

    bounded(test)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"rows": "nowhere.csv"}, DataError, "does not exist"),
        pytest.param({"keep": ["name"]}, DataError, "'name'", marks=pytest.mark.slow),
        pytest.param({"keep": ["class"]}, DataError, "'class'", marks=pytest.mark.slow),
        pytest.param({"rows": None, "count": 3}, ConfigError, "holds columns", marks=pytest.mark.slow),
    ],
)
def test_instances_that_do_not_fit_leave_the_name_free(
    tmp_path: Path, change: dict[str, Any], kind: type[BlindbayesError], message: str
) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            asked = split.ask(tmp_path, small(10))
            wrong = (await predict(office, study, model, {"hospital": {**asked["hospital"], **change}}))["hospital"]
            assert isinstance(wrong.error, kind)
            assert message in str(wrong.error)
            assert errors(await predict(office, study, model, asked)) == {"hospital": None, "insurer": None}

    bounded(test)


def test_requests_that_name_something_unknown_are_refused(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study, other = split.study(office.net), split.study(office.net, title="other")
            model = await train(office, study)
            office.net.approve(other)
            agent, rows = office.agents["hospital"], split.ask(tmp_path, small(5))["hospital"]
            wrong: list[tuple[str, dict[str, Any], type[BlindbayesError], str]] = [
                ("0" * 64, {"model": model, "batch": "b"}, PrivacyError, "approve"),
                (other.sha256, {"model": model, "batch": "b"}, ConfigError, "another study"),
                (study.sha256, {"model": "ab" * 16, "batch": "b"}, ConfigError, "no share"),
                (study.sha256, {"model": "../keys", "batch": "b"}, ConfigError, "hexadecimal"),
                (study.sha256, {"model": "ab" * 20, "batch": "b"}, ConfigError, "hexadecimal"),
                (study.sha256, {"model": model, "batch": ""}, ConfigError, "name"),
                (study.sha256, {"model": model, "batch": "b", "count": 3}, ConfigError, "--table"),
                (study.sha256, {"model": model, "batch": "b", "colour": 3}, ConfigError, "colour"),
            ]
            for sha256, fields, kind, message in wrong:
                with pytest.raises(kind, match=message):
                    agent.predict(sha256, {**rows, **fields})
            office.net.sites["hospital"].home.approvals.revoke(study.sha256)
            with pytest.raises(PrivacyError, match="approve"):
                agent.predict(study.sha256, {**rows, "model": model, "batch": "b"})

    bounded(test)


def test_a_share_under_another_run_is_refused(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, runs=2) as (office, study, model):
            second = await train(office, study, runs=2)
            folder = office.net.sites["hospital"].home.folder / "shares"
            (folder / f"{model}.share").rename(folder / f"{second}.share")
            with pytest.raises(ConfigError, match="another training run"):
                office.agents["hospital"].predict(study.sha256, {"model": second, "batch": "b", "count": 1})

    bounded(test)


@pytest.mark.parametrize(
    ("options", "policy", "message"),
    [
        ({}, open_policy(), "does not limit"),
        ({"queries": 100_001}, open_policy(), "at most 100000"),
        ({"queries": 5}, open_policy(protocols=("masked_sum",)), "does not allow the protocol"),
        ({"queries": 5}, open_policy(require_all_signatures=True, min_cell=0), "signatures"),
    ],
)
def test_policy_refuses_a_study_over_columns(tmp_path: Path, options: dict[str, Any], policy: Policy, message: str) -> None:
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split, policy=policy) as office:
            study = split.study(office.net, options=options)
            office.net.approve(study)
            with pytest.raises(PrivacyError, match=message):
                office.agents["hospital"].begin(study.sha256)

    bounded(test)


def test_too_few_rows_or_other_rows_than_agreed_send_nothing(tmp_path: Path) -> None:
    split = pair(120)

    async def test() -> None:
        async with office_of(tmp_path, split, policy=open_policy(min_rows=200, min_cell=0)) as office:
            study = split.study(office.net, deadlines=HURRY)
            office.net.approve(study)
            run = office.agents["hospital"].begin(study.sha256)
            await run.done.wait()
            assert isinstance(run.error, PrivacyError)
        (tmp_path / "b").mkdir()
        async with office_of(tmp_path / "b", split) as office:
            study = split.study(office.net, deadlines=HURRY)
            small(119).loc[:, ["weight", "smokes"]].to_csv(tmp_path / "b" / "rows" / "insurer.csv", index=False)
            office.net.approve(study)
            ended = await office.run(study)
            assert errors(ended) == {"hospital": PeerLost, "insurer": DataError}
            assert not (office.net.sites["hospital"].home.folder / "shares").exists()
            assert office.net.sites["hospital"].home.history.starts() == []

    bounded(test)


def test_a_column_that_the_study_gives_to_another_is_refused_or_left_unread(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            office.net.approve(study)
            split.frame[["weight", "smokes", "age"]].to_csv(tmp_path / "rows" / "insurer.csv", index=False)
            ended = await office.run(study)
            assert isinstance(ended["insurer"].error, DataError)
            assert "extra_columns" in str(ended["insurer"].error)
            home = office.net.sites["insurer"].home
            text = (home.folder / "site.toml").read_text().replace('extra_columns = "refuse"', 'extra_columns = "ignore"')
            (home.folder / "site.toml").write_text(text)
            source, found = type(home).open(home.folder).tables.open_columns(study, "insurer")
            source.close()
            assert [feature.name for feature in found.features] == ["weight", "smokes"]

    bounded(test)


# -- crashes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["hospital", pytest.param("insurer", marks=pytest.mark.slow)])
def test_agents_that_stop_in_the_middle_go_on_and_charge_once(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blindbayes.study.tasks.classify.BATCH", 8)
    split = pair()

    async def crash(office: Office, run_id: str, messages: int) -> None:
        while sum(role.driver.progress.messages_in for role in office.agents[who].runs[run_id].roles.values()) < messages:
            assert not office.agents[who].runs[run_id].done.is_set(), "ended before the crash"
            await asyncio.sleep(0)
        await office.stop(who)
        await office.start(who)

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=Deadlines(step=20, join=20, run=120))
            office.net.approve(study)
            begun = office.agents["hospital" if who == "insurer" else "insurer"].begin(study.sha256)
            while who not in [name for name, agent in office.agents.items() if begun.run_id in agent.runs]:
                await asyncio.sleep(0)
            await crash(office, begun.run_id, 3)
            ended = await office.ended(begun.run_id)
            assert {run.text() for run in ended.values()} == {"done"}
            assert joined(office.net, begun.run_id).statistics() == split.pooled().statistics_
            asked, model = split.ask(tmp_path, small(60, seed=9)), begun.run_id
            runs = {
                name: office.agents[name].predict(study.sha256, {"model": model, "batch": "m", **asked[name]}) for name in asked
            }
            run_id = prediction_run(study.sha256, model, "m")
            await crash(office, run_id, 4)
            assert len(runs) == 2
            ended = await office.ended(run_id)
            assert {run.text() for run in ended.values()} == {"done"}
            assert {share.spent for share in shares(office.net, model).values()} == {60}
            expected = split.pooled().predict(small(60, seed=9)[split.features])
            for name in split.holds:
                assert classes(office.net, run_id, name)["class"].tolist() == expected.tolist()

    bounded(test, 90)


def test_instances_that_change_during_a_run_burn_it(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=Deadlines(step=5, join=5, run=60)) as (office, study, model):
            asked = split.ask(tmp_path, small(10))
            run = office.agents["hospital"].predict(study.sha256, {"model": model, "batch": "m", **asked["hospital"]})
            while not run.roles:
                await asyncio.sleep(0.01)
            await office.stop("hospital")
            changed = pd.read_csv(asked["hospital"]["rows"])
            changed.loc[0, "age"] = 99.0
            changed.to_csv(asked["hospital"]["rows"], index=False)
            await office.start("hospital")
            again = office.agents["hospital"].runs[run.run_id]
            await again.done.wait()
            assert "changed during the run" in str(again.error)
            assert office.net.sites["hospital"].home.runs.outcome(run.run_id) is not None
            assert office.net.sites["hospital"].home.shares.load(model).spent == 0

    bounded(test)


def test_a_run_uses_the_rows_that_its_digest_stands_for() -> None:
    from blindbayes.data.columns import open_columns
    from blindbayes.study.tasks.checked_table import CheckedTable

    frame = pair().frame[["age", "colour", "class"]]
    table = CheckedTable(open_columns(frame, pair().book), training=True, size=50)
    read = [block.columns["age"].tolist() for block in table.blocks()]
    table.digest(b"key")
    table.source = open_columns(frame[::-1], pair().book)
    assert [block.columns["age"].tolist() for block in table.blocks()] == read
    assert {block.columns["age"].dtype for block in table.blocks()} == {np.dtype(np.int64)}


def test_rows_that_change_while_they_are_streamed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from blindbayes.data.columns import open_columns
    from blindbayes.errors import LocalProtocolError
    from blindbayes.study.tasks.checked_table import CheckedTable

    monkeypatch.setattr("blindbayes.study.tasks.checked_table.KEPT_BYTES", 0)  # as of a table that is too large to be kept
    split = pair()
    frame = split.frame[["age", "colour", "class"]].copy()
    table = CheckedTable(open_columns(frame, split.book), training=True, size=50)
    first = table.digest(b"key")
    assert [block.rows for block in table.blocks()] == [50, 50, 20]
    assert np.concatenate(list(table.labels())).sum() == np.concatenate([b.known_labels for b in table.blocks()]).sum()
    assert table.digest(b"key") == first
    assert table.digest(b"other") != first
    frame.loc[60, "age"] += 0.1 if frame.loc[60, "age"] < 90 else -0.1
    table.source = open_columns(frame, split.book)
    blocks = table.blocks()
    next(blocks)
    with pytest.raises(LocalProtocolError, match="changed"):
        next(blocks)
    list(table.labels())  # the labels did not change
    frame.loc[3, "class"] = "ill" if frame.loc[3, "class"] == "well" else "well"
    table.source = open_columns(frame, split.book)
    with pytest.raises(LocalProtocolError, match="changed"):
        list(table.labels())
