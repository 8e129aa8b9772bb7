"""Every reader of what others send: only errors of the package come out, in bounded time and memory. `make fuzz` goes on."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from blindbayes.errors import BlindbayesError, ConfigError
from fuzz import engine
from fuzz.engine import CORPUS, FoundError, Fuzzer, corpus, folder_of, minimised
from fuzz.targets import NAMES, Target, every_target
from support.mutations import NASTY


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return {target.name: target for target in every_target(tmp_path_factory.mktemp("fuzz"))}


every_name = pytest.mark.parametrize("name", NAMES)


def test_the_list_names_every_target(targets: dict[str, Target]) -> None:
    assert tuple(targets) == NAMES


@every_name
def test_what_is_good_is_read(targets: dict[str, Target], name: str) -> None:
    for seed in targets[name].seeds:
        targets[name].read(seed)


@every_name
def test_whatever_others_send_ends_in_an_error_of_the_package(targets: dict[str, Target], name: str) -> None:
    """The kept inputs, those that are nothing but nasty, and the first mutated ones of a fixed seed."""
    fuzzer = Fuzzer(targets[name])
    kept = corpus(targets[name])
    for raw in (*kept, *NASTY[: targets[name].rounds]):
        fuzzer.check(raw)
    fuzzer.run(targets[name].rounds)


@pytest.mark.slow
@every_name
def test_so_does_every_mutation_of_a_long_run(targets: dict[str, Target], name: str) -> None:
    Fuzzer(targets[name], seed=2).run(50 * targets[name].rounds)


def test_the_corpus_belongs_to_targets_of_today_and_stays_small() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= set(map(folder_of, NAMES))
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert len(files) > 100
    assert sum(path.stat().st_size for path in files) < 512 * 1024


@pytest.fixture
def no_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(engine, "CORPUS", tmp_path)
    return tmp_path


def planted(raw: bytes) -> None:
    """A reader with three faults."""
    if b"\x00" in raw:
        raise KeyError("planted")
    if b"NaN" in raw:
        until = time.process_time() + 60
        while time.process_time() < until:
            pass
    if not raw.startswith(b"{"):
        raise ConfigError("no document")


def test_a_planted_fault_is_found_minimised_and_repeated(no_corpus: Path) -> None:
    target = Target("planted", (b'{"a": 1, "b": "text"}',), planted)
    fuzzer = Fuzzer(Target("planted", target.seeds, lambda raw: planted(raw.replace(b"NaN", b""))))
    with pytest.raises(FoundError, match="KeyError") as found:
        fuzzer.run(2000)
    raw = fuzzer.input(fuzzer.inputs - 1)
    assert repr(raw[:400]) in str(found.value)
    assert minimised(target, raw) == b"\x00"


def test_an_endless_reader_is_stopped(no_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SECONDS", 0.2)
    with pytest.raises(FoundError, match="took more than"):
        Fuzzer(Target("planted", (b"{}",), planted)).check(b"{NaN}")


def test_a_library_that_ends_the_process_is_named_with_the_input(no_corpus: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def read(raw: bytes) -> None:
        if b"9" in raw:
            os.kill(os.getpid(), signal.SIGKILL)

    fuzzer = Fuzzer(Target("planted", (b"{}",), read))
    assert engine.watched(lambda: fuzzer.run(2000) or 0) == 1
    found = re.search(r"planted, seed 1, input (\d+): the process ended by SIGKILL", capfd.readouterr().out)
    assert found is not None
    assert b"9" in fuzzer.input(int(found[1]))
    assert engine.watched(lambda: 0) == 0


def test_a_reader_that_fills_the_memory_is_found(no_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bytearray] = []
    peaks = iter((100.0, 100.0 + engine.MEGABYTES, 900.0, 901.0))  # what other targets add in between does not count
    monkeypatch.setattr(engine, "peak_megabytes", lambda: next(peaks))
    fuzzer = Fuzzer(Target("planted", (b"{}",), held.append))  # type: ignore[arg-type]
    fuzzer.run(1)
    with pytest.raises(FoundError, match="MB after input"):
        fuzzer.run(1)


def test_inputs_with_ends_of_their_own_are_kept_once(no_corpus: Path) -> None:
    def read(raw: bytes) -> None:
        if not raw.startswith(b"{"):
            raise BlindbayesError("no document")

    target = Target("planted", (b"{} ",), read)
    fuzzer = Fuzzer(target)
    for raw in (b"{ }", b"{1}", b"x", b"y"):
        fuzzer.check(raw)
    assert fuzzer.keep() == 2
    assert {path.read_bytes() for path in (no_corpus / "planted").iterdir()} == {b"{ }", b"x"}
    assert Fuzzer(target).pool[0] == b"{} "
    assert fuzzer.keep() == 0
