"""Rules that a steward makes stricter in the console; looser ones stay in the file."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

import blindbayes
from blindbayes.agent import site_file
from blindbayes.agent.approvals.people import Person as StaffMember
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.stricter import STRICTER, make_stricter
from blindbayes.console.strings import EVENTS
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy.min_rows", "9"),
        ("policy.min_rows", "10"),
        ("policy.min_rows", "many"),
        ("policy.max_epsilon_per_run", "2.5"),
        ("policy.max_epsilon_per_run", "nan"),
        ("policy.max_epsilon_per_run", "-1"),
        ("policy.exact_sums", "yes"),
        ("policy.changed_data", "yes"),
        ("policy.noise_in_shares", "no"),
        ("policy.protocols", "masked_sum, chain_sum"),
        ("policy.approvers", "2"),
        ("policy.site_figures", "each"),
        ("policy.site_figures", "everything"),
        ("console.preview_rows", "20"),
        ("console.databases", "evil:5432"),
        ("console.data", "/etc"),
        ("operator", "127.0.0.1:1"),
        ("rows.source", "/etc/passwd"),
        ("policy", "{}"),
    ],
)
def test_what_is_not_stricter_is_refused_and_nothing_is_written(home: SiteFolder, name: str, value: str) -> None:
    before = (home.folder / "site.toml").read_bytes()
    with pytest.raises(ConfigError):
        make_stricter(home, name, value, version_of(home.folder), "Ada")
    assert (home.folder / "site.toml").read_bytes() == before


def test_stricter_values_of_every_kind_are_written(home: SiteFolder) -> None:
    for name, value in (
        ("policy.exact_sums", "no"),
        ("policy.max_epsilon_per_run", "0.5"),
        ("policy.protocols", "masked_sum"),
        ("policy.require_all_signatures", "yes"),
        ("policy.site_figures", "none"),
        ("console.preview_rows", "0"),
        ("min_free_mb", "512"),
    ):
        assert make_stricter(home, name, value, version_of(home.folder), "Ada") == [name]
        home.reload()
    policy = home.config.policy
    assert (policy.exact_sums, policy.max_epsilon_per_run, policy.protocols) == (False, 0.5, ("masked_sum",))
    assert (policy.require_all_signatures, home.config.console.preview_rows, home.config.min_free_mb) == (True, 0, 512)
    with pytest.raises(ConfigError, match="was changed since"):
        make_stricter(home, "min_free_mb", "1024", "0" * 32, "Ada")


def test_what_the_operator_wrote_and_is_not_in_force_yet_is_not_loosened(home: SiteFolder) -> None:
    path = home.folder / "site.toml"
    text = path.read_text()
    assert "min_rows = 10 " in text
    path.write_text(text.replace("min_rows = 10 ", "min_rows = 50 "))
    before = path.read_bytes()
    assert home.config.policy.min_rows == 10
    with pytest.raises(ConfigError, match="only become stricter"):
        make_stricter(home, "policy.min_rows", "20", version_of(home.folder), "Ada")
    assert path.read_bytes() == before
    path.write_text(text.replace("min_rows = 10 ", "min_rows = 5 "))  # nor what is in force
    with pytest.raises(ConfigError, match="only become stricter"):
        make_stricter(home, "policy.min_rows", "8", version_of(home.folder), "Ada")


def test_of_two_changes_at_a_time_none_is_lost_in_silence(home: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    version, refused, threads = version_of(home.folder), list[str](), list[threading.Thread]()
    check = site_file.convert

    def second() -> None:
        try:
            make_stricter(home, "policy.exact_sums", "no", version, "Ada")
        except ConfigError as error:
            refused.append(str(error))

    def meanwhile(*given: Any) -> Any:  # after the file was read, before it is written
        if not threads:
            threads.append(threading.Thread(target=second))
            threads[0].start()
            threads[0].join(0.2)
        return check(*given)

    monkeypatch.setattr(site_file, "convert", meanwhile)
    make_stricter(home, "policy.min_rows", "50", version, "Ada")
    threads[0].join()
    home.reload()
    assert home.config.policy.min_rows == 50
    assert len(refused) == 1
    assert "was changed since" in refused[0]
    assert len(home.audit.where("event", "setting changed")) == 1


def test_a_decimal_comma_is_refused_and_not_read_as_thousands(tmp_path: Path) -> None:
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(policy=Policy(max_epsilon_per_run=10.0)))
    with pytest.raises(ConfigError, match=r"Maximum epsilon of a run: write a number with a decimal point: 0\.5"):
        make_stricter(home, "policy.max_epsilon_per_run", "0,5", version_of(home.folder), "Ada")  # 5 would be looser
    make_stricter(home, "policy.max_epsilon_per_run", "0.5", version_of(home.folder), "Ada")


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


def test_every_rule_of_the_policy_can_be_made_stricter() -> None:
    named = {name.removeprefix("policy.") for name in STRICTER if name.startswith("policy.")}
    assert named == {field.name for field in msgspec.structs.fields(Policy)}


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
