"""Every way into a private release, from lists to agents: the same statistics reach the same mechanism, and what comes out
keeps its epsilon.

Counting is exact, so the noise can be drawn many times behind one reading: that each path hands over the same integers and the
same plan is shown exactly; then releases of neighbouring tables are told apart as well as samples allow. The record that is
added is one that once changed how all others were read (epsilon 3.3 and 7.2 at a claimed 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

from blindbayes import ColumnStudy, RowStudy
from blindbayes.agent.runs.context import FolderSite
from blindbayes.cli import root
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.lower_bounds import epsilon_lower
from blindbayes.dp.distributed import column_noise
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.release.private_fit import FitPlan, plan_fit
from blindbayes.naive_bayes.load import load
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes.study.file import Limits, Privacy
from blindbayes.study.tasks.checked_table import CheckedTable
from support.sites import Office, bounded

BOOK = Codebook(
    "y",
    ("a", "b"),
    (Categorical("c", ("1", "0"), optional=True), Numeric("x", 0, 10, 1.0, bins=2, optional=True)),
    max_rows=1000,
    missing=("?", "0.0"),
)
NAMES = ["c", "x", "y"]
Rows = list[tuple[Any, ...]]
TABLE: Rows = [(1, 0, "a")] * 40
RECORD = ("?", "CANARY", "a")
NEIGHBOURS = (TABLE, [*TABLE, RECORD])


def texts(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame([[str(cell) for cell in row] for row in rows], columns=NAMES, dtype=str)


def objects(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series([row[at] for row in rows], dtype=object) for at, name in enumerate(NAMES)})


def in_csv(rows: Rows, folder: Path) -> Path:
    texts(rows).to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def in_parquet(rows: Rows, folder: Path) -> Path:
    texts(rows).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def in_duckdb(rows: Rows, folder: Path) -> str:
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("rows", pa.Table.from_pandas(texts(rows)))
        connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM rows")
    return f"duckdb://{folder / 't.duckdb'}#t"


def model(epsilon: float = 1.0) -> PrivateNaiveBayes:
    return PrivateNaiveBayes(BOOK, epsilon=epsilon, expected_rows=len(TABLE))


def trained(rows: Rows, folder: Path) -> PrivateNaiveBayes:
    """By the command line."""
    BOOK.to_toml(folder / "book.toml")
    path, out = in_csv(rows, folder), folder / "model.json"
    options = ["--codebook", str(folder / "book.toml"), "--out", str(out), "--epsilon", "1", "--expected-rows", str(len(TABLE))]
    found = CliRunner().invoke(root, ["train", str(path), *options], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return load(out)


CENTRAL: dict[str, Callable[[Rows, Path], PrivateNaiveBayes]] = {
    "lists": lambda rows, _: model().fit([[*row[:-1]] for row in rows], [row[-1] for row in rows]),
    "array of objects": lambda rows, _: model().fit(objects(rows).to_numpy()[:, :-1], objects(rows).to_numpy()[:, -1]),
    "array of texts": lambda rows, _: model().fit(
        *np.split(texts(rows).to_numpy().astype(str), [2], axis=1)[:1], texts(rows)["y"]
    ),
    "frame of objects": lambda rows, _: model().fit(objects(rows)),
    "frame of texts": lambda rows, _: model().fit(texts(rows)),
    "polars": lambda rows, _: model().fit(pl.from_pandas(texts(rows))),
    "Arrow": lambda rows, _: model().fit(pa.Table.from_pandas(texts(rows), preserve_index=False)),
    "CSV": lambda rows, folder: model().fit(in_csv(rows, folder)),
    "Parquet": lambda rows, folder: model().fit(in_parquet(rows, folder)),
    "DuckDB": lambda rows, folder: model().fit(in_duckdb(rows, folder)),
    "train": trained,
}


@contextmanager
def watched(where: type, name: str, seen: Callable[..., None]) -> Iterator[None]:
    """Tells what a method was called with; the method runs as ever."""
    true = getattr(where, name)

    def spy(self: Any, *arguments: Any) -> Any:
        found = true(self, *arguments)
        seen(self, found, *arguments)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, spy)
        yield


def read_by(path: str, rows: Rows, folder: Path) -> tuple[FitPlan, np.ndarray[Any, Any]]:
    """The plan and the integers that a path hands to the release: once."""
    calls: list[Any] = []
    with watched(FitPlan, "release", lambda plan, _, statistics, __: calls.append((plan, statistics.vector))):
        CENTRAL[path](rows, folder)
    assert len(calls) == 1
    return calls[0]


@pytest.mark.parametrize("path", CENTRAL)
def test_every_path_of_one_table_hands_the_same_integers_to_the_same_release(path: str, tmp_path: Path) -> None:
    want = plan_fit(BOOK, epsilon=1, delta=0.0, rows=len(TABLE), rows_per_unit=1, select_model=True)  # type: ignore[attr-defined]
    for rows in NEIGHBOURS:
        plan, vector = read_by(path, rows, tmp_path)
        assert plan == want
        assert (vector == read_by("lists", rows, tmp_path)[1]).all()
    changed = read_by(path, NEIGHBOURS[1], tmp_path)[1] - read_by(path, NEIGHBOURS[0], tmp_path)[1]
    assert np.abs(changed).sum() == 1  # the class count: both values are missing


def told_apart(sample: Callable[[Rows], np.ndarray[Any, Any]], claimed: float) -> float:
    return epsilon_lower(*(sample(rows) for rows in NEIGHBOURS), delta=0.0, learn=False).epsilon - claimed


def shown(model: PrivateNaiveBayes) -> np.ndarray[Any, Any]:
    return np.concatenate([model.class_log_prior_, *(table.ravel() for table in model.feature_log_prob_.values())])


def test_the_release_behind_them_keeps_its_epsilon_and_a_tenth_of_its_noise_does_not(tmp_path: Path) -> None:
    coins = Coins.seeded(b"p" * 32)
    exact = {len(rows): read_by("lists", rows, tmp_path) for rows in NEIGHBOURS}
    for epsilon, refuted in ((1.0, False), (10.0, True)):
        plan: Any = plan_fit(BOOK, epsilon=epsilon, delta=0.0, rows=len(TABLE), rows_per_unit=1)  # type: ignore[attr-defined]

        def released(rows: Rows, plan: Any = plan) -> np.ndarray[Any, Any]:
            from blindbayes.statistics import Layout, Statistics

            statistics = Statistics(Layout(plan.codebook), exact[len(rows)][1])
            drawn = (plan.release(statistics, coins) for _ in range(300))
            stage = lambda noisy: () if noisy.plan.class_counts is None else noisy.plan.class_counts.counts  # noqa: E731
            return np.array([[*stage(noisy), *np.concatenate([t.ravel() for t in noisy.tables])] for noisy in drawn])

        assert (told_apart(released, 1.0) > 0) == refuted


@pytest.mark.slow
@pytest.mark.parametrize("path", CENTRAL)
def test_whole_fits_by_every_path_keep_their_epsilon(path: str, tmp_path: Path) -> None:
    sample = lambda rows: np.array([shown(CENTRAL[path](rows, tmp_path)) for _ in range(120)])  # noqa: E731
    assert told_apart(sample, 1.0) <= 0


# -- studies and agents ---------------------------------------------------------------------------------------------------

PARTIES = ("north", "south", "west")
STUDY = {
    "frames": lambda rows, _: dict.fromkeys(PARTIES, objects(rows)),
    "CSV": lambda rows, folder: dict.fromkeys(PARTIES, in_csv(rows, folder)),
    "Parquet": lambda rows, folder: dict.fromkeys(PARTIES, in_parquet(rows, folder)),
    "DuckDB": lambda rows, folder: dict.fromkeys(PARTIES, in_duckdb(rows, folder)),
}


def contributed(run: Callable[[], Any]) -> list[tuple[NoisySum, tuple[int, ...]]]:
    """The plan and the exact integers of every party whose share of the noise was added to them."""
    vectors: list[Any] = []
    laws: list[Any] = []
    with (
        watched(NoisySum, "vector", lambda plan, found, _: vectors.append((plan, tuple(found.tolist())))),
        watched(DistributedNoise, "share", lambda noise, found, _: laws.append(noise)),
        watched(WholeNoise, "share", lambda noise, found, _: laws.append(noise)),
    ):
        run()
    assert [plan.noise for plan, _ in vectors] == laws  # each vector gets a share of its own plan's noise
    return vectors


@pytest.mark.parametrize(("path", "parties"), [*((path, PARTIES) for path in STUDY), ("CSV", PARTIES[:2])])
def test_every_path_of_a_study_adds_the_same_noise_to_the_same_integers(
    path: str, parties: tuple[str, ...], tmp_path: Path
) -> None:
    """Two parties bring whole noise, more of them shares."""
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0), limits=Limits(min_parties=2))

    def run(path: str, rows: Rows) -> list[tuple[NoisySum, tuple[int, ...]]]:
        sources = STUDY[path](rows, tmp_path)
        return contributed(lambda: study.simulate({name: sources[name] for name in parties}))

    for rows in NEIGHBOURS:
        want = run("frames", rows)
        assert len(want) == len(parties)
        assert {type(plan.noise) for plan, _ in want} == {WholeNoise if len(parties) == 2 else DistributedNoise}
        assert run(path, rows) == want


@pytest.mark.parametrize("path", ["CSV", "DuckDB"])
def test_agents_add_the_noise_of_the_study_to_the_integers_of_the_study(path: str, tmp_path: Path) -> None:
    found: list[Any] = []

    async def run() -> None:
        sources = {name: str(where) for name, where in STUDY[path](NEIGHBOURS[1], tmp_path).items()}
        async with Office(tmp_path / "office", PARTIES, rows=sources) as office:
            study = office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0))
            office.net.approve(study)
            await office.run(study)

    found = contributed(lambda: bounded(run))
    want = contributed(lambda: RowStudy(BOOK, privacy=Privacy(epsilon=1.0)).simulate(STUDY["frames"](NEIGHBOURS[1], tmp_path)))
    assert found == want


@pytest.mark.slow
def test_what_agents_add_keeps_its_epsilon(tmp_path: Path) -> None:
    """Each draw is a job of an agent's folder, read from its file anew; the sum holds the fewest honest shares."""
    coins = Coins.seeded(b"q" * 32)

    def sample(rows: Rows) -> np.ndarray[Any, Any]:
        drawn = []

        async def read() -> None:
            folder = tmp_path / str(len(rows))
            folder.mkdir(exist_ok=True)
            async with Office(folder / "office", PARTIES, rows=dict.fromkeys(PARTIES, str(in_csv(rows, folder)))) as office:
                file = office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0))
                site = office.net.sites["north"]
                public = file.agreement.task
                for at in range(60):
                    job = file.task.at(FolderSite(site.home, site.identity, file), f"{at:016x}")
                    job.read()
                    noisy = public.sum.contribution(job.statistics, coins, name="north").view(np.int64)
                    others = [public.plan.noise.share(coins) for _ in range(public.plan.noise.honest - 1)]
                    drawn.append(noisy + sum(others))

        bounded(read)
        return np.array(drawn)

    assert told_apart(sample, 1.0) <= 0


# -- columns ----------------------------------------------------------------------------------------------------------------


def test_columns_of_frames_and_files_are_coded_alike_and_get_the_noise_of_one_plan(tmp_path: Path) -> None:
    study = ColumnStudy(BOOK, privacy=Privacy(epsilon=1.0))
    plans: list[Any] = []
    codes = []
    for path in STUDY:
        whole = objects(NEIGHBOURS[1])
        tables: dict[str, Any] = {"p": whole[["x"]], "q": whole[["c", "y"]]}
        if path != "frames":
            for name, columns in (("p", ["x"]), ("q", ["c", "y"])):
                folder = tmp_path / path / name
                folder.mkdir(parents=True)
                part = texts(NEIGHBOURS[1])[columns]
                if path == "CSV":
                    part.to_csv(folder / "t.csv", index=False)
                    tables[name] = folder / "t.csv"
                elif path == "Parquet":
                    part.to_parquet(folder / "t.parquet")
                    tables[name] = folder / "t.parquet"
                else:
                    with duckdb.connect(str(folder / "t.duckdb")) as connection:
                        connection.register("rows", pa.Table.from_pandas(part))
                        connection.execute("CREATE TABLE t AS SELECT * FROM rows")
                    tables[name] = f"duckdb://{folder / 't.duckdb'}#t"
        seen: list[Any] = []
        with (
            watched(column_noise.ColumnNoise, "draw", lambda plan, _, party, __: plans.append((plan, party))),
            watched(CheckedTable, "digest", lambda table, found, _, seen=seen: seen.append(found)),
        ):
            study.simulate(tables, coins=Coins.seeded(bytes(32)))
        codes.append(seen)
    assert codes == [codes[0]] * len(STUDY)
    assert codes[0]
    assert [plan for plan, party in plans if party == "p"] == [plans[0][0]] * len(STUDY)
