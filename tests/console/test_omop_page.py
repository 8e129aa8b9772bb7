"""The data check and the dry run of a site with an OMOP database: what it lacks, in counts, before anybody approves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from agent.test_omop_sites import BOOK
from blindbayes.agent.config import Rows
from blindbayes.agent.store.tables import Tables
from support import omop as cdm
from support.consoles import NAMES, Consoles, csrf_of

from .conftest import Person, require_fit


def test_the_pages_say_what_the_database_lacks(tmp_path: Path, person: Callable[..., Person]) -> None:
    rows = cdm.synthetic(60)
    rows["concept"] = [row for row in rows["concept"] if row[0] != cdm.DIABETES]
    url = cdm.duckdb_cdm(tmp_path / "hospital.duckdb", rows)
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        home.config = msgspec.structs.replace(home.config, rows=Rows(url, omop="cdm"))
        home.tables = Tables(home.folder, home.config.rows)
        study = office.office.net.make_study(BOOK)
        office.office.net.approve(study)
        ada = office.sign_in("north")
        csrf = csrf_of(office, ada)
        form = urlencode({"csrf": csrf, "study": study.sha256})
        checked = office.ask("north", "POST", "/data", form, headers=ada, token=False).text
        place = f"/studies/{study.sha256}/dry-run"
        dry = office.ask("north", "POST", place, urlencode({"csrf": csrf}), headers=ada, token=False).text
        assert "The columns fit, but the database differs" in checked
        assert f"has no concept {cdm.DIABETES}" in dry.partition("<details")[0]  # seen without a click
        for page in (checked, dry):
            assert f"has no concept {cdm.DIABETES}" in page
            assert "of 60 persons are in the cohort" in page
            assert "The table fits" not in page
            assert "mrn" not in page
        clicks = person(office, "north")
        look = clicks.see("/data")
        look.get_by_label("Study").select_option(study.sha256)
        clicks.press("Check the table")
        clicks.says("The columns fit, but the database differs")
        clicks.says(f"has no concept {cdm.DIABETES}")
        require_fit(look, "omop-checked")
        clicks.see(f"/studies/{study.sha256}")
        clicks.press("Dry run on this site's data")
        clicks.says(f"has no concept {cdm.DIABETES}")
        require_fit(look, "omop-dry-run")
