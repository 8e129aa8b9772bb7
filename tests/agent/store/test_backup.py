"""A site that comes back from a backup: sealed, consistent, and nothing runs until the worst case is booked."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import msgspec
import pytest

from blindbayes.agent.approvals.people import Person
from blindbayes.agent.config import Rows
from blindbayes.agent.store import backup as backups
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError, LedgerError, PeerProtocolError, PrivacyError
from blindbayes.study.file import Privacy
from support.recovery import reopen, study_of
from support.sites import Office, bounded

NAMES = ("north", "south", "west")
PHRASE = "correct horse battery"


def test_a_restored_site_spends_nothing_before_the_worst_case_is_booked(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            noisy, exact = study_of(office, privacy=Privacy(epsilon=1.0)), study_of(office, title="exact")
            office.net.approve(noisy, runs=9)
            office.net.approve(exact, runs=9)
            assert (await office.run(noisy))["north"].state == "done"
            home = office.net.sites["north"].home
            assert backups.backup(home, tmp_path / "b", PHRASE, who="Ada") > 5
            assert (await office.run(noisy))["north"].state == "done"
            assert home.ledger.balance().spent_epsilon == 2.0
            await office.stop("north")
            shutil.rmtree(home.folder)
            backups.restore(tmp_path / "b", home.folder, PHRASE)
            home = reopen(office, "north")
            assert home.ledger.balance().spent_epsilon == 1.0
            assert home.approvals.all() == []
            north = await office.start("north")
            home.approvals.approve(noisy, runs=9)
            home.approvals.approve(exact, runs=9)
            with pytest.raises(PrivacyError, match="came back from a backup"):
                north.begin(noisy.sha256)
            refused = await office.run(noisy, by="south")  # nor when others ask
            assert "north" not in refused
            booked = backups.acknowledge(home, "south saw one more entry", who="Ada")
            assert booked["epsilon"] == 9.0  # all that was left
            assert home.ledger.balance().left == 0.0
            again = await office.run(noisy)  # the others remember newer heads
            assert any(isinstance(run.error, PeerProtocolError | LedgerError) for run in again.values())
            for name in ("south", "west"):
                office.net.sites[name].home.audit.append("forgot", site="north", why="talked")
            spent = (await office.run(noisy))["north"]
            assert isinstance(spent.error, PrivacyError)
            assert "budget" in str(spent.error)
            sums = (await office.run(exact))["north"]
            assert isinstance(sums.error, PrivacyError)
            assert "exact sums that are lost" in str(sums.error)
            with pytest.raises(ConfigError, match="did not come back"):
                backups.acknowledge(home, "again")

    bounded(test, 90)


def test_a_restored_site_that_lost_nothing_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study, runs=9)
            home = office.net.sites["north"].home
            backups.backup(home, tmp_path / "b", PHRASE)
            await office.stop("north")
            shutil.rmtree(home.folder)
            backups.restore(tmp_path / "b", home.folder, PHRASE)
            home = reopen(office, "north")
            backups.acknowledge(home, "the agent was stopped since", nothing_ran=True)
            home.approvals.approve(study)
            await office.start("north")
            runs = await office.run(study)
            assert {name: str(run.error) for name, run in runs.items()} == dict.fromkeys(NAMES, "None")
            assert home.ledger.balance().left == 10.0

    bounded(test)


def test_a_ledger_that_alone_came_back_is_noticed_by_the_site_itself(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office, privacy=Privacy(epsilon=1.0))
            office.net.approve(study, runs=9)
            home = office.net.sites["north"].home
            old = home.ledger.path.read_bytes()
            for _ in range(2):
                assert (await office.run(study))["north"].state == "done"
            await office.stop("north")
            home.ledger.path.write_bytes(old)
            reopen(office, "north")
            north = await office.start("north")
            with pytest.raises(LedgerError, match="audit log has seen"):
                north.begin(study.sha256)

    bounded(test)


def test_a_backup_is_sealed_and_leaves_runs_under_way_and_tokens_out(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES)
    home = office.net.sites["north"].home
    (home.folder / "runs" / ("a" * 32) / "north").mkdir(parents=True)
    (home.folder / "runs" / ("a" * 32) / "north" / "key").write_bytes(b"secret coins")
    (home.folder / "operator.token").write_bytes(b"token")
    (home.folder / "releases").mkdir()
    (home.folder / "releases" / "large").write_bytes(bytes(3_000_000))
    with pytest.raises(ConfigError, match="at least 12"):
        backups.backup(home, tmp_path / "b", "short")
    backups.backup(home, tmp_path / "b", PHRASE)
    raw = (tmp_path / "b").read_bytes()
    assert b"audit.log" not in raw
    with pytest.raises(ConfigError, match="exists"):
        backups.backup(home, tmp_path / "b", PHRASE)
    piece = (1 << 20) + 16
    head, body = raw[:36], raw[36:]
    swapped = head + body[piece : 2 * piece] + body[:piece] + body[2 * piece :]
    spoiled = {"flipped": raw[:5000] + bytes([raw[5000] ^ 1]) + raw[5001:], "cut": raw[: 36 + 2 * piece], "swapped": swapped}
    for name, content in spoiled.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match="was changed"):
            backups.restore(tmp_path / name, tmp_path / f"from-{name}", PHRASE)
    with pytest.raises(ConfigError, match="does not open"):
        backups.restore(tmp_path / "b", tmp_path / "wrong", PHRASE + "!")
    with pytest.raises(ConfigError, match="not empty"):
        backups.restore(tmp_path / "b", home.folder, PHRASE)
    back = backups.restore(tmp_path / "b", tmp_path / "back", PHRASE)
    assert (back.folder / "releases" / "large").stat().st_size == 3_000_000
    assert not (back.folder / "operator.token").exists()
    assert not list(back.folder.rglob("key"))
    assert {path.stat().st_mode & 0o077 for path in back.folder.rglob("*") if path.is_file()} == {0}
    assert back.audit.entries()[:-1] == home.audit.entries()[:-1]  # then `restored` there and `backed up` here


def names_of(sealed: Path) -> set[str]:
    with sealed.open("rb") as file:
        file.seek(len(backups._MAGIC))
        content = b"".join(backups._opened(file, backups._key(PHRASE, file.read(16))))
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return set(tar.getnames())


@pytest.mark.parametrize("source", ["visits.txt", "duckdb://{folder}/rows.duckdb", "parts", "data/visits.csv"])
def test_a_backup_contains_no_table(tmp_path: Path, source: str) -> None:
    """Tables of data/, the table in use wherever it lies in the folder, and tables that somebody left beside it."""
    home = Office(tmp_path, NAMES).net.sites["north"].home
    rows = [
        "data/visits.csv",
        "data/old/visits.dat",
        "visits.txt",
        "rows.duckdb",
        "rows.duckdb.wal",
        "parts/0.bin",
        "old.CSV.gz",
    ]
    for name in rows:
        (home.folder / name).parent.mkdir(exist_ok=True, parents=True)
        (home.folder / name).write_bytes(b"canary row")
    for name in ("secrets/db.txt", "releases/r/classes.csv"):
        (home.folder / name).parent.mkdir(parents=True)
        (home.folder / name).write_bytes(b"belongs to it")
    used = Rows(source.format(folder=home.folder))
    home = SiteFolder(home.folder, msgspec.structs.replace(home.config, rows=used))
    backups.backup(home, tmp_path / "b", PHRASE)
    left = {name for name in names_of(tmp_path / "b") if name in rows}
    assert left == (set() if source == "parts" else {"parts/0.bin"})  # an unknown ending that nobody named as a table
    assert {"secrets/db.txt", "releases/r/classes.csv", "site.toml", "audit.log"} <= names_of(tmp_path / "b")


def test_the_nightly_backup_of_a_service_account_goes_on_when_people_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Office(tmp_path, NAMES).net.sites["north"].home
    home.people.add(Person("Ada", "steward", account="ada"))
    home.people.add(Person("Bob", "analyst"), who="Ada")
    monkeypatch.setattr("blindbayes.agent.approvals.people.account", lambda: "blindbayes")
    backups.backup(home, tmp_path / "night", PHRASE)
    assert home.audit.where("event", "backed up")[-1]["who"] == "blindbayes"
    with pytest.raises(PrivacyError, match="Bob is analyst"):
        backups.backup(home, tmp_path / "b", PHRASE, who="Bob")
    with pytest.raises(PrivacyError, match="not in this site's"):
        backups.acknowledge(home, "a decision is for people")
