"""A new identity for an old site: its ledger and audit log go with it, and one table has one site."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.store.folder import SiteFolder, sole_agent
from blindbayes.cli.commands.site import command
from blindbayes.errors import ConfigError
from blindbayes.net.identity import Identity


def typed(*arguments: Any, fails: bool = False) -> str:
    done = CliRunner().invoke(command, [str(each) for each in arguments])
    assert (done.exception is not None) == fails, done.output
    return f"{done.output} {done.exception}"


@pytest.fixture
def old(tmp_path: Path) -> SiteFolder:
    (tmp_path / "visits.csv").write_text("class,colour\n")
    rows = Rows(str(tmp_path / "visits.csv"), name="visits")
    home, _ = SiteFolder.create(tmp_path / "old", "north", config=SiteConfig(rows=rows), epsilon="3")
    home.ledger.note("exact_sum", run="1" * 32)
    return home


def test_a_new_identity_takes_over_ledger_log_and_table(old: SiteFolder, tmp_path: Path) -> None:
    own, entries = Identity.load(old.folder).card.identity.hex(), old.audit.entries()
    head = old.ledger.head
    facts: dict[str, Any] = {"run": "1" * 32, "study": "2" * 64, "exact": True, "table": "visits", "rows": "d", "quorum": 3}
    old.audit.append("computing", **facts, contributors=[own, "b" * 64, "c" * 64])
    typed("init", tmp_path / "new", "--name", "north", "--succeeds", old.folder)
    new = SiteFolder.open(tmp_path / "new")
    assert new.ledger.verify(head) == head
    assert new.ledger.balance().epsilon == 3
    assert new.audit.entries()[: len(entries)] == entries
    assert new.config.rows == old.config.rows
    identity = Identity.load(new.folder).card.identity.hex()
    assert identity != own
    bound = new.history.binding()
    assert bound.same_site == dict.fromkeys((own, identity), "this site")
    assert [each.table for each in bound.sums] == ["visits"]
    with pytest.raises(ConfigError, match=r"no site\.toml"):
        SiteFolder.open(old.folder)


def test_a_site_whose_agent_runs_is_not_succeeded(old: SiteFolder, tmp_path: Path) -> None:
    with sole_agent(old.folder):
        assert "running already" in typed("init", tmp_path / "new", "--name", "north", "--succeeds", old.folder, fails=True)
    SiteFolder.open(old.folder)
    assert not (tmp_path / "new").exists()  # keys were left there, and the next attempt was refused because of them
    typed("init", tmp_path / "new", "--name", "north", "--succeeds", old.folder)


def test_people_pins_settings_and_secrets_go_along(old: SiteFolder, tmp_path: Path) -> None:
    """Named people did not: the log knew of a steward, people.toml had none, and nobody could decide anything."""
    south = Identity.generate("south").card
    old.pin(south)
    old.people.add(Person("Ada", "steward"))
    for name, content in {"secrets/db": "canary", "data/more.csv": "class"}.items():
        (old.folder / name).parent.mkdir()
        (old.folder / name).write_text(content)
    site = old.folder / "site.toml"
    password = 'smtp = "mail:25"\nsmtp_password = "${file:secrets/db}"\nmail_from = "a@x.example"\nmail_to = ["b@x.example"]'
    site.write_text(site.read_text().replace("min_free_mb = 256", "min_free_mb = 99") + f"\n[notify]\n{password}\n")
    typed("init", tmp_path / "new", "--name", "north", "--succeeds", old.folder, "--listen", "127.0.0.1:7999", "--exact-sums")
    new = SiteFolder.open(tmp_path / "new")
    assert new.peers() == {"south": south}
    assert new.people.require("approve", "Ada") == "Ada"
    assert (new.config.min_free_mb, new.config.listen, new.config.policy.exact_sums) == (99, "127.0.0.1:7999", True)
    assert new.config.rows == old.config.rows
    assert (new.folder / "data" / "more.csv").read_text() == "class"
    assert new.config.notify is not None
    assert new.config.notify.smtp_password == "canary"
    assert "canary" not in (new.folder / "site.toml").read_text()


def test_a_second_site_for_one_table_is_refused(old: SiteFolder, tmp_path: Path) -> None:
    table = tmp_path / "visits.csv"
    said = typed("init", tmp_path / "new", "--name", "north", "--table", table, fails=True)
    assert "--succeeds old" in said
    assert not (tmp_path / "new").exists()
    (tmp_path / "others.csv").write_text("class,colour\n")
    typed("init", tmp_path / "new", "--name", "north", "--table", tmp_path / "others.csv")


def test_root_is_refused_on_the_folder_of_another_account(old: SiteFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that root pinned could not be read by the agent of the account `blindbayes`."""
    facts = list(old.folder.stat())
    facts[4] = 7440
    monkeypatch.setattr("blindbayes.agent.store.folder.os.geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(facts))
    with pytest.raises(ConfigError, match="sudo -u '#7440'"):
        SiteFolder.open(old.folder)
