"""One scheme, two drivers: `simulate` and real agents give the same of everything that people are shown.

Same study, same tables, same coins: equal opened labels, leak report per party, conclusions, statement, charges, model, shares.
Agents run in one process over the memory courier; the run's id and the coins of every role are given to both drivers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from msgspec.structs import replace

from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.policy import Policy
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import BlindbayesError, PeerLost
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.net.journal import Begun
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes.study.agreement import Holdings
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.study.simulation.site import key_of
from blindbayes.study.tasks import registry as tasks
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.study.tasks.traits import ModelForm
from blindbayes.testing.loopback import open_policy
from support.column_sites import predict, small
from support.sites import Office, bounded

NAMES = ("north", "south", "west")
BINNED = Codebook(
    "class",
    ("ill", "well"),
    (Categorical("colour", ("red", "green", "blue")), Numeric("age", 0, 120, 0.1, bins=4)),
    max_rows=10_000,
)
WIDE = Codebook(
    "class",
    ("ill", "well"),
    (
        Numeric("age", 0, 120, 0.1, bins=6),
        Categorical("colour", ("red", "green", "blue")),
        Categorical("smokes", ("no", "yes")),
    ),
    max_rows=10_000,
)
PATIENT = Deadlines(step=30, join=30, run=200)
EVERYTHING = open_policy(protocols=tasks.names(), min_colluders=0, reveal_matches=True, min_cell=0)


def by_rows() -> dict[str, pd.DataFrame]:
    frame = small(120)[["colour", "age", "class"]]
    return {name: frame[at * 40 : at * 40 + 40] for at, name in enumerate(NAMES)}


def by_columns(*, noisy: bool = False) -> dict[str, pd.DataFrame]:
    frame = small(120)
    return {"bank": frame[["age", "colour", "class"]], "shop": frame[["smokes", *(["class"] if noisy else [])]]}


def by_three() -> dict[str, pd.DataFrame]:
    frame = small(120)
    return {"bank": frame[["age", "class"]], "shop": frame[["smokes"]], "club": frame[["colour"]]}


def by_people() -> dict[str, pd.DataFrame]:
    frame = small(90).assign(id=[f"person-{at:03}" for at in range(90)])
    bank, shop = frame[:60][["id", "age", "colour", "class"]], frame[30:][["id", "smokes"]]
    return {"bank": bank, "shop": shop.sample(frac=1, random_state=3)}


def by_patients() -> dict[str, pd.DataFrame]:
    """Return rows of which the first 20 are at all sites, and others at two."""
    frame = small(120)[["colour", "age", "class"]].assign(id=[f"person-{at:03}" for at in range(120)])
    return {name: pd.concat([frame[:20], frame[at * 30 + 20 : at * 30 + 60]]) for at, name in enumerate(NAMES)}


def rows_study(**fields: Any) -> Callable[[Office], StudyFile]:
    return lambda office: office.net.make_study(BINNED, deadlines=PATIENT, **fields)


def columns_study(
    labelled: tuple[str, ...] = ("bank",), rows: int | None = 120, **fields: Any
) -> Callable[[Office], StudyFile]:
    held = Holdings({"bank": ("age", "colour"), "shop": ("smokes",)}, labelled, rows)
    given = {"kind": "columns", "columns": held, "deadlines": PATIENT, "options": {"queries": 100}, **fields}
    return lambda office: office.net.make_study(WIDE, **given)


def three_study(office: Office, **more: Any) -> StudyFile:
    held = Holdings({"bank": ("age",), "shop": ("smokes",), "club": ("colour",)}, ("bank",), 120)
    options = {"queries": 300, "compare_all": True, **more}
    return office.net.make_study(WIDE, kind="columns", columns=held, deadlines=PATIENT, options=options)


@dataclass(frozen=True)
class Case:
    tables: Callable[[], dict[str, pd.DataFrame]]
    study: Callable[[Office], StudyFile]
    runs: int = 1
    without_rows: tuple[str, ...] = ()


BOUNDS = {"bounds": {"bank": MIN_BOUND, "shop": MIN_BOUND}, "queries": 20_000, "min_overlap": 10}
KEYED = {"kind": "join", "key": ("id",), "duplicates": "first"}
CASES = {
    **{name: Case(by_rows, rows_study(protocol=name)) for name in ("masked_sum", "ring_sum", "chain_sum", "oblivious_sum")},
    "reference": Case(by_rows, rows_study(protocol="reference")),
    "noisy sum": Case(by_rows, rows_study(privacy=Privacy(epsilon=1.0))),
    "persons matched": Case(
        by_patients,
        lambda office: office.net.make_study(
            replace(BINNED, identifier=IdRecipe((IdPart("id", "exact"),))),
            deadlines=PATIENT,
            privacy=Privacy(epsilon=1.0, rows_per_person=1, sites_per_person="matched"),
        ),
        without_rows=("hub",),
    ),
    "a whole party": Case(by_rows, rows_study(privacy=Privacy(epsilon=1.0, unit="party", party_rows=40))),
    "ratios in shares": Case(by_rows, rows_study(protocol="private_ratio", hosts={}, options={"queries": 100})),
    "ratios in shares of all": Case(
        by_rows, rows_study(protocol="private_ratio", hosts={}, options={"queries": 100, "computing": 3})
    ),
    "noisy ratios": Case(
        by_rows, rows_study(protocol="opened_ratio", hosts={}, privacy=Privacy(epsilon=1.0), options={"opening": "noisy"})
    ),
    "histograms": Case(
        lambda: by_columns(noisy=True),
        columns_study(
            ("bank", "shop"),
            None,
            protocol="noisy_histograms",
            options={},
            privacy=Privacy(epsilon=2.0),
            hosts={"miner": "bank"},
        ),
    ),
    "aligned": Case(by_columns, columns_study()),
    "aligned with noise": Case(by_columns, columns_study(privacy=Privacy(epsilon=2.0))),
    "aligned with randomised labels": Case(by_columns, columns_study(privacy=Privacy(label_epsilon=2.0))),
    "aligned with small cells at zero": Case(by_columns, columns_study(limits=Limits(min_cell=5))),
    "aligned and audited": Case(by_columns, columns_study(options={"queries": 100, "audit_rate": 0.2})),
    "aligned and audited, with noise": Case(
        by_columns, columns_study(options={"queries": 100, "audit_rate": 0.2}, privacy=Privacy(epsilon=2.0))
    ),
    "aligned between three": Case(by_three, three_study),
    "aligned between three, audited": Case(by_three, lambda office: three_study(office, audit_rate=0.2)),
    "joined": Case(by_people, columns_study(rows=None, options=BOUNDS, **KEYED)),
    "joined with noise and small cells at zero": Case(
        by_people,
        columns_study(rows=None, options=BOUNDS, privacy=Privacy(epsilon=2.0), limits=Limits(min_cell=3), **KEYED),
    ),
    "matched": Case(
        by_people,
        columns_study(rows=None, options={**BOUNDS, "reveal": "matching"}, **KEYED),
    ),
    "joined and audited": Case(by_people, columns_study(rows=None, options={**BOUNDS, "audit_rate": 0.2}, **KEYED)),
    "joined and audited, with small cells at zero": Case(
        by_people,
        columns_study(rows=None, options={**BOUNDS, "audit_rate": 0.2}, limits=Limits(min_cell=3), **KEYED),
    ),
    "matched and audited": Case(
        by_people,
        columns_study(
            rows=None,
            options={**BOUNDS, "reveal": "matching", "audit_rate": 0.2},
            **KEYED,
        ),
    ),
    "joined with an estimate": Case(by_people, columns_study(rows=None, options={**BOUNDS, "overlap_epsilon": 0.5}, **KEYED)),
}


class SeatCoins(Coins):
    """Coins whose parties' coins are those that the agents' journals are given."""

    def __init__(self, run_id: str) -> None:
        self._seed, self._inner, self._run_id = bytes(32), Coins.seeded(bytes(32)), run_id

    def bytes(self, count: int) -> bytes:
        assert count == 16, "the id of the run"
        return bytes.fromhex(self._run_id)

    def derive(self, label: str) -> Coins:
        if label.startswith("run "):
            return self
        return Coins.seeded(seed_of(label.removeprefix("party "))) if label.startswith("party ") else self._inner.derive(label)


def seed_of(seat: str) -> bytes:
    return seat.encode().ljust(32, b"*")


def charges(ledger: Ledger) -> list[tuple[Any, ...]]:
    told = ("epsilon", "delta", "unit", "mechanism", "purpose", "study")
    return [tuple(each.fields.get(name) for name in told) for each in ledger.entries() if each.kind == "charge"]


@pytest.mark.parametrize("name", CASES)
def test_agents_and_simulate_show_people_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    frames = case.tables()
    tmp_path.joinpath("rows").mkdir()
    sources = {site: str(tmp_path / "rows" / f"{site}.csv") for site in frames}
    for site, frame in frames.items():
        frame.to_csv(sources[site], index=False)

    async def test() -> None:
        sites = (*frames, *case.without_rows)
        rows = {**sources, **dict.fromkeys(case.without_rows)}
        async with Office(tmp_path / "office", sites, rows=rows, policy=EVERYTHING) as office:
            study = case.study(office)
            for net in office.net.sites.values():
                net.home.approvals.approve(study, runs=case.runs)
            for number in range(case.runs):
                runs = await office.run(study)
                assert {site: run.text() for site, run in runs.items()} == dict.fromkeys(sites, "done")
                homes = {site: net.home for site, net in office.net.sites.items()}
                run_id = next(iter(runs.values())).run_id
                releases = {site: home.folder / "releases" / run_id for site, home in homes.items()}
                paid = {site: charges(home.ledger) for site, home in homes.items()}
                tmp_path.joinpath(str(number)).mkdir()
                result = compare(study, sources, releases, paid, tmp_path / str(number))
            if study.task.model is ModelForm.SHARED and study.study.partition == "columns":  # as people approved
                words, labels = (
                    list(study.task.disclosure.opened),
                    {*chain(*(leak.opened for leak in result.leakage.values()))},
                )
                assert (words == ["nothing"]) == (not labels)
                assert ("of its own making" in str(words)) == ("audited_classes" in labels)
            if name in PREDICTIONS:
                await compare_predictions(office, study, run_id, PREDICTIONS[name], frames, result, tmp_path)

    def begun(study: str, run: str, seat: str, seed: bytes, *rest: Any) -> Begun:
        return Begun(study, run, seat, seed_of(seat), *rest)

    monkeypatch.setattr("blindbayes.agent.runs.role_runner.Begun", begun)
    monkeypatch.setattr(
        "blindbayes.agent.runs.context.FolderSite.key", key_of(SeatCoins(""))
    )  # the same coins for the same labels
    bounded(test, 90)


def compare(
    study: StudyFile,
    sources: dict[str, str],
    releases: dict[str, Path],
    paid: dict[str, list[Any]],
    folder: Path,
) -> Any:
    own = {site: Ledger.create(folder / f"{site}.ledger", epsilon="10", delta="0.00001").path for site in sources}
    result = study.simulate(sources, ledgers=own, coins=SeatCoins(next(iter(releases.values())).name))
    for site, path in own.items():
        assert charges(Ledger(path)) == paid[site], site
    told = json.loads(result.files()["leakage.json"])
    for site, release in releases.items():
        leakage = json.loads((release / "leakage.json").read_text())
        for seat, view in leakage["parties"].items():
            assert view == told["parties"][seat], (site, seat)
        assert leakage["may be opened"] == told["may be opened"]
        assert leakage["unforeseen"] == told["unforeseen"] == []
        statement = (release / "statement.md").read_text()
        if "did not learn it" not in statement and "noisy_overlap" not in statement:
            assert leakage["follows"] == told["follows"], site
            assert statement == result.statement.rstrip("\n") + "\n", site
        if (release / "model.json").exists():
            assert (release / "model.json").read_bytes() == result.files()["model.json"], site
    if study.task.model is ModelForm.SHARED:
        for site, share in result.model.shares.items():
            kept = ModelShare.load(next((releases[site].parents[1] / "shares").glob("*.share")))
            assert kept.body() == share.body(), site
    return result


PREDICTIONS: dict[str, list[dict[str, Any]]] = {
    "aligned": [{}],
    "aligned with noise": [{}],
    "aligned with small cells at zero": [{}],
    "aligned between three": [{}],
    "aligned and audited": [{}],
    "aligned and audited, with noise": [{}],
    "aligned between three, audited": [{}],
    "matched and audited": [{}],
    "joined and audited": [{}],
    "joined and audited, with small cells at zero": [{}],
    "joined with noise and small cells at zero": [{}],
    "ratios in shares": [{"to": "north"}, {"to": "south"}],
    "matched": [{}],
    "joined": [{}, {"to": "bank"}, {"to": "shop", "scope": "shared"}],
}


async def compare_predictions(
    office: Office,
    study: StudyFile,
    model: str,
    questions: list[dict[str, Any]],
    frames: dict[str, pd.DataFrame],
    result: Any,
    folder: Path,
) -> None:
    """Classifications too: the same classes, reports, statements and charges."""
    for at, question in enumerate(questions):
        batch = f"{at:032x}"
        asked = {}
        for site, frame in frames.items():
            own = frame.drop(columns="class", errors="ignore")
            own = own if "to" in question else own[:20].drop(columns="id", errors="ignore")
            asked[site] = own
            own.to_csv(folder / f"{site}-{at}.csv", index=False)
        whole = study.study.partition == "rows"  # one site brings whole instances, the others know their number
        fields = {site: {"rows": str(folder / f"{site}-{at}.csv"), **question} for site in frames}
        if whole:
            count = len(asked[question["to"]])
            fields |= {site: {"count": count, **question} for site in frames if site != question["to"]}
        ended = await predict(office, study, model, fields, batch)
        assert {site: run.text() for site, run in ended.items()} == dict.fromkeys(frames, "done")
        ask = result.model.score if question and not whole else result.model.classify
        found = ask(asked[question["to"]] if whole else asked, **question, coins=SeatCoins(batch))
        run_id = prediction_run(study.sha256, model, batch)
        told = json.loads(found.files()["leakage.json"])
        for site, agent in office.net.sites.items():
            release = agent.home.folder / "releases" / run_id
            leakage = json.loads((release / "leakage.json").read_text())
            assert leakage["parties"][site] == told["parties"][site]
            assert leakage["follows"] == told["follows"]
            assert leakage["unforeseen"] == told["unforeseen"] == []
            assert (release / "statement.md").read_text() == found.statement.rstrip("\n") + "\n"
            learns = question.get("to", site) == site
            assert (release / "classes.csv").exists() == learns
            if learns:
                assert (release / "classes.csv").read_bytes() == found.files()["classes.csv"]
            assert agent.home.shares.load(model).spent == result.model.shares[site].spent


LOST_COLUMN = {site: frame.drop(columns="smokes", errors="ignore") for site, frame in by_columns().items()}
STRANGE = {site: frame.replace({"colour": {"red": "violet"}}) for site, frame in by_rows().items()}
FEW = {"queries": 5}
REFUSALS: dict[
    str, tuple[Callable[[], dict[str, pd.DataFrame]], Callable[[Office], StudyFile], Policy, dict[str, Any] | None]
] = {
    "too few rows": (by_rows, rows_study(), open_policy(min_rows=50), None),
    "no exact sums": (by_rows, rows_study(), open_policy(exact_sums=False), None),
    "a protocol that is not allowed": (by_rows, rows_study(protocol="reference"), open_policy(), None),
    "a value that the codebook does not list": (lambda: STRANGE, rows_study(), EVERYTHING, None),
    "an epsilon above the policy": (
        by_rows,
        rows_study(privacy=Privacy(epsilon=1.0)),
        open_policy(max_epsilon_per_run=0.5),
        None,
    ),
    "an epsilon above the ledger": (
        by_rows,
        rows_study(privacy=Privacy(epsilon=11.0)),
        open_policy(max_epsilon_per_run=20.0),
        None,
    ),
    "too few rows of columns": (by_columns, columns_study(), open_policy(min_rows=200, min_cell=0), None),
    "neither noise nor a least cell": (by_columns, columns_study(), open_policy(), None),
    "a column that is not there": (lambda: LOST_COLUMN, columns_study(), EVERYTHING, None),
    "queries without a limit": (by_columns, columns_study(options={}), EVERYTHING, None),
    "a matching that is not allowed": (
        by_people,
        columns_study(rows=None, options={"bounds": BOUNDS["bounds"], "queries": 9, "reveal": "matching"}, **KEYED),
        open_policy(min_overlap=0),
        None,
    ),
    "a matching that may be of one": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "min_overlap": 0, "reveal": "matching"}, **KEYED),
        open_policy(reveal_matches=True),
        None,
    ),
    "a matching below the least overlap": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "min_overlap": 31, "reveal": "matching"}, **KEYED),
        EVERYTHING,
        None,
    ),
    "an overlap below the least": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "min_overlap": 31}, **KEYED),
        EVERYTHING,
        None,
    ),
    "a least overlap below the policy": (
        by_people,
        columns_study(rows=None, options=BOUNDS, **KEYED),
        open_policy(min_overlap=11),
        None,
    ),
    "no least overlap": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "min_overlap": 0}, **KEYED),
        open_policy(),
        None,
    ),
    "an estimate of the overlap above the ledger": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "overlap_epsilon": 11.0}, **KEYED),
        open_policy(max_epsilon_per_run=20.0, min_cell=0),
        None,
    ),
    "fewer audits than the policy asks for": (
        by_columns,
        columns_study(options={"queries": 100, "audit_rate": 0.05}),
        open_policy(min_audit_rate=0.1, min_cell=0),
        None,
    ),
    "a hidden join that cannot be audited": (
        by_people,
        columns_study(rows=None, options={**BOUNDS, "audit_rate": 0.2}, **KEYED),
        EVERYTHING,
        {"to": "bank"},
    ),
    "more queries than agreed": (by_columns, columns_study(options=FEW), EVERYTHING, {}),
    "classes for another than agreed": (
        by_people,
        columns_study(rows=None, options=BOUNDS, reveal_to="bank", **KEYED),
        EVERYTHING,
        {"to": "shop"},
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_both_refuse_the_same_in_the_same_words(name: str, tmp_path: Path) -> None:
    tables, make, policy, question = REFUSALS[name]
    frames = tables()
    tmp_path.joinpath("rows").mkdir()
    sources = {site: str(tmp_path / "rows" / f"{site}.csv") for site in frames}
    for site, frame in frames.items():
        frame.to_csv(sources[site], index=False)
    refused: set[tuple[type[BaseException], str]] = set()

    async def test() -> None:
        async with Office(tmp_path / "office", tuple(frames), rows=sources, policy=policy) as office:
            study = make(office)
            office.net.approve(study)
            ended: dict[str, Any] = {}
            try:
                ended = await office.run(study)
                if question is not None:
                    fields = {}
                    for site, frame in frames.items():
                        frame.drop(columns="class", errors="ignore").to_csv(tmp_path / f"{site}.csv", index=False)
                        fields[site] = {"rows": str(tmp_path / f"{site}.csv"), **question}
                    ended = await predict(office, study, next(iter(ended.values())).run_id, fields)
            except BlindbayesError as error:
                refused.add((type(error), str(error)))
            found = {(type(run.error), str(run.error)) for run in ended.values() if not isinstance(run.error, PeerLost | None)}
            refused.update(each for each in found if "gave up" not in each[1])
            own = {site: tmp_path / site / "ledger.jsonl" for site in frames}
            for path in own.values():
                path.parent.mkdir()
                Ledger.create(path, epsilon="10", delta="0.00001")

            def in_memory() -> None:
                result = study.simulate(sources, ledgers=own, policies=dict.fromkeys(frames, policy))
                ask = result.model.score if question else result.model.classify
                ask({site: frame.drop(columns="class", errors="ignore") for site, frame in frames.items()}, **question or {})

            with pytest.raises(BlindbayesError) as caught:
                in_memory()
            assert (type(caught.value), str(caught.value)) in refused

    bounded(test, 90)
