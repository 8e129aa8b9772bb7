"""Rules that a steward makes stricter in the console; looser ones stay in the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

import blindbayes
from blindbayes.agent.approvals.people import Person as StaffMember
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.stricter import STRICTER
from blindbayes.console.strings import EVENTS
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.disclosure.policy import Policy
from blindbayes.study.form import fields_of
from blindbayes.study.settings import LABELS
from blindbayes.study.study import KINDS
from support.consoles import NAMES, Consoles

from .conftest import Person


@pytest.fixture
def home(tmp_path: Path) -> SiteFolder:
    policy = Policy(exact_sums=True, min_rows=10, max_epsilon_per_run=2.0, site_figures="spread")
    made, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(policy=policy))
    return made


def test_every_rule_has_a_name_in_plain_words() -> None:
    paths = [*STRICTER, *(name.replace("__", ".") for kind in KINDS for name in fields_of(kind) if "options" not in name)]
    assert [path for path in paths if path not in LABELS] == []


def test_the_log_names_every_event_that_the_package_writes() -> None:
    source = Path(blindbayes.__file__).parent
    written = set()
    for path in source.rglob("*.py"):
        written |= set(re.findall(r"""(?:audit\.append|context\.log)\(\s*"([a-z -]+)\"""", path.read_text(encoding="utf-8")))
    assert len(written) > 40
    assert sorted(written - set(EVENTS)) == []


def test_only_stewards_with_the_pages_token_change_settings(tmp_path: Path) -> None:
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        home.people.add(StaffMember("Ada", "steward"))
        home.people.add(StaffMember("Olga", "officer", secret=hash_password("long enough", Coins.system())), who="Ada")
        before = (home.folder / "site.toml").read_bytes()
        answer = office.ask("north", "POST", "/login", urlencode({"name": "Olga", "password": "long enough"}), token=False)
        olga = {"Cookie": answer.headers["Set-Cookie"].split(";")[0]}
        page = office.ask("north", "GET", "/settings", headers=olga, token=False).text
        csrf = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]  # type: ignore[index]
        form = {"name": "policy.min_rows", "value": "5000", "version": version_of(home.folder)}
        assert office.ask("north", "POST", "/settings", urlencode(form), headers=olga, token=False).status == 403
        refused = office.ask("north", "POST", "/settings", urlencode({**form, "csrf": csrf}), headers=olga, token=False)
        assert (refused.status, "this needs one of the roles: steward" in refused.text) == (400, True)
        assert (home.folder / "site.toml").read_bytes() == before


def test_a_steward_makes_a_rule_stricter_by_clicks_and_the_log_has_it(tmp_path: Path, person: Callable[..., Person]) -> None:
    with Consoles(tmp_path, NAMES) as office:
        home = office.office.net.sites["north"].home
        ada = person(office, "north")
        page = ada.see("/settings")
        page.get_by_label("Rule", exact=True).select_option("policy.min_rows")
        page.get_by_label("New value").fill("2,000")
        ada.press("Change it")
        ada.says("The rule is stricter now")
        assert home.config.policy.min_rows == 2000  # without a restart
        assert SiteConfig.read(home.folder / "site.toml").policy.min_rows == 2000
        assert home.audit.where("event", "setting changed")[-1]["keys"] == ["policy.min_rows"]
        assert home.audit.where("event", "policy")[-1]["changed"] == ["min_rows = 2000"]
        assert {entry["who"] for entry in home.audit.where("event", "setting changed")} == {"Ada"}
        page.get_by_label("Rule", exact=True).select_option("policy.min_rows")
        page.get_by_label("New value").fill("1")
        ada.expected.append("400")
        ada.press("Change it")
        ada.says("it can only become stricter here")
        assert home.config.policy.min_rows == 2000
        # looser rules are the operator's: in the file, and in force once a steward reloads it
        change_settings(home.folder, {"policy.min_rows": 1234}, version_of(home.folder))
        row = ada.see("/settings").get_by_role("row", name="Minimum number of rows here")
        expect(row).to_contain_text("2,000")
        ada.press("Reload site.toml and pins")
        ada.says("The settings were reloaded")
        expect(row).to_contain_text("1,234")
        assert home.audit.where("event", "policy")[-1]["changed"] == ["min_rows = 1234"]
