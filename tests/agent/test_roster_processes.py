"""A consortium of real processes, by the commands that people type: one comes, tables change, one leaves with its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes.cli import root
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.testing.loopback import Loopback
from support.consortium import BOOK, edit, make_rows
from support.sites import paper_policy

NAMES = ("north", "south", "west", "east")


def typed(*words: str, fails: bool = False) -> str:
    found = CliRunner().invoke(root, list(words))
    assert (found.exit_code != 0) == fails, (found.output, found.exception)
    return f"{found.output}{found.exception or ''}"


def agree(net: Loopback, path: Path, *names: str) -> None:
    """The file goes round until all have signed, then each site's people approve what they compared by voice."""
    homes = {name: str(net.sites[name].home.folder) for name in names}
    for name in names:
        if name in StudyFile.from_toml(path).roster.signers:
            typed("study", "sign", str(path), "--config", homes[name])
    said = typed("study", "hash", str(path)).strip()
    for home in homes.values():
        typed("site", "approve", str(path), "--hash", said, "--runs", "5", "--config", home)


def run(net: Loopback, path: Path, base: str | None = None) -> dict[str, Any]:
    more = () if base is None else ("--base", base)
    home = str(net.sites["north"].home.folder)
    found: dict[str, Any] = json.loads(typed("study", "run", str(path), *more, "--config", home, "--json"))
    assert found["state"] == "done", found
    return found


@pytest.mark.slow
def test_a_consortium_lives_by_commands_between_processes(tmp_path: Path) -> None:
    policy = paper_policy()
    path = tmp_path / "study.toml"
    with Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES), policy=policy) as net:
        cards = {name: str(site.home.folder / "card.toml") for name, site in net.sites.items()}
        founders = tuple(party for party in net.make_study(BOOK).parties if party.name != "east")
        study = net.make_study(
            BOOK,
            parties=founders,
            protocol="oblivious_sum",
            options={"scheme": "ristretto", "keys": "standing", "views": True},
            hosts={"miner": "north"},
            privacy=Privacy(epsilon=1.0),
            limits=Limits(min_parties=2),
            deadlines=Deadlines(step=40, join=60, run=120),
        )
        path.write_text(study.to_toml())
        agree(net, path, "north", "south", "west")
        first = run(net, path)
        assert "east comes" in typed("study", "roster", "change", str(path), "--add", cards["east"])
        home = str(net.sites["south"].home.folder)
        assert "not signed by" in typed("site", "approve", str(path), "--config", home, fails=True)
        agree(net, path, *NAMES)
        edit(tmp_path, "south", 3, add=4, remove=1)
        second = run(net, path, first["run"])
        typed("site", "withdraw", study.sha256, "--config", str(net.sites["west"].home.folder))
        third = run(net, path, second["run"])
        typed("study", "roster", "change", str(path), "--remove", "west")
        agree(net, path, "north", "south", "east")
        fourth = run(net, path, third["run"])
        told = json.loads((Path(fourth["release"]) / "run.json").read_text())
        assert told["study"] == study.sha256
        assert told["included"] == ["north", "south", "east"]
        assert "epsilon = 2" in (Path(fourth["release"]) / "statement.md").read_text()
        assert [each["missing"] for each in json.loads(typed("study", "roster", "show", str(path), "--json"))["changes"]] == [
            [],
            [],
        ]
        assert "west leaves" in typed("study", "check", str(path))
        assert {name: site.home.ledger.charges_of(study.sha256) for name, site in net.sites.items()} == dict.fromkeys(NAMES, 2)
