"""Exact sums with min_cell between agents: the table of the rule in clear, no small cell anywhere, one codebook and floor."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd

from blindbayes import Limits, RowStudy, load
from blindbayes.data.table import count_table
from blindbayes.errors import PrivacyError
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import open_policy
from support.floors import floored
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


def tables(folder: Path) -> dict[str, str | None]:
    generator = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    sources: dict[str, str | None] = {}
    for at, name in enumerate(NAMES):
        ill = generator.random(150) < 0.4
        colour = np.where(ill, "red", "blue").astype(object)
        colour[:2] = "green"  # six in all
        frame = pd.DataFrame(
            {"class": np.where(ill, "ill", "well"), "colour": colour, "age": generator.integers(20 + at, 90, 150)}
        )
        frame.to_csv(folder / f"{name}.csv", index=False)
        sources[name] = str(folder / f"{name}.csv")
    return sources


def test_three_agents_open_what_the_rule_allows_and_the_approval_page_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, NAMES, rows=sources, policy=open_policy(min_cell_of_sums=10)) as office:
            deadlines = Deadlines(step=20, join=20, run=100)
            study = office.net.make_study(BOOK, limits=Limits(min_cell=10), deadlines=deadlines)
            assert any("suppressed" in each for each in study.task.disclosure.deviation)
            office.net.approve(study, runs=2)
            runs = await office.run(study)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]
            run_id = next(iter(runs.values())).run_id

            pooled = pd.concat([pd.read_csv(str(source)) for source in sources.values()])
            table = floored(count_table(pooled, BOOK), 10)
            assert table.suppressed > 0
            for name in NAMES:
                folder = office.net.sites[name].home.folder / "releases" / run_id
                with (folder / "cells.csv").open() as lines:
                    cells = list(csv.DictReader(lines))
                assert [line["count"] for line in cells] == [str(line["count"]) for line in table.cells]
                assert json.loads((folder / "model.json").read_text())["statistics"] is None
                assert "floored_sum" in (folder / "leakage.json").read_text()
                load(folder / "model.json").predict(pooled[["colour", "age"]])
                begun = office.net.sites[name].home.history.computed(study.sha256, run_id)
                assert begun is not None
                assert begun["min_cell"] == 10

            again = await office.run(study)
            assert all(run.error is None for run in again.values())
            plain = office.net.make_study(BOOK, limits=Limits(min_cell=20), deadlines=deadlines, title="another floor")
            office.net.approve(plain)
            refused = await office.run(plain)
            assert any(isinstance(run.error, PrivacyError) and "could fix a cell" in str(run.error) for run in refused.values())

    bounded(scenario)


def test_simulate_gives_the_table_of_the_agents(tmp_path: Path) -> None:
    sources = {name: pd.read_csv(str(source)) for name, source in tables(tmp_path).items()}
    result = RowStudy(BOOK, limits=Limits(min_cell=10)).simulate(sources)
    expected = floored(count_table(pd.concat(sources.values()), BOOK), 10)
    assert result.table.cells == expected.cells  # type: ignore[attr-defined]
    saved = result.save(tmp_path / "release")
    assert "suppressed" in (saved / "cells.csv").read_text()
