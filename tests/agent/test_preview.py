"""The preview of a study: what it costs and what would leave, before anybody approves."""

from __future__ import annotations

import asyncio
from pathlib import Path

from click.testing import CliRunner

from blindbayes.agent import preview
from blindbayes.cli.commands.site import command
from blindbayes.study.file import Deadlines, Limits, Privacy
from blindbayes.study.roster import Party
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


def test_what_a_study_costs_and_leaves_is_said_before_it_is_approved(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            north = office.agents["north"]
            study = office.net.make_study(BOOK, privacy=Privacy(epsilon=3.0), deadlines=Deadlines(step=20, join=20, run=35))
            cost = preview.cost(north.home, study)
            assert (cost["epsilon"], cost["left"], cost["left_after"], cost["fits"]) == (3.0, 10.0, 7.0, True)
            assert not preview.cost(north.home, study, runs=4)["fits"]
            assert (cost["covered"], cost["warnings"]) == (3, [])
            (warning,) = preview.cost(north.home, study, runs=4)["warnings"]
            assert "covers 3 runs of this study, and you approve 4" in warning
            folder, path = north.home.folder, tmp_path / "study.toml"
            path.write_text(study.to_toml())
            words = ["approve", str(path), "--config", str(folder), "--runs"]
            said = await asyncio.to_thread(CliRunner().invoke, command, [*words, "4"])
            assert said.output.index("Warning: beyond the budget") < said.output.index("Approved")
            assert "Warning" not in (await asyncio.to_thread(CliRunner().invoke, command, [*words, "3"])).output
            other = office.net.make_study(BOOK, title="Other", privacy=Privacy(epsilon=4.0))
            (warning,) = preview.cost(north.home, other)["warnings"]  # 9 are promised to the first study
            assert "may take epsilon 9 of the 10" in warning
            assert not preview.cost(north.home, office.net.make_study(BOOK, title="Exact")).get("warnings")
            assert preview.again(north.home, office.net.make_study(BOOK, title="New", privacy=Privacy(epsilon=1.0))) == []
            office.net.approve(study, runs=2)
            assert (await office.run(study))["north"].state == "done"
            assert preview.cost(north.home, study)["left"] == 7.0
            line = north.home.ledger.timeline()
            assert [(each["kind"], each["spent"], each["left"]) for each in line] == [
                ("budget", 0.0, 10.0),
                ("charge", 3.0, 7.0),
            ]
            said = " ".join(preview.again(north.home, study))
            assert "1 run(s) of this study computed here; 1 more approved" in said
            assert "charged" in said
            found = preview.dry_run(north.home, "north", study)
            assert found["refused_because"] == []
            assert found["cost"]["left_after"] == 4.0
            exact = office.net.make_study(BOOK, limits=Limits(quorum=3), deadlines=Deadlines(step=20, join=20, run=35))
            office.net.approve(exact, runs=2)
            assert (await office.run(exact))["north"].state == "done"
            assert "If the rows change in between" in " ".join(preview.again(north.home, exact))
            assert [(each["kind"], each["left"]) for each in north.home.ledger.timeline()][2:] == [("exact_sum", 7.0)]
            assert preview.verdict(north.home, exact) == []
            lower = office.net.make_study(BOOK, title="lower", parties=(*exact.parties, Party("east", "ee" * 32)))
            assert "takes part in exact sums over north, south, west only" in " ".join(preview.verdict(north.home, lower))

    bounded(test)
