"""The ledger: a site's own record of privacy spent and runs approved. Append-only, fsynced, hash-chained, locked by the OS.

A ledger is a path. Nothing of it lives in memory, so that no copy of an estimator, no second process and no restart can spend
the same budget twice. Every charge is on disk before the release that it pays for is made.

The file holds one JSON object per line. Each carries its number, the hash of the line before and its own hash, the SHA-256
of its other fields in canonical JSON. The first line fixes budget, unit, adjacency and composition.

**Torn writes.** An entry counts if and only if its whole line, the newline included, is on disk. What a killed process left
behind is never dropped: the next writer closes it with the mark CAN (0x18) and a newline, and appends an entry of kind
`torn` that holds its length and hash. Recovery may be killed too, any number of times. Any other line that does not verify
is tampering.

**Truncation.** A chain does not show what was cut off its end. `head` is the number and hash of the last entry: keep it
elsewhere (the other parties of a study countersign it) and pass it to `verify`. Nor does a chain stop its owner from writing
a whole new one: only heads kept elsewhere do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

from blindbayes.errors import ConfigError, LedgerError, PrivacyError
from blindbayes.foreign import read_json, read_json_table
from blindbayes.privacy.accounting import Account, Composition, Spend
from blindbayes.privacy.chance import Number, written
from blindbayes.privacy.mechanisms import Priced
from blindbayes.privacy.sensitivity import ADJACENCY

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

FORMAT = "blindbayes.ledger/1"
GENESIS = "0" * 64
CANCEL = b"\x18"
MAX_LINE = 1 << 16
LOCK_SECONDS = 30.0
_KIND = re.compile(r"[a-z][a-z_]{0,31}")
_AMOUNT = re.compile(r"\d{1,400}(?:\.\d{1,400}|/\d{1,400})?")
_RESERVED = frozenset({"n", "time", "kind", "prev", "hash"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    n: int
    time: str
    kind: str
    prev: str
    hash: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry's number and hash: what others countersign."""

    n: int
    hash: str

    def __str__(self) -> str:
        return f"{self.n}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """From `str(head)`."""
        found = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
        if not found:
            raise ConfigError("a ledger head is written NUMBER:SHA256")
        return cls(int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class Balance:
    """Budget and what is spent of it, under the ledger's composition."""

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

    def __str__(self) -> str:
        """For privacy statements: all releases so far, and the ceiling."""
        return (
            f"{self.charges} release(s) charged to the holder's ledger cost epsilon {self.spent_epsilon:g} and delta "
            f"{self.spent_delta:g} together ({self.composition} composition, {self.adjacency} {self.unit}); the ledger refuses "
            f"more than epsilon {float(self.epsilon):g} and delta {float(self.delta):g}"
        )


@dataclass(frozen=True, slots=True)
class _State:
    entries: tuple[Entry, ...]
    end: int  # bytes up to and including the last valid entry
    debris: bytes  # what stands behind it


class Ledger:
    """The ledger at a path. Holds nothing but the path: every call reads the file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

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
        """Open a new ledger with its budget. Refuses a path where something stands."""
        ceiling, failure = written(epsilon, "epsilon"), written(delta, "delta")
        if ceiling <= 0 or not 0 <= failure < 1:
            raise ConfigError("a budget has an epsilon above zero and a delta from 0 to below 1")
        Account(ADJACENCY, composition)  # refuses an unknown way to compose, or one that is not installed
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
        line = _line(0, "budget", GENESIS, fields)
        ledger = cls(path)
        ledger._place(line)
        return ledger

    def _place(self, line: bytes) -> None:
        """Put the first line in place whole or not at all: a temporary file, linked to its name."""
        folder = self.path.parent
        draft = folder / f".{self.path.name}.{os.getpid()}.new"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write_all(handle, line)
            finally:
                os.close(handle)
            try:
                os.link(draft, self.path)
            finally:
                os.unlink(draft)
            _sync_folder(folder)
        except FileExistsError as error:
            raise LedgerError(f"{self.path.name}: something stands at this path; a ledger is never overwritten") from error
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the ledger cannot be created ({error.strerror})") from error

    # -- reading ---------------------------------------------------------------------------------------------------------

    def entries(self) -> tuple[Entry, ...]:
        """All entries, verified."""
        with self._open(write=False) as handle:
            return _parse(_read(handle), self.path.name).entries

    @property
    def head(self) -> Head:
        """Number and hash of the last entry."""
        last = self.entries()[-1]
        return Head(last.n, last.hash)

    def verify(self, head: Head | None = None) -> Head:
        """Check every line, the chain, and that it still holds `head`. Raises `LedgerError`; returns the head of now."""
        entries = self.entries()
        if head is not None:
            if head.n >= len(entries):
                raise LedgerError(
                    f"{self.path.name}: the ledger ends before entry {head.n}, which was seen before: it was cut off"
                )
            if entries[head.n].hash != head.hash:
                raise LedgerError(f"{self.path.name}: entry {head.n} is not the one seen before: the ledger was rewritten")
        return Head(entries[-1].n, entries[-1].hash)

    def balance(self) -> Balance:
        """Budget and spending."""
        return _balance(self.entries())

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
    ) -> Entry:
        """Pay for one release before it is made. Raises `PrivacyError`, and writes nothing, if the budget would be exceeded.

        `partition` and `part` declare that the release reads only one of several disjoint parts of the records. `facts` are
        further public facts to keep (codebook hash, study hash, run).
        """
        details: dict[str, Any] = {}
        if isinstance(cost, Spend):
            if partition is not None or part is not None:
                raise ConfigError("a Spend names its own part")
            spend = cost
        else:
            details["mechanism"] = cost.name
            unit = cost.price.unit
            spend = Spend.of(cost, partition=partition, part=part)
        if not purpose.strip():
            raise ConfigError("a charge says what it is for")
        with self._open(write=True) as handle:
            state = self._recovered(handle)
            account, budget = _account(state.entries)
            if unit is not None and unit != budget["unit"]:
                raise PrivacyError(
                    f"{self.path.name} protects {budget['unit']}, the release {unit}: use a ledger and a release for one unit"
                )
            if not account.with_(spend).fits(Fraction(budget["epsilon"]), Fraction(budget["delta"])):
                balance = _balance(state.entries)
                asked = f"epsilon {float(spend.epsilon):g} (delta {float(spend.delta):g})"
                raise PrivacyError(
                    f"{self.path.name}: budget exceeded: {asked} asked, "
                    f"{balance.left:g} of {float(balance.epsilon):g} left. Nothing was released"
                )
            fields = {
                "purpose": purpose,
                "epsilon": _text(spend.epsilon),
                "delta": _text(spend.delta),
                "rho": spend.rho,
                "gaussian": list(spend.gaussian) if spend.gaussian else None,
                "partition": spend.partition,
                "part": spend.part,
                **details,
            }
            if clash := set(fields) & set(facts):
                raise ConfigError(f"a charge says {min(clash)!r} itself: give the fact another name")
            entry = {name: value for name, value in {**fields, **facts}.items() if value is not None}
            return self._append(handle, state.entries, "charge", entry)

    def note(self, kind: str, **fields: Any) -> Entry:
        """Record something that costs nothing: a run approved, a head countersigned. Public facts only."""
        if not _KIND.fullmatch(kind) or kind in {"budget", "charge", "torn"}:
            raise ConfigError("a note's kind is a lower-case word other than budget, charge and torn")
        with self._open(write=True) as handle:
            return self._append(handle, self._recovered(handle).entries, kind, fields)

    def set_budget(self, *, epsilon: Number, delta: Number, reason: str) -> Entry:
        """A new ceiling, with its reason, from now on. Earlier charges keep counting."""
        ceiling, failure = written(epsilon, "epsilon"), written(delta, "delta")
        if ceiling <= 0 or not 0 <= failure < 1 or not reason.strip():
            raise ConfigError("a new budget has an epsilon above zero, a delta from 0 to below 1 and a reason")
        with self._open(write=True) as handle:
            state = self._recovered(handle)
            fields = {**_account(state.entries)[1], "epsilon": _text(ceiling), "delta": _text(failure), "reason": reason}
            return self._append(handle, state.entries, "budget", fields)

    def _append(self, handle: int, entries: tuple[Entry, ...], kind: str, fields: Mapping[str, Any]) -> Entry:
        line = _line(len(entries), kind, entries[-1].hash, fields)
        try:
            _write_all(handle, line)
        except OSError as error:
            raise LedgerError(
                f"{self.path.name}: the entry could not be written ({error.strerror}); nothing was released"
            ) from error
        return _entry(read_json_table(line, "an entry", error=LedgerError))

    def _recovered(self, handle: int) -> _State:
        """The state, with what a killed writer left behind recorded as torn."""
        state = _parse(_read(handle), self.path.name)
        if not state.debris:
            return state
        closing = b"" if state.debris.endswith(CANCEL + b"\n") else CANCEL + b"\n"
        debris = state.debris + closing
        fields = {"bytes": len(debris), "sha256": hashlib.sha256(debris).hexdigest()}
        line = _line(len(state.entries), "torn", state.entries[-1].hash, fields)
        try:
            _write_all(handle, closing + line)
        except OSError as error:
            raise LedgerError(f"{self.path.name}: a torn entry could not be recorded ({error.strerror})") from error
        return _parse(_read(handle), self.path.name)

    def _lock(self, handle: int, kind: int) -> None:
        """Wait for the lock, but not for ever: whoever holds it writes one line."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(f"{self.path.name}: another process has held the ledger for {LOCK_SECONDS:g} s") from None
                time.sleep(0.002)

    @contextlib.contextmanager
    def _open(self, *, write: bool) -> Iterator[int]:
        """The file, locked: exclusively for a writer, shared for readers."""
        if fcntl is None:  # pragma: no cover
            raise LedgerError("a ledger needs POSIX file locks")
        try:
            handle = os.open(self.path, (os.O_RDWR | os.O_APPEND if write else os.O_RDONLY) | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise LedgerError(
                f"{self.path.name}: there is no ledger. Open one with `blindbayes ledger init PATH --epsilon ...`"
            ) from error
        except OSError as error:
            raise LedgerError(f"{self.path.name}: the ledger cannot be opened ({error.strerror})") from error
        try:
            self._lock(handle, fcntl.LOCK_EX if write else fcntl.LOCK_SH)
            here = os.stat(self.path)
            if (here.st_dev, here.st_ino) != (os.fstat(handle).st_dev, os.fstat(handle).st_ino):
                raise LedgerError(f"{self.path.name}: the file was replaced while it was being opened")
            yield handle
        except FileNotFoundError as error:
            raise LedgerError(f"{self.path.name}: the file was removed while it was being opened") from error
        finally:
            os.close(handle)  # releases the lock


def charge(path: str | os.PathLike[str], mechanism: Priced, *, purpose: str, **facts: Any) -> Entry:
    """Pay for one release from the ledger at `path`: the one line an estimator needs before it releases."""
    return Ledger(path).charge(mechanism, purpose=purpose, **facts)


# -- lines ---------------------------------------------------------------------------------------------------------------


def _canonical(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def _digest(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(b"blindbayes ledger v1" + _canonical(fields)).hexdigest()


def _line(n: int, kind: str, prev: str, fields: Mapping[str, Any]) -> bytes:
    if clash := _RESERVED & set(fields):
        raise ConfigError(f"the ledger keeps the field {min(clash)!r} for itself")
    try:
        body = {**fields, "n": n, "kind": kind, "prev": prev, "time": datetime.now(UTC).isoformat(timespec="seconds")}
        line = _canonical({**body, "hash": _digest(body)}) + b"\n"
    except (TypeError, ValueError) as error:
        raise ConfigError("a ledger entry holds JSON values only") from error
    if len(line) > MAX_LINE:
        raise ConfigError(f"a ledger entry has at most {MAX_LINE} bytes")
    return line


def _entry(fields: dict[str, Any]) -> Entry:
    rest = {name: value for name, value in fields.items() if name not in _RESERVED}
    return Entry(fields["n"], fields["time"], fields["kind"], fields["prev"], fields["hash"], rest)


def _verified(line: bytes, n: int, prev: str) -> Entry | None:
    """The entry on a line without its newline, if it is entry number n behind `prev`."""
    try:
        fields = read_json(line, "a line", most_bytes=MAX_LINE, error=LedgerError)
    except LedgerError:
        return None
    if not isinstance(fields, dict) or not set(fields) >= _RESERVED:
        return None
    body = {name: value for name, value in fields.items() if name != "hash"}
    if (fields["n"], fields["prev"], fields["hash"]) != (n, prev, _digest(body)) or _canonical(fields) != line:
        return None
    return _entry(fields)


def _parse(data: bytes, name: str) -> _State:
    """Entries in order. Unfinished writes may stand between them if a `torn` entry covers them, or at the end."""
    entries: list[Entry] = []
    end = at = 0
    while at < len(data):
        newline = data.find(b"\n", at)
        if newline < 0:
            break  # an unfinished line: debris
        prev = entries[-1].hash if entries else GENESIS
        entry = _verified(data[at:newline], len(entries), prev)
        if entry is None:
            if not entries or not data[at:newline].endswith(CANCEL):
                raise LedgerError(f"{name}: entry {len(entries)} does not verify: the ledger was changed")
        else:
            debris = data[end:at]
            torn = {"bytes": len(debris), "sha256": hashlib.sha256(debris).hexdigest()}
            if (entry.kind == "torn") != bool(debris) or (debris and dict(entry.fields) != torn):
                raise LedgerError(f"{name}: entry {entry.n} does not cover what stands before it: the ledger was changed")
            entries.append(entry)
            end = newline + 1
        at = newline + 1
    if not entries or entries[0].kind != "budget" or entries[0].fields.get("format") != FORMAT:
        raise LedgerError(f"{name}: this is not a ledger of this version")
    return _State(tuple(entries), end, data[end:])


# -- sums ----------------------------------------------------------------------------------------------------------------


def _text(value: Fraction) -> str:
    """A fraction as text that reads back exactly: decimal where it ends, else numerator/denominator."""
    for digits in range(19):
        if (value * 10**digits).denominator == 1:
            sign, whole = ("-", -value) if value < 0 else ("", value)
            scaled = str(int(whole * 10**digits)).rjust(digits + 1, "0")
            return sign + (f"{scaled[:-digits]}.{scaled[-digits:]}" if digits else scaled)
    return str(value)


def _spend(entry: Entry) -> Spend:
    fields = entry.fields
    for name in ("epsilon", "delta"):
        if not _AMOUNT.fullmatch(str(fields[name])):  # 1e999999999 is a short text and a number that fills the memory
            raise ValueError(name)
    gaussian = fields.get("gaussian")
    return Spend(
        Fraction(fields["epsilon"]),
        Fraction(fields["delta"]),
        fields.get("rho"),
        (float(gaussian[0]), int(gaussian[1]), int(gaussian[2])) if gaussian else None,
        fields.get("partition"),
        fields.get("part"),
    )


def _account(entries: tuple[Entry, ...]) -> tuple[Account, Mapping[str, Any]]:
    try:
        return _added(entries)
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError):  # hashes fit, so whoever made it wrote no ledger
        raise LedgerError("an entry of the ledger holds no amount that can be added up") from None


def _added(entries: tuple[Entry, ...]) -> tuple[Account, Mapping[str, Any]]:
    budget = [entry for entry in entries if entry.kind == "budget"][-1].fields
    account = Account(budget["adjacency"], cast(Composition, budget["composition"]))
    for name in ("epsilon", "delta"):
        if not _AMOUNT.fullmatch(str(budget[name])):
            raise ValueError(name)
    return account.add(*[_spend(entry) for entry in entries if entry.kind == "charge"]), budget


def _balance(entries: tuple[Entry, ...]) -> Balance:
    account, budget = _account(entries)
    basic_epsilon, basic_delta = account.basic()
    delta = Fraction(budget["delta"])
    basic = account.composition == "basic"
    return Balance(
        epsilon=Fraction(budget["epsilon"]),
        delta=delta,
        spent_epsilon=float(basic_epsilon) if basic else account.epsilon(float(delta)),
        spent_delta=float(basic_delta) if basic or not account.spends else float(delta),
        basic_epsilon=basic_epsilon,
        basic_delta=basic_delta,
        charges=len(account.spends),
        torn=sum(entry.kind == "torn" for entry in entries),
        unit=budget["unit"],
        adjacency=budget["adjacency"],
        composition=account.composition,
    )


# -- the disk ------------------------------------------------------------------------------------------------------------


def _read(handle: int) -> bytes:
    size = os.fstat(handle).st_size
    parts, at = [], 0
    while at < size and (part := os.pread(handle, min(1 << 20, size - at), at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _write_all(handle: int, data: bytes) -> None:
    """Write and make durable. A short write leaves debris that the next writer records."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
