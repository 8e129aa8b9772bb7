"""The ledger: a site's own record of privacy spent and runs approved. Append-only, fsynced, hash-chained, locked by the OS.

A ledger is a path. A process caches it only to save time (`io.chain`), so that no copy of an estimator, no second process and
no restart can spend the same budget twice. Every charge is on disk before the release that it pays for. The first line fixes
budget, unit, adjacency and composition. A write that was cut short is recorded as `torn`, never dropped.

**Truncation.** A chain does not show what was cut off its end. `head` is the number and hash of the last entry: keep it
elsewhere (the other parties of a study countersign it) and pass it to `verify`. Nor does a chain stop its owner from writing
a whole new one: only heads kept elsewhere do.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from blindbayes.dp.accounting.accountant import FILTERS, Account, Composition, Spend
from blindbayes.dp.accounting.sensitivity import ADJACENCY, unit_rows, unit_words
from blindbayes.dp.noise.exact_events import Number, as_decimal
from blindbayes.dp.noise.mechanisms import Priced
from blindbayes.errors import ConfigError, LedgerError, PrivacyError
from blindbayes.io.chain import Chain, ChainFormat
from blindbayes.io.chain import Entry as Line

PARTY_UNIT = "one party"  # how the unit of a release that protects all rows of a party begins
EXACT = "exact_sum"  # the kind of a note about a release without noise, which no budget bounds
FORMAT = "blindbayes.dp.accounting.ledger/1"
_STEP = 500  # entries between two sums that are kept: no balance adds up more
_KIND = re.compile(r"[a-z][a-z_]{0,31}")
_AMOUNT = re.compile(r"\d{1,300}(?:\.\d{1,400}|/0{0,99}[1-9]\d{0,399})?")
_CHAIN = ChainFormat("ledger", prefix=b"blindbayes ledger v1", clock=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One line of the ledger."""

    n: int
    time: str
    kind: str
    prev: str
    hash: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """Number and hash of the last entry, which others countersign."""

    n: int
    hash: str

    def __str__(self) -> str:
        return f"{self.n}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Parse `str(head)`."""
        match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
        if not match:
            raise ConfigError("a ledger head is written NUMBER:SHA256")
        return cls(int(match[1]), match[2])


@dataclass(frozen=True, slots=True)
class Balance:
    """A budget and the part of it that is spent, under the ledger's composition."""

    epsilon: Fraction
    delta: Fraction
    spent_epsilon: float
    spent_delta: float
    basic_epsilon: Fraction
    basic_delta: Fraction
    charges: int
    torn: int
    unit: str
    adjacency: str
    composition: Composition

    @property
    def left(self) -> float:
        """Epsilon that is left, by the composition declared."""
        return max(0.0, float(self.epsilon) - self.spent_epsilon)

    @property
    def fits(self) -> bool:
        """True if no more is spent than the budget."""
        return self.spent_epsilon <= float(self.epsilon) and self.spent_delta <= float(self.delta)

    def __str__(self) -> str:
        """Return the sentence for privacy statements: all releases so far, and the ceiling."""
        releases = "1 release" if self.charges == 1 else f"{self.charges} releases"
        return (
            f"{releases} charged to the holder's ledger cost epsilon {self.spent_epsilon:g} and delta "
            f"{self.spent_delta:g} together ({self.composition} composition, {self.adjacency} {self.unit}); the ledger refuses "
            f"more than epsilon {float(self.epsilon):g} and delta {float(self.delta):g}, however releases are chosen after one "
            "another. It counts what was charged to it: releases of the same people made without it are not in this sum."
        )


class Ledger:
    """The ledger at a path. The file is authoritative; what is cached of it only saves time."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        why = "there is no ledger. Open one with `blindbayes ledger init PATH --epsilon ...`"
        self._chain = Chain(self.path, _CHAIN, missing=why)
        self._parsed: tuple[LedgerEntry, ...] = ()
        self._sums: tuple[_Sum, ...] = ()

    def __repr__(self) -> str:
        return f"Ledger({os.fspath(self.path)!r})"

    # -- opening ---------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        epsilon: Number,
        delta: Number = 0,
        unit: str = "one record",
        composition: Composition = "basic",
        owner: str = "",
    ) -> Ledger:
        """Create a ledger with its budget. Refuses a path that exists."""
        ceiling, failure = cls.require_budget(epsilon, delta)
        _require_filter(composition)
        if composition != "basic" and failure == 0:
            raise ConfigError(f"composition {composition!r} needs a delta above zero")
        if not unit.strip():
            raise ConfigError("a ledger names the unit that it protects")
        fields = {
            "format": FORMAT,
            "epsilon": _text(ceiling),
            "delta": _text(failure),
            "unit": unit,
            "adjacency": ADJACENCY,
            "composition": composition,
            "owner": owner,
        }
        ledger = cls(path)
        ledger._chain.create("budget", fields)
        return ledger

    @staticmethod
    def require_budget(epsilon: Number, delta: Number = 0) -> tuple[Fraction, Fraction]:
        """Return a budget as exact numbers. Raises `ConfigError` unless a ledger can have it."""
        ceiling, failure = as_decimal(epsilon, "epsilon"), as_decimal(delta, "delta")
        if ceiling <= 0 or not 0 <= failure < 1:
            raise ConfigError("a budget has an epsilon above zero and a delta from 0 to below 1")
        return ceiling, failure

    # -- reading ---------------------------------------------------------------------------------------------------------

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all entries, verified."""
        return self._ledger(self._chain.entries())

    def _ledger(self, lines: list[Line]) -> tuple[LedgerEntry, ...]:
        known = self._parsed
        count = min(len(known), len(lines))
        while count and known[count - 1].hash != lines[count - 1]["hash"]:  # entries of a rehearsal
            count -= 1
        new = tuple(_entry(line) for line in lines[count:])
        if not all(isinstance(text, str) for entry in new for text in (entry.time, entry.kind)):
            raise LedgerError(f"{self.path.name}: an entry of the ledger has no time, or no kind")
        entries = known[:count] + new
        if not entries or entries[0].kind != "budget" or entries[0].fields.get("format") != FORMAT:
            raise LedgerError(f"{self.path.name}: this is not a ledger of this version")
        self._parsed = entries
        return entries

    def _sum(self, entries: tuple[LedgerEntry, ...]) -> _Sum:
        """Add up entries from the first. Sums on the way are kept, so that a long history is added up once."""
        usable = [each for each in self._sums if each.count <= len(entries) and each.head == entries[each.count - 1].hash]
        total = max(usable, key=lambda each: each.count, default=None)
        while total is None or total.count < len(entries):
            start = 0 if total is None else total.count
            total = _added(total, entries[start : start - start % _STEP + _STEP])
            if total.count % _STEP == 0:
                self._sums = (*self._sums, total)
        return total

    @property
    def head(self) -> Head:
        """Number and hash of the last entry."""
        last = self.entries()[-1]
        return Head(last.n, last.hash)

    def locked(self) -> contextlib.AbstractContextManager[bytes]:
        """Lock the file against writers and return its bytes."""
        return self._chain.locked()

    def hash_at(self, number: int) -> str | None:
        """Return the hash of an entry, or None if it does not exist."""
        return self._chain.hash_at(number)

    def verify(self, head: Head | None = None) -> Head:
        """Check every line, the chain, and that it still contains `head`. Raises `LedgerError`; returns the current head."""
        entries = self._ledger(self._chain.verify())
        if head is not None:
            if head.n >= len(entries):
                raise LedgerError(
                    f"{self.path.name}: the ledger ends before entry {head.n}, which was seen before: it was cut off"
                )
            if entries[head.n].hash != head.hash:
                raise LedgerError(f"{self.path.name}: entry {head.n} is not the one seen before: the ledger was rewritten")
        return Head(entries[-1].n, entries[-1].hash)

    def balance(self) -> Balance:
        """Return budget and spending."""
        return self._sum(self.entries()).balance()

    def spent_at(self, deltas: Sequence[Number]) -> list[dict[str, float | None]]:
        """Return epsilon at several deltas (None: no bound), as converted and as the odometer reads.  [odometer]"""
        account = self._sum(self.entries()).account

        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return [
            {"delta": delta, "epsilon": finite(account.epsilon(delta)), "any_time": finite(account.odometer(delta))}
            for delta in (float(as_decimal(each, "delta")) for each in deltas)
        ]

    def after(self, epsilon: float, delta: float, runs: int = 1) -> Balance:
        """Return the balance as it would be after `runs` more charges of this size."""
        spend = Spend(Fraction(str(epsilon)), Fraction(str(delta)))
        return self._sum(self.entries()).balance([spend] * runs if epsilon or delta else ())

    def timeline(self, last: int = 200) -> list[dict[str, Any]]:
        """Return the last budgets, charges and exact sums, oldest first, with the purpose of each and the balance after it."""
        entries, timeline = self.entries(), []
        shown = [each for each in entries if each.kind in ("budget", "charge", EXACT)][-last:]
        before = self._sum(entries[: max(1, shown[0].n)])
        account, budget = before.account.condensed(), before.budget  # not one sum over all entries per line
        for entry in shown:
            if entry.kind == "charge":
                account.add(_spend(entry))
            budget = entry.fields if entry.kind == "budget" else budget
            now = _balance_of(account, budget)
            about = {name: entry.fields.get(name) for name in ("epsilon", "delta", "purpose", "reason", "run", "study")}
            amounts = {"spent": now.spent_epsilon, "left": now.left, "budget": float(now.epsilon)}
            timeline.append({"n": entry.n, "time": entry.time, "kind": entry.kind, **about, **amounts})
        return timeline

    # -- writing ---------------------------------------------------------------------------------------------------------

    def charge(
        self,
        cost: Priced | Spend,
        *,
        purpose: str,
        unit: str | None = None,
        partition: str | None = None,
        part: str | None = None,
        **facts: Any,
    ) -> LedgerEntry:
        """Pay for one release before it is made. Raises `PrivacyError`, and writes nothing, if the budget would be exceeded.

        `unit` names what the release protects; it is required for a `Spend`, which does not know it. A release that protects
        all rows of a party protects a record and a person too. A ledger for persons with at most R records takes a release that
        protects one record, at the price of R of them together. `partition` and `part` declare that the release reads only one
        of several disjoint parts of the records. `facts` are further public facts to store (codebook hash, study hash, run).
        """
        details: dict[str, Any] = {}
        if isinstance(cost, Spend):
            if partition is not None or part is not None:
                raise ConfigError("a Spend names its own part")
            if unit is None:
                raise ConfigError("a charge says whom the release protects: pass unit, for example 'one record'")
            spend = cost
        else:
            details["mechanism"] = cost.name
            unit = cost.price.unit
            spend = Spend.for_release(cost, partition=partition, part=part)
        if not purpose.strip():
            raise ConfigError("a charge says what it is for")
        with self._chain.writing() as writer:
            entries = self._ledger(writer.entries())
            total = self._sum(entries)
            account, budget = total.account, total.budget
            _require_filter(account.composition)
            if unit != budget["unit"] and not unit.startswith(PARTY_UNIT):
                rows = unit_rows(budget["unit"])
                if unit != unit_words(1) or rows is None:
                    raise PrivacyError(
                        f"{self.path.name} protects {budget['unit']}, the release {unit}: use a ledger and a release for one "
                        "unit"
                    )
                spend, details["group"] = spend.group(rows), rows  # what protects a record protects a person at this price
            if not account.with_(spend).fits(Fraction(budget["epsilon"]), Fraction(budget["delta"])):
                balance = total.balance()
                asked = f"epsilon {float(spend.epsilon):g} (delta {float(spend.delta):g})"
                raise PrivacyError(
                    f"{self.path.name}: budget exceeded: {asked} asked, "
                    f"{balance.left:g} of {float(balance.epsilon):g} left by {account.composition} composition. Nothing was "
                    f"released: {'take a smaller epsilon, or ' if balance.left > 0 else ''}ask the owner of the budget"
                )
            fields = {
                "purpose": purpose,
                "epsilon": _text(spend.epsilon),
                "delta": _text(spend.delta),
                "rho": spend.rho,
                "partition": spend.partition,
                "part": spend.part,
                "unit": unit,
                **details,
            }
            if clash := set(fields) & set(facts):
                raise ConfigError(f"a charge says {min(clash)!r} itself: give the fact another name")
            entry = {name: value for name, value in {**fields, **facts}.items() if value is not None}
            return _entry(writer.append("charge", entry))

    def book(self, epsilon: float, delta: float, *, purpose: str) -> LedgerEntry:
        """Count an amount as spent that may have been, even beyond the budget."""
        with self._chain.writing() as writer:
            unit = self._sum(self._ledger(writer.entries())).budget["unit"]
            amounts = {"epsilon": _text(Fraction(str(epsilon))), "delta": _text(Fraction(str(delta)))}
            return _entry(writer.append("charge", {"purpose": purpose, **amounts, "unit": unit}))

    def note(self, kind: str, **fields: Any) -> LedgerEntry:
        """Record something that costs nothing: a run approved, a head countersigned. Public facts only."""
        if not _KIND.fullmatch(kind) or kind in {"budget", "charge", "torn"}:
            raise ConfigError("a note's kind is a lower-case word other than budget, charge and torn")
        with self._chain.writing() as writer:
            self._ledger(writer.entries())
            return _entry(writer.append(kind, fields))

    def set_budget(self, *, epsilon: Number, delta: Number, reason: str) -> LedgerEntry:
        """Set a new budget, with its reason. Earlier charges keep counting."""
        ceiling, failure = as_decimal(epsilon, "epsilon"), as_decimal(delta, "delta")
        if ceiling <= 0 or not 0 <= failure < 1 or not reason.strip():
            raise ConfigError("a new budget has an epsilon above zero, a delta from 0 to below 1 and a reason")
        with self._chain.writing() as writer:
            known = self._sum(self._ledger(writer.entries())).budget
            fields = {**known, "epsilon": _text(ceiling), "delta": _text(failure), "reason": reason}
            return _entry(writer.append("budget", fields))


def charge(path: str | os.PathLike[str], mechanism: Priced, *, purpose: str, **facts: Any) -> LedgerEntry:
    """Pay for one release from the ledger at `path`: the one line an estimator needs before it releases."""
    return Ledger(path).charge(mechanism, purpose=purpose, **facts)


def _entry(fields: Mapping[str, Any]) -> LedgerEntry:
    rest = {name: value for name, value in fields.items() if name not in _CHAIN.reserved}
    return LedgerEntry(fields["n"], fields["time"], fields["kind"], fields["prev"], fields["hash"], rest)


# -- sums ----------------------------------------------------------------------------------------------------------------


def _text(value: Fraction) -> str:
    """Return a fraction as text that reads back exactly: as a decimal if it is finite, else numerator/denominator."""
    for digits in range(19):
        if (value * 10**digits).denominator == 1:
            sign, whole = ("-", -value) if value < 0 else ("", value)
            scaled = str(int(whole * 10**digits)).rjust(digits + 1, "0")
            return sign + (f"{scaled[:-digits]}.{scaled[-digits:]}" if digits else scaled)
    return str(value)


def _spend(entry: LedgerEntry) -> Spend:
    fields = entry.fields
    for name in ("epsilon", "delta"):
        if not _AMOUNT.fullmatch(str(fields[name])):  # 1e999999999 is a short text and a number that fills the memory
            raise ValueError(name)
    return Spend(
        Fraction(fields["epsilon"]),
        Fraction(fields["delta"]),
        None if fields.get("rho") is None else _require_rho(float(fields["rho"])),
        partition=fields.get("partition"),
        part=fields.get("part"),
    )


def _require_rho(rho: float) -> float:
    if not 0 < rho < math.inf:
        raise ValueError("rho")
    return rho


def _require_filter(composition: str) -> None:
    """Refuse a composition that does not hold for prices chosen as the releases go.  [filters]"""
    if composition == "pld":
        raise ConfigError(
            "a ledger is charged for releases chosen one after the other, for which privacy loss distributions do not hold: "
            "take basic or zcdp, and charge releases whose prices are all fixed beforehand together, as "
            "Account(...).spend(delta)"
        )
    if composition not in FILTERS:
        raise ConfigError(f"composition of a ledger is one of {', '.join(FILTERS)}")


@contextlib.contextmanager
def _amounts() -> Iterator[None]:
    """Turn errors of malformed amounts into `LedgerError`: the hashes fit, so the file was never a ledger."""
    try:
        yield
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError):
        raise LedgerError("an entry of the ledger holds no amount that can be added up") from None


@dataclass(frozen=True, slots=True)
class _Sum:
    """The sum of the first entries. Under basic composition releases on all records are one spend of their sum."""

    count: int
    head: str
    account: Account
    budget: Mapping[str, Any]
    charges: int
    torn: int

    @_amounts()
    def balance(self, more: Sequence[Spend] = ()) -> Balance:
        account = Account(self.account.adjacency, self.account.composition, [*self.account.spends, *more])
        return replace(_balance_of(account, self.budget), charges=self.charges + len(more), torn=self.torn)


@_amounts()
def _added(before: _Sum | None, entries: tuple[LedgerEntry, ...]) -> _Sum:
    """Add entries to the sum of all before them; `before` is None for the first."""
    budgets = [entry.fields for entry in entries if entry.kind == "budget"]
    budget = budgets[-1] if before is None or budgets else before.budget
    first = budgets[0] if before is None else before.budget
    fixed = first["adjacency"], first["composition"]
    if any((each["adjacency"], each["composition"]) != fixed for each in budgets):
        raise LedgerError("a later budget of the ledger has another adjacency or composition than its first")
    for name in ("epsilon", "delta"):
        if not _AMOUNT.fullmatch(str(budget[name])):
            raise ValueError(name)
    spends = [_spend(entry) for entry in entries if entry.kind == "charge"]
    account = Account(*fixed, [*([] if before is None else before.account.spends), *spends])
    return _Sum(
        count=len(entries) + (0 if before is None else before.count),
        head=entries[-1].hash,
        account=account.condensed() if account.composition == "basic" else account,
        budget=budget,
        charges=len(spends) + (0 if before is None else before.charges),
        torn=sum(entry.kind == "torn" for entry in entries) + (0 if before is None else before.torn),
    )


@_amounts()
def _balance_of(account: Account, budget: Mapping[str, Any]) -> Balance:
    if not all(isinstance(budget.get(name), str) for name in ("unit", "adjacency", "composition")):
        raise LedgerError("the ledger does not say whom its budget protects")
    basic_epsilon, basic_delta = account.basic()
    delta = Fraction(budget["delta"])
    basic = account.composition == "basic"
    return Balance(
        epsilon=Fraction(budget["epsilon"]),
        delta=delta,
        spent_epsilon=float(basic_epsilon) if basic else account.epsilon(float(delta) / 2),  # the other half is for deltas
        spent_delta=float(basic_delta) if basic or not account.spends else float(delta),
        basic_epsilon=basic_epsilon,
        basic_delta=basic_delta,
        charges=len(account.spends),
        torn=0,
        unit=budget["unit"],
        adjacency=budget["adjacency"],
        composition=account.composition,
    )
