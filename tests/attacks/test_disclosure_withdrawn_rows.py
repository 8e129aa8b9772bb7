"""`site withdraw` in an exact sum of changes would tell the whole table of the site, which `changed_data` does not allow.

Before, the policy's word that a change may be told let a site that took its rows back open all of its statistics.
"""

from __future__ import annotations

from pathlib import Path

from blindbayes.study.file import Limits, Privacy
from support.consortium import EVERYBODY, Consortium, done, edit, office
from support.sites import bounded, paper_policy

POLICY = paper_policy(max_runs_per_day=1000, changed_data=True)


def test_no_exact_sum_of_changes_tells_the_table_of_a_site_that_leaves(tmp_path: Path) -> None:
    async def test() -> None:
        async with office(tmp_path, EVERYBODY[:3], POLICY) as here:
            club = Consortium(here, EVERYBODY[:3], privacy=Privacy(), limits=Limits())
            first = done(await club.run())
            edit(tmp_path, "south", 5, add=3)
            second = done(await club.run(base=first))  # the policy allows that
            assert (club.total(second).statistics.words == club.recount()).all()
            club.home("west").audit.append("withdrew", study=club.study.sha256)
            runs = await club.run(base=second)
            assert "its whole table" in str(runs["west"].error)
            assert {run.state for run in runs.values()} == {"failed"}

    bounded(test, 60)
