"""The quick form of every paper's experiment needs no network and no data folder."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes_papers import PAPERS
from blindbayes_papers.command import command


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_papers_are_reproduced_without_network_and_say_what_they_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLINDBAYES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("asked for an address"))
    out = tmp_path / "out"
    result = CliRunner().invoke(command, ["--all", "--quick", "--out", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert {path.parent.name for path in out.glob("*/index.html")} == set(PAPERS)
    for paper in PAPERS:  # each says what it left out
        assert (out / paper / "index.html").read_text("utf-8").count("<b>The quick form.</b>") == 1, paper
    assert "downloads nothing: adult, skin" in (out / "zafarani2020" / "index.html").read_text("utf-8")
    assert not (tmp_path / "cache").exists()


def test_one_paper_or_all_must_be_named() -> None:
    for arguments in ([], ["huai2015", "--all"]):
        result = CliRunner().invoke(command, arguments)
        assert result.exit_code == 2
        assert "Name one paper, or give --all" in result.output
