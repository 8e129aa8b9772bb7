"""The console's port: probes, metrics, and browsers that watch a page."""

from __future__ import annotations

import socket
from pathlib import Path

import msgspec
import pytest

from blindbayes.console.port import _metrics_token
from blindbayes.errors import ConfigError
from support.consoles import Consoles


def test_health_is_for_all_and_metrics_have_a_token_that_lasts_and_does_no_more(office: Consoles, tmp_path: Path) -> None:
    assert office.ask("north", "GET", "/healthz", token=False).json == {"alive": True}
    assert office.ask("north", "GET", "/readyz", token=False).json == {"ready": True}
    assert office.ask("north", "GET", "/metrics", token=False).status == 401
    path = office.office.net.sites["north"].home.folder / "metrics.token"
    assert path.stat().st_mode & 0o077 == 0
    reader = {"Authorization": f"Bearer {path.read_text().strip()}"}
    found = office.ask("north", "GET", "/metrics", token=False, headers=reader)
    assert found.headers["Content-Type"].startswith("application/openmetrics-text")
    assert found.text.endswith("# EOF\n")
    assert office.ask("north", "GET", "/api/status", token=False, headers=reader).status == 401
    assert office.ask("north", "POST", "/api/runs", {}, token=False, headers=reader).status == 401
    office.stop("north")
    office.start("north")
    assert office.ask("north", "GET", "/metrics", token=False, headers=reader).status == 200


def test_the_probes_can_have_a_port_of_their_own_and_nothing_else_is_there(tmp_path: Path) -> None:
    office = Consoles(tmp_path, ("north", "south", "west"))
    home = office.office.net.sites["north"].home
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    home.config = msgspec.structs.replace(home.config, metrics=f"127.0.0.1:{port}")
    with office:
        office.ports["probes"] = auth = office.ports["north"].__class__(office.office.agents["north"])
        auth.address = f"127.0.0.1:{port}"
        assert office.ask("probes", "GET", "/healthz", token=False).status == 200
        assert office.ask("probes", "GET", "/metrics", token=False).status == 401
        reader = {"Authorization": f"Bearer {(home.folder / 'metrics.token').read_text().strip()}"}
        assert office.ask("probes", "GET", "/metrics", token=False, headers=reader).status == 200
        right = {"Authorization": f"Bearer {office.ports['north'].auth.token}"}
        assert office.ask("probes", "GET", "/api/status", token=False, headers=right).status == 404
        del office.ports["probes"]


def test_a_damaged_metrics_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.token").write_bytes(b"\xff\xfe")
    (tmp_path / "metrics.token").chmod(0o600)
    with pytest.raises(ConfigError, match=r"metrics.token is damaged"):
        _metrics_token(tmp_path)
