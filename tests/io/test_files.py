"""What was promised to be on disk is there after a power loss, whenever it comes: ledger, log, journal, shares, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.io.files import erase, write_whole
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.net.journal import Begun, Journal, code_version
from support.power_loss import Disk, Loss

KEY = bytes(range(32))
BEGUN = Begun("ab" * 32, "run-1", "north", b"s" * 32, b"d" * 32, code_version())
LOSSES: tuple[Loss, ...] = ("all", "half", "none")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def disk(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    watched = Disk(site, monkeypatch)
    yield watched
    watched.close()


def moments(disk: Disk, step: Callable[[], None], into: Path) -> Iterator[tuple[bool, Path]]:
    """Yield what is left when the power fails at each sync of a step, and whether the step had returned."""
    at, returned = 0, False
    while not returned:
        with disk.cut(at):
            step()
            returned = True
        for loss in LOSSES:
            yield returned, disk.after(into / f"{at}-{loss}", loss)
        at += 1


def test_the_disk_forgets_what_was_not_synced(site: Path, disk: Disk, tmp_path: Path) -> None:
    (site / "a").write_bytes(b"never synced")
    assert list(disk.after(tmp_path / "first").iterdir()) == []
    write_whole(site / "a", b"one")
    with (site / "a").open("ab") as file:
        file.write(b" two")
    assert (disk.after(tmp_path / "second") / "a").read_bytes() == b"one"
    assert (disk.after(tmp_path / "third", "half") / "a").read_bytes() == b"one t"


def test_a_charge_that_was_made_is_there(site: Path, disk: Disk, tmp_path: Path) -> None:
    ledger = Ledger.create(site / "ledger.jsonl", epsilon=10)
    assert Ledger(disk.after(tmp_path / "new") / "ledger.jsonl").balance().charges == 0
    for returned, left in moments(disk, lambda: ledger.charge(Spend(1, 0), purpose="a release", unit="one record"), tmp_path):
        found = Ledger(left / "ledger.jsonl")
        assert found.balance().charges >= returned
        found.charge(Spend(1, 0), purpose="the next", unit="one record")  # debris is recorded, and nothing is lost
        found.verify()


def test_an_entry_of_the_audit_log_is_there(site: Path, disk: Disk, tmp_path: Path) -> None:
    log = AuditLog(site / "audit.log")
    for returned, left in moments(disk, lambda: log.append("computing", run="r1"), tmp_path):
        found = AuditLog(left / "audit.log")
        assert len(found.entries()) >= returned
        found.append("joined", run="r2")
        found.verify()


def test_a_file_is_replaced_whole_or_not_at_all(site: Path, disk: Disk, tmp_path: Path) -> None:
    path = site / "site.toml"
    write_whole(path, b"old" * 100)
    for returned, left in moments(disk, lambda: write_whole(path, b"new" * 200), tmp_path):
        found = (left / path.name).read_bytes()
        assert found == b"new" * 200 or (not returned and found == b"old" * 100)


def test_an_erased_file_does_not_come_back(site: Path, disk: Disk, tmp_path: Path) -> None:
    write_whole(site / "key", KEY)
    erase(site / "key")
    for loss in LOSSES:
        assert not (disk.after(tmp_path / loss, loss) / "key").exists()


def test_a_charge_of_a_share_is_there(site: Path, disk: Disk, tmp_path: Path) -> None:
    share = ModelShare("0" * 64, "hospital", {}, {"insurer": {"v": np.zeros((1, 1, 1, 1), np.uint64)}}, {}, {}, 10)
    share.save(site / "h.share")
    share.charge(2, "first")
    for returned, left in moments(disk, lambda: share.charge(3, "second"), tmp_path):
        assert ModelShare.load(left / "h.share").spent in ({5} if returned else {2, 5})


def test_a_journal_has_what_was_committed(site: Path, disk: Disk, tmp_path: Path) -> None:
    """Its first record is on disk before anything is sent, and each message before it is acknowledged."""
    runs = site / "runs" / "run-1"

    def begin() -> None:
        (Journal.find(runs, "run-1", KEY) or Journal.create(runs, BEGUN, KEY)).close()

    for returned, left in moments(disk, begin, tmp_path / "begun"):
        found = Journal.find(left / "runs" / "run-1", "run-1", KEY)
        assert (found is not None) >= returned
        if found is not None:
            found.close()
    journal = Journal.open(runs, "run-1", KEY)
    sizes = [10, 300_000, 20]  # a large record is written past the cache
    for number, size in enumerate(sizes):
        journal.receive("south", "VectorSent", bytes([number]) * size)
        for returned, left in moments(disk, journal.commit, tmp_path / f"message{number}"):
            found = Journal.open(left / "runs" / "run-1", "run-1", KEY)
            assert found.count("south") >= number + returned
            for index in range(number + returned):
                assert found.take("south", index)[1] == bytes([index]) * sizes[index]
            found.close()
    journal.close()
