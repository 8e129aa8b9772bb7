"""The hash chain under ledger and audit log: a process that has read it notices what was cut off or replaced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from blindbayes.errors import LedgerError
from blindbayes.io.chain import Chain, ChainFormat

FORM = ChainFormat("log", prefix=b"test", clock=lambda: "now")


def chain(folder: Path) -> Chain:
    made = Chain(folder / "log", FORM)
    for number in range(3):
        made.append("counted", {"at": number})
    return made


def test_a_line_that_is_cut_off_is_noticed_by_the_process_that_wrote_it(tmp_path: Path) -> None:
    made = chain(tmp_path)
    lines = made.path.read_bytes().splitlines(keepends=True)
    made.path.write_bytes(b"".join(lines[:2]))
    assert len(Chain(made.path, FORM).entries()) == 2  # by itself a shorter chain is a chain
    for read in (made.entries, lambda: made.append("counted", {})):
        with pytest.raises(LedgerError, match="cut or replaced"):
            read()


def test_a_chain_that_is_replaced_is_noticed_even_if_it_is_longer(tmp_path: Path) -> None:
    made, other = chain(tmp_path), Chain(tmp_path / "other", FORM)
    for number in range(5):
        other.append("counted", {"at": -number})
    made.path.write_bytes(other.path.read_bytes())
    with pytest.raises(LedgerError, match="cut or replaced"):
        made.entries()


def test_a_disk_that_fails_under_a_chain_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that began a run on a full disk ended in an OSError (found by tests/system)."""
    again = Chain(chain(tmp_path).path, FORM)

    def fails(handle: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(LedgerError, match="log: the log cannot be read"):
        again.entries()
