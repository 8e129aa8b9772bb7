"""Records of a site: log and ledger, checked from the first byte when asked."""

from __future__ import annotations

from pathlib import Path

from support.consoles import Consoles


def test_log_and_ledger_are_checked_from_the_first_byte_when_asked(tmp_path: Path) -> None:
    with Consoles(tmp_path, ("north", "south", "west")) as office:
        home = office.office.net.sites["north"].home
        for page in ("/log", "/ledger"):
            text = office.ask("north", "GET", page, token=False, headers=office.sign_in("north")).text
            assert "Verify the whole log and ledger now" in text
        found = office.ask("north", "POST", "/api/verify").json
        log, ledger = found["checks"]
        assert (log["problem"], ledger["problem"], ledger["entries"]) == ("", "", len(home.ledger.entries()))
        assert home.audit.entries()[-1]["event"] == "chains checked"
        assert home.audit.entries()[log["entries"] - 1]["hash"] == log["head"]
        home.ledger.path.write_bytes(home.ledger.path.read_bytes().replace(b"north", b"nerth", 1))
        log, ledger = office.ask("north", "POST", "/api/verify").json["checks"]
        assert log["problem"] == ""
        assert "ledger" in ledger["problem"]
        home.audit.path.write_bytes(home.audit.path.read_bytes()[:-200])
        assert all(each["problem"] for each in office.ask("north", "POST", "/api/verify").json["checks"])
