"""`benchmarks/protocol_costs.py` measures every protocol, and says which of them a codebook does not fit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto import kernels
from blindbayes.protocols import registry

Measured = dict[str, list[dict[str, Any]]]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Measured]:
    if not kernels.available():
        monkeypatch.setenv(kernels.VARIABLE, "off")
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import protocol_costs

    def run(*arguments: str) -> Measured:
        monkeypatch.setattr(sys, "argv", ["protocol_costs.py", "--json", "--quick", *arguments])
        protocol_costs.main()
        found: Measured = {}
        lines = json.loads(capsys.readouterr().out)["measured"]
        protocol_costs.show(lines, 200)  # as it prints without --json
        assert len(capsys.readouterr().out.splitlines()) == 2 + len(lines)
        for line in lines:
            found.setdefault(line["protocol"], []).append(line)
        return found

    return run


def test_every_protocol_is_measured_with_the_demo_codebook(costs: Callable[..., Measured]) -> None:
    found = costs()
    for name in (*registry.known(), "class_sums", "joined_sums"):
        for line in found[name]:
            assert all(line[name] > 0 for name in ("bytes", "rounds", "cpu_seconds")), line
    assert len(found["class_sums"]) == 2  # training and classes


def test_a_codebook_without_variance_floor_is_measured_for_rows_only(costs: Callable[..., Measured], tmp_path: Path) -> None:
    book = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")), Numeric("x", 0, 10, 0.5), Numeric("z", 0, 9, 1, bins=3)))
    book.to_toml(tmp_path / "book.toml")
    found = costs("--codebook", str(tmp_path / "book.toml"), "--protocol", "masked_sum", "--protocol", "class_sums")
    assert "variance_floor" in str(found["class_sums"][0]["why"])
    assert found["masked_sum"][0]["bytes"] > 0
