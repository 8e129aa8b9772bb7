"""`blindbayes bench`: every protocol is measured, a codebook that fits no study over columns is told so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blindbayes.cli import main
from blindbayes.cli.bench import COLUMNS
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.protocol import registry


def bench(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, object]]]:
    main(["bench", "--json", "--rows", "200", "--instances", "5", *arguments])
    found: dict[str, list[dict[str, object]]] = {}
    for line in json.loads(capsys.readouterr().out)["measured"]:
        found.setdefault(line["protocol"], []).append(line)
    return found


def test_every_protocol_is_measured_with_the_demo_codebook(capsys: pytest.CaptureFixture[str]) -> None:
    found = bench(capsys)
    assert set(found) == {*registry.known(), *COLUMNS}
    for lines in found.values():
        for line in lines:
            assert all(line[name] > 0 for name in ("bytes", "rounds", "cpu_seconds")), line
    assert len(found["class_sums"]) == 2  # training and classes
    assert found["reference"][0]["times_reference"] == 1.0


def test_a_codebook_without_variance_floor_is_measured_for_rows_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    book = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")), Numeric("x", 0, 10, 0.5), Numeric("z", 0, 9, 1, bins=3)))
    book.to_toml(tmp_path / "book.toml")
    found = bench(capsys, "--codebook", str(tmp_path / "book.toml"), "--protocol", "masked_sum", "--protocol", "class_sums")
    assert "variance_floor" in str(found["class_sums"][0]["why"])
    assert found["masked_sum"][0]["bytes"] > 0
