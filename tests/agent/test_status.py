"""The status of a site: names and counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from blindbayes.console.port import metrics
from blindbayes.study.file import Deadlines, StudyFile
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


QUICK = Deadlines(step=20, join=20, run=35)  # whoever waits for one of these to pass says so itself


def study_of(office: Office, **fields: Any) -> StudyFile:
    return office.net.make_study(BOOK, **{"deadlines": QUICK, **fields})


def test_status_and_metrics_show_names_and_counts(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study)
            run = office.agents["north"].begin(study.sha256)
            assert run.text() == "reading"
            await run.done.wait()
            shown = office.agents["north"].show()
            assert shown["peers"] == {"south": True, "west": True}
            assert shown["runs"][0]["state"] == "done"
            text = metrics(office.agents["north"])
            assert 'blindbayes_runs_total{state="done"} 1' in text
            assert text.endswith("# EOF\n")

    bounded(test)
