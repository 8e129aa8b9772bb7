"""Stricter rules are written, looser ones are refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.site_file import version_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.agent.stricter import STRICTER, make_stricter
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError


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


def test_a_decimal_comma_is_refused_and_not_read_as_thousands(tmp_path: Path) -> None:
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(policy=Policy(max_epsilon_per_run=10.0)))
    with pytest.raises(ConfigError, match=r"Maximum epsilon of a run: write a number with a decimal point: 0\.5"):
        make_stricter(home, "policy.max_epsilon_per_run", "0,5", version_of(home.folder), "Ada")  # 5 would be looser
    make_stricter(home, "policy.max_epsilon_per_run", "0.5", version_of(home.folder), "Ada")


def test_every_rule_of_the_policy_can_be_made_stricter() -> None:
    named = {name.removeprefix("policy.") for name in STRICTER if name.startswith("policy.")}
    assert named == {field.name for field in msgspec.structs.fields(Policy)}
