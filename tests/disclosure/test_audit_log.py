"""The audit log: chained, and a torn line does not count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import LedgerError
from blindbayes.io.chain import GENESIS


def test_the_audit_log_chains_and_notices_every_change(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    assert log.head == GENESIS
    heads = [log.append("approved", study="ab"), log.append("joined", run="r1"), log.append("ended", run="r1", code=0)]
    assert log.head == heads[-1]
    assert [entry["event"] for entry in log.entries()] == ["approved", "joined", "ended"]
    assert log.verify(must_hold=heads[1]) == 3
    lines = log.path.read_text().splitlines()
    for damaged in (
        [lines[0], lines[2]],
        [lines[1], lines[0], lines[2]],
        [lines[0].replace("approved", "refused!"), *lines[1:]],
        [json.dumps({**json.loads(lines[0]), "hash": "00"}), *lines[1:]],
        ["nonsense", *lines[1:]],
    ):
        log.path.write_text("\n".join(damaged) + "\n")
        with pytest.raises(LedgerError):
            log.verify()
    log.path.write_text("\n".join(lines[:2]) + "\n")
    assert log.verify() == 2
    with pytest.raises(LedgerError, match="cut or replaced"):
        log.verify(must_hold=heads[2])  # another site has seen more


def test_a_torn_line_of_the_audit_log_is_recorded_and_does_not_count(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.append("approved", study="ab")
    with log.path.open("ab") as file:
        file.write(b'{"number": 1, "ev')
    log.append("joined", run="r1")
    assert [entry["event"] for entry in log.entries()] == ["approved", "torn", "joined"]
    assert log.verify() == 3
