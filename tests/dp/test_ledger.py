"""The ledger: budgets hold under copies, threads, processes and kill -9; every change to the file is seen."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindbayes import Categorical, Codebook
from blindbayes.dp.accounting import ledger as ledger_code
from blindbayes.dp.accounting.accountant import Account, Spend, zcdp_epsilon
from blindbayes.dp.accounting.ledger import Head, Ledger
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.noise.mechanisms import make
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.errors import ConfigError, LedgerError, PrivacyError
from blindbayes.io import chain as ledger_module

FORK = multiprocessing.get_context("fork")
ONE = Sensitivity((SensitivityBlock("h", 4),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "site.ledger"
    Ledger.create(target, epsilon="1.0", delta="1e-5")
    return target


def spend(path: Path, epsilon: str = "0.1") -> None:
    Ledger(path).charge(Spend(Fraction(epsilon)), unit="one record", purpose="test")


def in_child(action: Callable[[], Any]) -> int:
    """Run in a forked process; its exit code (negative: killed by that signal)."""
    child = FORK.Process(target=action)
    child.start()
    child.join(60)
    assert child.exitcode is not None
    return child.exitcode


# -- the budget ------------------------------------------------------------------------------------------------------------


def test_ten_tenths_fit_and_the_eleventh_is_refused(path: Path) -> None:
    mechanism = make("discrete_laplace", ONE, 0.1)
    for _ in range(10):
        Ledger(path).charge(mechanism, purpose="release")
    before = path.read_bytes()
    with pytest.raises(PrivacyError, match="budget exceeded"):
        Ledger(path).charge(mechanism, purpose="release")
    assert path.read_bytes() == before
    assert Ledger(path).balance().left == 0
    assert Ledger(path).balance().basic_epsilon == 1


def test_calibrated_epsilon_never_exceeds_what_is_charged() -> None:
    for epsilon in (0.1, 0.3, 0.7, 1e-3, 2.5, 1 / 3):
        mechanism = make("discrete_laplace", ONE, epsilon)
        assert mechanism.epsilon <= Spend.for_release(mechanism).epsilon
        assert mechanism.epsilon <= Fraction(epsilon)


def test_delta_counts_too(path: Path) -> None:
    mechanism = make("discrete_gaussian", ONE, 0.1, 6e-6)
    Ledger(path).charge(mechanism, purpose="first")
    with pytest.raises(PrivacyError):
        Ledger(path).charge(mechanism, purpose="second")


def test_parts_of_the_records_compose_in_parallel(path: Path) -> None:
    ledger = Ledger(path)
    for part in ("north", "south", "west"):
        ledger.charge(make("discrete_laplace", ONE, 0.6), purpose="regional", partition="region", part=part)
    assert ledger.balance().spent_epsilon == pytest.approx(0.6)
    with pytest.raises(PrivacyError):
        ledger.charge(make("discrete_laplace", ONE, 0.6), purpose="again", partition="region", part="west")
    with pytest.raises(PrivacyError):
        ledger.charge(make("discrete_laplace", ONE, 0.6), purpose="all records")


def test_zcdp_composition_buys_more_gaussian_releases_than_sums(tmp_path: Path) -> None:
    mechanism = make("discrete_gaussian", ONE, 0.1, 1e-7)

    def releases(composition: Any) -> int:
        ledger = Ledger.create(tmp_path / composition, epsilon=1, delta=1e-5, composition=composition)
        done = 0
        while done < 100:
            try:
                ledger.charge(mechanism, purpose="round")
            except PrivacyError:
                break
            done += 1
        return done

    assert releases("basic") == 10
    assert releases("zcdp") > 25


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_a_timeline_says_what_the_balance_said_after_each_entry(tmp_path: Path, composition: Any) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=50, delta=1e-3, composition=composition)
    spent = [ledger.balance().spent_epsilon]
    for at in range(12):
        if at == 6:
            ledger.set_budget(epsilon=60, delta=1e-3, reason="more")
            spent.append(ledger.balance().spent_epsilon)
        kind = ("discrete_laplace", 0.5) if at % 3 else ("discrete_gaussian", 0.4, 1e-6)
        parts = {"partition": "region", "part": f"part {at % 2}"} if at % 4 == 0 else {}
        ledger.charge(make(kind[0], ONE, *kind[1:]), purpose="release", **parts)
        spent.append(ledger.balance().spent_epsilon)
    for last in (1, 2, 5, 8, 14, 200):
        line = ledger.timeline(last)
        assert [each["spent"] for each in line] == pytest.approx(spent[-last:], rel=1e-9)
        assert line[-1]["budget"] == 60


def test_a_timeline_reads_each_charge_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line added all charges up anew: 3,000 charges held the agent's event loop for 19 seconds."""
    ledger = Ledger.create(tmp_path / "ledger", epsilon=50, delta=0)
    charges = 200
    for _ in range(charges):
        ledger.book(0.01, 0.0, purpose="test")
    count, inner = 0, ledger_code._spend

    def counted(entry: Any) -> Spend:
        nonlocal count
        count += 1
        return inner(entry)

    monkeypatch.setattr(ledger_code, "_spend", counted)
    assert ledger.timeline()[-1]["spent"] == pytest.approx(2)
    assert count == charges


def test_another_unit_is_refused(path: Path) -> None:
    person = Sensitivity(ONE.blocks, rows_per_unit=5)
    with pytest.raises(PrivacyError, match="one person"):
        Ledger(path).charge(make("discrete_laplace", person, 0.1), purpose="release")


def test_a_ledger_for_persons_takes_a_release_for_records_at_the_price_of_all_their_rows(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", epsilon=1, unit="one person with at most 5 records")
    entry = ledger.charge(make("discrete_laplace", ONE, "0.1"), purpose="by record")
    assert (entry.fields["epsilon"], entry.fields["group"]) == ("0.5", 5)
    with pytest.raises(PrivacyError, match="budget exceeded"):
        ledger.charge(make("discrete_laplace", ONE, "0.2"), purpose="by record")
    zcdp = Ledger.create(tmp_path / "z", epsilon=9, delta="1e-6", composition="zcdp", unit="one person with at most 5 records")
    noise = make("discrete_gaussian", ONE, "0.1", 1e-9)
    assert zcdp.charge(noise, purpose="by record").fields["rho"] == pytest.approx(25 * noise.price.rho)


def test_a_ledger_refuses_privacy_loss_distributions(tmp_path: Path) -> None:
    """S2: they hold for prices fixed beforehand, and a ledger is charged for releases chosen one after the other."""
    with pytest.raises(ConfigError, match="chosen one after the other"):
        Ledger.create(tmp_path / "l", epsilon=1, delta="1e-6", composition="pld")
    assert not (tmp_path / "l").exists()


def test_a_gaussian_fit_is_charged_its_rho(tmp_path: Path) -> None:
    """A fit in stages had no rho: a zCDP ledger added its (epsilon, delta) on top."""
    book = Codebook("y", ("a", "b"), tuple(Categorical(f"u{at}", ("0", "1")) for at in range(60)), expected_rows=3000)
    plan = plan_fit(book, epsilon=1.0, delta=1e-5, rows=3000)
    assert plan.name == "centred_gaussian"
    ledger = Ledger.create(tmp_path / "z", epsilon=2, delta=1e-4, composition="zcdp")
    for _ in range(3):
        ledger.charge(plan, purpose="fit")
    assert plan.rho is not None
    assert ledger.balance().spent_epsilon == pytest.approx(zcdp_epsilon(3 * plan.rho, 5e-5), rel=1e-6)
    assert ledger.balance().spent_epsilon < 2 < ledger.balance().basic_epsilon


def test_no_ledger_means_no_release(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="blindbayes ledger init"):
        spend(tmp_path / "absent")


def test_a_ledger_is_never_overwritten(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="never overwritten"):
        Ledger.create(path, epsilon=100)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]  # and no draft is left lying about


def test_a_raised_ceiling_keeps_earlier_charges(path: Path) -> None:
    spend(path, "0.9")
    Ledger(path).set_budget(epsilon=2, delta=1e-5, reason="board decision 12")
    spend(path, "1.1")
    with pytest.raises(PrivacyError):
        spend(path, "0.1")


@pytest.mark.parametrize(
    "call",
    [
        lambda path: Ledger.create(path.with_name("x"), epsilon=0),
        lambda path: Ledger.create(path.with_name("x"), epsilon=1, composition="zcdp"),
        lambda path: Ledger.create(path.with_name("x"), epsilon=1, composition="magic"),
        lambda path: Ledger.create(path.with_name("x"), epsilon=1, unit=" "),
        lambda path: Ledger(path).charge(Spend(Fraction(1, 10)), unit="one record", purpose=""),
        lambda path: Ledger(path).charge(Spend(Fraction(1, 10)), unit="one record", purpose="p", hash="0"),
        lambda path: Ledger(path).charge(Spend(Fraction(1, 10)), unit="one record", purpose="p", epsilon="0.0001"),
        lambda path: Ledger(path).charge(make("discrete_laplace", ONE, 0.1), purpose="p", mechanism="none"),
        lambda path: Ledger(path).charge(Spend(Fraction(1, 10)), unit="one record", purpose="p", blob="x" * 70_000),
        lambda path: Ledger(path).charge(Spend(Fraction(1, 10)), unit="one record", purpose="p", value=float("nan")),
        lambda path: Ledger(path).charge(Spend(Fraction(0)), unit="one record", purpose="p"),
        lambda path: Ledger(path).note("charge"),
        lambda path: Ledger(path).set_budget(epsilon=5, delta=0, reason=""),
        lambda path: Head.parse("7"),
    ],
)
def test_bad_arguments_are_refused_and_write_nothing(path: Path, call: Callable[[Path], Any]) -> None:
    before = path.read_bytes()
    with pytest.raises(ConfigError):
        call(path)
    assert path.read_bytes() == before
    assert not path.with_name("x").exists()


# -- copies, threads, processes ------------------------------------------------------------------------------------------------


def test_two_processes_racing_spend_the_budget_once(path: Path) -> None:
    def racer() -> None:
        for _ in range(80):
            try:
                spend(path, "0.01")
            except PrivacyError:
                os._exit(0)

    children = [FORK.Process(target=racer) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert Ledger(path).balance().charges == 100
    Ledger(path).verify()


def test_threads_racing_spend_the_budget_once(path: Path) -> None:
    def racer() -> None:
        for _ in range(10):
            try:
                spend(path, "0.1")
            except PrivacyError:
                return

    threads = [threading.Thread(target=racer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger(path).balance().charges == 10


def test_a_process_that_sits_on_the_lock_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LOCK_SECONDS", 0.2)
    with Ledger(path)._chain._open(write=True), pytest.raises(LedgerError, match="another process has locked"):
        spend(path)
    spend(path)


def test_readers_do_not_block_each_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "LOCK_SECONDS", 0.2)
    with Ledger(path)._chain._open(write=False):
        assert Ledger(path).balance().charges == 0


def test_the_balance_reads_as_a_sentence_for_statements(path: Path) -> None:
    spend(path, "0.25")
    assert "1 release charged" in str(Ledger(path).balance())
    assert "epsilon 0.25 and delta 0 together (basic composition, add or remove one record)" in str(Ledger(path).balance())


def charging_estimator(path: str, epsilon: float = 0.1) -> Any:
    """A classifier that does nothing but pay: local, so that worker processes get it by value."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Charging(ClassifierMixin, BaseEstimator):
        def __init__(self, ledger: str, epsilon: float = 0.1, alpha: float = 1.0) -> None:
            self.ledger = ledger
            self.epsilon = epsilon
            self.alpha = alpha

        def fit(self, X: Any, y: Any) -> Any:
            from blindbayes.dp.accounting.ledger import charge
            from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
            from blindbayes.dp.noise.mechanisms import make

            charge(self.ledger, make("discrete_laplace", Sensitivity((SensitivityBlock("h", 4),)), self.epsilon), purpose="fit")
            self.classes_ = np.unique(y)
            return self

        def predict(self, X: Any) -> Any:
            return np.repeat(self.classes_[0], len(X))

    return Charging(path, epsilon)


DATA = (np.zeros((40, 1)), np.tile([0, 1], 20))


def test_clone_and_cross_validation_do_not_escape_the_ceiling(path: Path) -> None:
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    model = clone(charging_estimator(str(path), 0.2))
    cross_val_score(model, *DATA, cv=5, error_score="raise")
    assert Ledger(path).balance().spent_epsilon == pytest.approx(1.0)
    with pytest.raises(PrivacyError):
        clone(model).fit(*DATA)


def test_grid_search_on_two_processes_does_not_escape_the_ceiling(path: Path) -> None:
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(charging_estimator(str(path), 0.1), {"alpha": [0.1, 1.0, 10.0]}, cv=3, n_jobs=2, refit=True)
    search.fit(*DATA)
    assert Ledger(path).balance().charges == 10  # nine fits and the refit: exactly the budget
    with pytest.raises((PrivacyError, ValueError)):
        search.fit(*DATA)
    assert Ledger(path).balance().charges == 10


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def killed_after(path: Path, count: int) -> None:
    """A charge whose process is killed when `count` bytes of its write are on disk."""
    real = os.write

    def dying(handle: int, data: Any) -> int:
        real(handle, bytes(data)[:count])
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def child() -> None:
        ledger_module.os.write = dying  # type: ignore[attr-defined]
        spend(path)

    assert in_child(child) == -signal.SIGKILL


def test_kill_at_any_byte_of_a_charge_is_recovered(path: Path) -> None:
    """Positions: both ends and a spread between. The child is killed for real; the cuts at every byte follow below."""
    spend(path)
    length = len(path.read_bytes().splitlines(keepends=True)[-1])
    for count in sorted({0, 1, 2, length // 3, length // 2, length - 2, length - 1}):
        before = Ledger(path).balance()
        killed_after(path, count)
        assert Ledger(path).balance().charges == before.charges  # readers see the same, before anybody repaired anything
        Ledger(path).note("run", study="s")
        after = Ledger(path).balance()
        assert after.charges == before.charges
        assert after.torn == before.torn + (count > 0)
        Ledger(path).verify()


def test_kill_after_the_newline_is_a_charge(path: Path) -> None:
    killed_after(path, 10_000)
    assert Ledger(path).balance().charges == 1


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_every_cut_of_a_charge_and_of_its_recovery_leads_to_a_verified_ledger(path: Path, step: int) -> None:
    spend(path)
    start = len(path.read_bytes())
    spend(path)
    whole = path.read_bytes()
    for cut in range(start + 1, len(whole), step):
        path.write_bytes(whole[:cut])
        Ledger(path).note("run")  # recovers: closes the debris, records it, then writes its own line
        recovered = path.read_bytes()
        entries = Ledger(path).entries()
        assert [entry.kind for entry in entries] == ["budget", "charge", "torn", "run"]
        assert recovered.startswith(whole[:cut])  # append-only: nothing was dropped
        if (cut - start - 1) % 96 == 0:  # and the recovery torn again
            torn_end = recovered.rstrip(b"\n").rfind(b"\n") + 1
            for second in range(cut + 1, torn_end, step):
                path.write_bytes(recovered[:second])
                spend(path)
                kinds = [entry.kind for entry in Ledger(path).entries()]
                assert kinds == ["budget", "charge", "torn", "charge"]
                assert path.read_bytes().startswith(recovered[:second])


def test_repeated_kills_never_lose_an_acknowledged_charge(path: Path) -> None:
    """A child charges in a loop and acknowledges each on a pipe; it is killed at some moment, ten times over."""
    Ledger(path).set_budget(epsilon=10**6, delta=0, reason="room")
    acknowledged = 0
    for round_ in range(10):
        read, write = os.pipe()

        def child(write: int = write) -> None:
            while True:
                spend(path)
                os.write(write, b".")

        process = FORK.Process(target=child)
        process.start()
        os.close(write)
        for _ in range(3 + round_):
            assert os.read(read, 1) == b"."
            acknowledged += 1
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        acknowledged += len(os.read(read, 10**6))
        os.close(read)
        charges = Ledger(path).balance().charges
        assert acknowledged <= charges <= acknowledged + 1
        acknowledged = charges
    Ledger(path).verify()


def test_a_full_disk_refuses_the_release_and_leaves_a_valid_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.write, []

    def full(handle: int, data: Any) -> int:
        calls.append(1)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return real(handle, bytes(data)[:40])

    monkeypatch.setattr(ledger_module.os, "write", full)
    with pytest.raises(LedgerError, match="nothing was released"):
        spend(path)
    monkeypatch.undo()
    spend(path)
    assert [entry.kind for entry in Ledger(path).entries()] == ["budget", "torn", "charge"]


# -- tampering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_every_changed_byte_and_every_cut_is_seen_against_a_head(path: Path, step: int) -> None:
    spend(path)
    spend(path, "0.2")
    head, whole = Ledger(path).head, path.read_bytes()
    assert Ledger(path).verify(head) == head
    for at in range(0, len(whole), step):
        for other in {whole[at] ^ 1, 0x18, ord("\n")} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes([other]) + whole[at + 1 :])
            with pytest.raises(LedgerError):
                Ledger(path).verify(head)
        path.write_bytes(whole[:at])
        with pytest.raises(LedgerError):
            Ledger(path).verify(head)


def test_changes_before_the_last_entry_are_seen_without_a_head(path: Path) -> None:
    for _ in range(3):
        spend(path)
    lines = path.read_bytes().splitlines(keepends=True)
    cheaper = lines[1].replace(b'"epsilon":"0.1"', b'"epsilon":"0.0"')
    assert cheaper != lines[1]
    for changed in (
        [lines[0], cheaper, *lines[2:]],
        [lines[0], *lines[2:]],
        [lines[0], lines[2], lines[1], lines[3]],
        [lines[0], lines[1], lines[1], *lines[2:]],
        [*lines[:2], b"rubbish\n", *lines[2:]],
        [*lines[:2], b"rubbish\x18\n", *lines[2:]],
        [*lines, b"rubbish\n"],
        lines[1:],
        [],
    ):
        path.write_bytes(b"".join(changed))
        with pytest.raises(LedgerError):
            Ledger(path).verify()


def test_a_rewritten_ledger_is_seen_against_a_head(path: Path) -> None:
    spend(path)
    spend(path)
    head = Ledger(path).head
    path.unlink()
    Ledger.create(path, epsilon="1.0", delta="1e-5")
    spend(path, "0.01")
    spend(path, "0.01")
    Ledger(path).verify()
    with pytest.raises(LedgerError, match="rewritten"):
        Ledger(path).verify(head)
    assert Head.parse(str(head)) == head


def test_the_file_is_plain_json_lines_with_a_chain_anybody_can_check(path: Path) -> None:
    """An independent reading of the format, as an auditor would write it."""
    import hashlib

    spend(path)
    Ledger(path).note("run", study="0" * 64, approved=True)
    prev = "0" * 64
    for n, line in enumerate(path.read_text().splitlines()):
        fields = json.loads(line)
        claimed = fields.pop("hash")
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        assert (fields["n"], fields["prev"]) == (n, prev)
        assert hashlib.sha256(b"blindbayes ledger v1" + text.encode()).hexdigest() == claimed
        prev = claimed
    assert oct(path.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_a_long_ledger_is_added_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composition: Any) -> None:
    """Each run read all charges several times: at 10,000 runs in the history it cost two seconds more."""
    monkeypatch.setattr(ledger_code, "_STEP", 5)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=50, delta=1e-3, composition=composition)
    read: list[object] = []
    inner = ledger_code._spend
    monkeypatch.setattr(ledger_code, "_spend", lambda entry: read.append(entry) or inner(entry))
    for at in range(24):
        parts = {"partition": "region", "part": f"part {at % 3}"} if at % 7 == 0 else {}
        if at == 12:
            ledger.set_budget(epsilon=60, delta=1e-3, reason="more")
        with ledger_module.rehearsal():
            ledger.book(0.25, 0.0, purpose="a dry run")
            assert ledger.balance().charges == at + 1
        ledger.charge(make("discrete_laplace", ONE, 0.05), purpose="release", **parts)
        fresh = Ledger(ledger.path).balance()
        read.clear()
        assert ledger.balance() == fresh
        assert len(read) <= 5
    assert (fresh.charges, float(fresh.epsilon)) == (24, 60)
    assert float(fresh.basic_epsilon) == pytest.approx(0.05 * 24 - 0.05 * 2)  # parts 0, 1, 2 and 0 of a region


def test_a_later_budget_with_another_composition_is_refused(path: Path) -> None:
    ledger = Ledger(path)
    fields = {name: ledger.entries()[0].fields[name] for name in ("format", "epsilon", "delta", "unit", "adjacency", "owner")}
    ledger._chain.append("budget", {**fields, "composition": "zcdp"})
    with pytest.raises(LedgerError, match="another adjacency or composition"):
        Ledger(path).balance()


def walked(path: Path) -> tuple[Account, dict[str, Any], int]:
    """Return all charges of a ledger in one account, its last budget and the number of torn lines, from the file's lines."""
    lines = [json.loads(line) for line in path.read_bytes().split(b"\n") if line.startswith(b"{") and line.endswith(b"}")]
    charges = [
        Spend(Fraction(e["epsilon"]), Fraction(e["delta"]), e.get("rho"), partition=e.get("partition"), part=e.get("part"))
        for e in lines
        if e["kind"] == "charge"
    ]
    budget = [each for each in lines if each["kind"] == "budget"][-1]
    return Account(budget["adjacency"], budget["composition"], charges), budget, sum(e["kind"] == "torn" for e in lines)


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
@pytest.mark.parametrize("seed", range(2))
def test_sums_that_are_kept_equal_a_walk_over_all_charges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composition: Any, seed: int
) -> None:
    """Equal to the last bit: two writers, writers that died, rehearsals, later budgets, parts of a partition."""
    monkeypatch.setattr(ledger_code, "_STEP", 4)
    draw, path = random.Random(seed), tmp_path / "ledger"
    Ledger.create(path, epsilon=3 if composition == "basic" else 1, delta="1e-3", composition=composition)
    ledgers, refused = (Ledger(path), Ledger(path)), 0
    for _ in range(60 if composition == "basic" else 24):  # a conversion of zCDP is a bisection
        ledger, chance = draw.choice(ledgers), draw.random()
        if draw.random() < 0.1:
            with path.open("ab") as file:
                file.write(b'{"epsilon":"0.1","kind":"charge"')
        epsilon, rho = Fraction(draw.randint(1, 30), draw.choice([70, 100, 330])), draw.choice([None, draw.random() / 50])
        part = {"partition": draw.choice("PQ"), "part": draw.choice("123")} if chance < 0.3 else {}
        asked = Spend(epsilon, Fraction(draw.randint(0, 3), 10**6), rho, **part)
        account, budget, _ = walked(path)
        fits = account.with_(asked).fits(Fraction(budget["epsilon"]), Fraction(budget["delta"]))
        if chance > 0.9:
            ledger.set_budget(epsilon=Fraction(budget["epsilon"]) + Fraction(draw.randint(-1, 2), 9), delta="1e-3", reason="r")
        elif chance > 0.8:
            ledger.book(draw.randint(1, 9) / 100, 0.0, purpose="perhaps")
        else:
            with ledger_module.rehearsal(), contextlib.suppress(PrivacyError):
                ledger.charge(asked, unit="one record", purpose="a dry run")
            try:
                ledger.charge(asked, unit="one record", purpose="release")
                was_paid = True
            except PrivacyError:
                was_paid, refused = False, refused + 1
            assert was_paid == fits
        account, budget, torn = walked(path)
        now = draw.choice(ledgers).balance()
        assert (now.basic_epsilon, now.basic_delta) == account.basic()
        assert (now.charges, now.torn, now.epsilon) == (len(account.spends), torn, Fraction(budget["epsilon"]))
        expected = float(account.basic()[0]) if composition == "basic" else account.epsilon(float(budget["delta"]) / 2)
        assert now.spent_epsilon == expected
    assert refused > 0
    assert now.charges > 5


def test_threads_that_share_one_ledger_spend_its_budget_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_code, "_STEP", 3)
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1)

    def pay(_: int) -> int:
        paid = 0
        for _ in range(5):
            with contextlib.suppress(PrivacyError):
                ledger.charge(Spend(Fraction(1, 7)), unit="one record", purpose="release")
                paid += 1
            assert ledger.balance().basic_epsilon <= 1
        return paid

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(pay, range(4))) == 7
    assert ledger.balance() == Ledger(ledger.path).balance()
    assert ledger.balance().basic_epsilon == 1
