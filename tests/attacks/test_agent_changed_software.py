"""The tutorial's deployment as real processes: three sites, the first of which hosts the server and runs a changed package.

The review's attack: the first site reads the middle one's exact statistics while both honest sites end a run as done.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blindbayes.data import count
from blindbayes.data.sources import open_source
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
TESTS = Path(__file__).parents[1]
CHANGED = TESTS / "support" / "changed"


@pytest.mark.parametrize(
    ("planted", "succeeds"),
    [
        ("", False),
        # copies are not refused: names in the pair's key hold alone
        pytest.param("unchecked_keys", False, marks=pytest.mark.slow),
        pytest.param("unbound_keys", False, marks=pytest.mark.slow),  # and so do refused copies
        ("unbound_keys,unchecked_keys", True),  # the software that was reviewed
    ],
)
def test_a_changed_site_that_hosts_the_server_does_not_read_its_neighbour(tmp_path: Path, planted: str, succeeds: bool) -> None:
    stolen = tmp_path / "stolen.json"
    rows = make_rows(tmp_path, NAMES)
    net = Loopback(tmp_path / "sites", rows)
    honest = {"PYTHONPATH": f"{CHANGED}:{TESTS}", "PLANTED": planted}
    try:
        for name, site in net.sites.items():
            site.launch(environment=honest | ({"STOLEN": str(stolen)} if name == "north" else {}))
        for site in net.sites.values():
            site.wait_ready()
        study = net.make_study(BOOK, deadlines=Deadlines(step=30, join=40, run=80))
        assert study.hosts == {"server": "north"}  # as `study init` chooses it
        net.approve(study)
        ended = net.run(study)
    finally:
        for site in net.sites.values():
            site.stop()
    with open_source(str(rows["south"])) as source:
        vector = [int(word) for word in count(source, BOOK).words]
    read = json.loads(stolen.read_text()) if stolen.exists() else None
    states = {name: run["state"] for name, run in ended.items()}
    if succeeds:
        assert read == vector  # the attack is what it says it is
        assert states == dict.fromkeys(NAMES, "done")
        return
    assert read != vector
    assert states["south"] == states["west"] == "failed"
    if not planted:
        assert {ended[name].get("party") for name in ("south", "west")} <= {"server", "north"}
