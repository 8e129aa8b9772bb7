"""A run of any protocol in which some seats are taken by a coalition that deviates.

    arena = sums("masked_sum", ("alfa", "bravo", "mallory"))
    fight = arena.fight(("server", "mallory"), change)
    fight.judge()                                    # [] or what went wrong, in words

`change(sender, to, message)` is asked for every message that a member of the coalition sends; it returns the message, another
one, a list of messages, or None (say nothing). Members otherwise run the shipped role, so a deviation is a change at chosen
steps. After a change every signature that the coalition can make is made again (`refit`): it owns all its members' keys.

An honest party that refuses keeps quiet from then on, and the others go on as far as they can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from adversary.knowledge import Ledger
from adversary.names import SUM_SETUP, fewest
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run, Send

try:
    from blindbayes.protocols.memory import Outcome, local_runs, run_in_memory
except ImportError:  # trees before the transport had its own room
    from blindbayes.runtime.memory import Outcome, local_runs, run_in_memory

Change = Callable[[str, str, Any], Any]
Refit = Callable[["Arena", "Fight", str, str, Any], Any]
SEED = bytes(range(32))


def honest(sender: str, to: str, message: Any) -> Any:
    """No deviation."""
    return message


@dataclass
class Fight:
    """One run and what came of it."""

    arena: Arena
    coalition: tuple[str, ...]
    ledger: Ledger
    errors: list[tuple[str, BaseException]] = field(default_factory=list)  # of honest parties, in order
    outcome: Outcome | None = None
    changed: int = 0  # messages that were not as the protocol has them
    heard: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the coalition was sent: kind -> sender -> message
    shown: dict[tuple[str, str], Any] = field(default_factory=dict)  # what it sent: (kind, receiver) -> message

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def leaks(self) -> list[str]:
        """What the coalition can compute beyond the arena's law, in words."""
        return list(self.arena.law(self, self.ledger.determined(self.coalition, self.arena.reader_only)))

    def frames(self) -> list[str]:
        """What is wrong with the first error of an honest party: not ours, or it names only the honest."""
        if not self.errors:
            return []
        party, error = self.errors[0]
        if not isinstance(error, ProtocolError):
            kind = "typed, but no error between parties" if isinstance(error, BlindbayesError) else "untyped"
            return [f"{party} ends with {type(error).__name__} ({kind}): {error}"]
        suspects = getattr(error, "suspects", (error.party,) if error.party else ())
        if not suspects:
            return [f"{party} ends with {type(error).__name__} that names nobody"]
        if not set(suspects) & set(self.coalition):
            return [f"{party} ends with {type(error).__name__} that names {' or '.join(suspects)}, who is honest"]
        return []

    def wrongs(self) -> list[str]:
        """Honest parties with a result that they must not have."""
        return list(self.arena.wrong(self))

    def judge(self) -> list[str]:
        """Everything that is wrong."""
        return [*self.leaks(), *self.frames(), *self.wrongs()]


@dataclass
class Arena:
    """A protocol with its public setting, ready to be fought in."""

    name: str
    contributors: tuple[str, ...]
    seats: tuple[str, ...]  # everybody
    reader: str | None  # who opens the sum; None: everybody
    make: Callable[[Mapping[str, Run], Coins], dict[str, Role[Any]]]
    vectors: Mapping[str, Any]
    length: int
    least: Callable[[int], int]  # colluders -> fewest honest vectors in a sum that may be opened
    reader_only: str | None = None  # rows are readable with this party's key only
    refit: Refit = lambda arena, fight, sender, to, message: message
    setting: Any = None
    purpose: tuple[str, ...] = ()
    seed: bytes = SEED
    study: str = "0" * 64
    run_id: str = "run"
    runs: dict[str, Run] = field(default_factory=dict)
    watched: bool = True  # whether the ledger keeps every secret: for protocols that mask sums

    def fight(
        self,
        coalition: Collection[str] = (),
        change: Change = honest,
        *,
        resign: bool = True,
        instead: Mapping[str, Callable[[Run], Role[Any]]] | None = None,
    ) -> Fight:
        """One run with these colluders. `instead` gives some of them roles that are not the shipped ones."""
        fight = Fight(self, tuple(coalition), Ledger(self.contributors))
        coins = Coins.seeded(self.seed)
        self.runs = local_runs(self.seats, study=self.study, run_id=self.run_id, coins=coins.derive("identities"))
        with fight.ledger.watching() if self.watched else contextlib.nullcontext():
            roles = self.roles(self.runs, coins)
            roles |= {name: role(self.runs[name]) for name, role in (instead or {}).items()}
            seated = {name: self._seat(fight, name, role, change, resign) for name, role in roles.items()}
            fight.outcome = run_in_memory(seated, check=False)
        return fight

    def _seat(self, fight: Fight, name: str, role: Role[Any], change: Change, resign: bool) -> Role[Any]:
        """A role under watch: the ledger knows whose values are made; the coalition's messages pass `change`."""
        ledger, corrupt, value, error = fight.ledger, name in fight.coalition, None, None
        while True:
            ledger.current = name
            try:
                effect = role.throw(error) if error is not None else role.send(value)
            except StopIteration as stop:
                if (wrong := getattr(stop.value, "error", None)) is not None and not corrupt:
                    fight.errors.append((name, wrong))  # a sum that does not open: the reader's alone
                    return None
                return stop.value
            except Exception as raised:
                if not corrupt and raised is not error:  # a deadline that passed is the driver's word, not this role's
                    fight.errors.append((name, raised))
                return None  # quiet
            finally:
                ledger.current = None
            value = error = None
            try:
                if isinstance(effect, Send):
                    ledger.hear(effect.to, effect.message)  # sent is known, whether or not the receiver's role waits for it
                    yield from self._sends(fight, name, effect, change, resign) if corrupt else [effect]
                else:
                    value = yield effect
                    self._hear(fight, name, effect, value)
            except BlindbayesError as raised:
                error = raised

    def _sends(self, fight: Fight, name: str, effect: Send, change: Change, resign: bool) -> Iterator[Send]:
        found = change(name, effect.to, effect.message)
        for message in found if isinstance(found, list) else [] if found is None else [found]:
            sent = message.message if isinstance(message, Send) else message
            to = message.to if isinstance(message, Send) else effect.to
            if resign:
                sent = self.refit(self, fight, name, to, sent)
            fight.changed += sent != effect.message if not _has_words(sent) else sent is not effect.message
            fight.shown[type(sent).__name__, to] = sent
            yield Send(to, sent)
        fight.changed += found is None

    def _hear(self, fight: Fight, name: str, effect: Any, value: Any) -> None:
        if value is None:
            return
        messages = value if isinstance(value, dict) else {getattr(effect, "sender", ""): value}
        for sender, message in messages.items():
            if hasattr(message, "__struct_fields__") and name in fight.coalition:
                fight.heard.setdefault(type(message).__name__, {})[sender] = message

    def roles(self, runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        """Everybody's."""
        return self.make(runs, coins)

    # -- laws ----------------------------------------------------------------------------------------------------------

    def wrong(self, fight: Fight) -> Iterator[str]:
        """Honest readers with a total that the included cannot have, though no liar's vector is in it."""
        if fight.outcome is None or self.reader in fight.coalition:
            return  # a reader that deviates tells any total: every SPEC says so
        for name, total in fight.outcome.outputs.items():
            if name in fight.coalition or not isinstance(total, registry.Total) or set(total.included) & set(fight.coalition):
                continue
            expected = sum((self.vectors[each] for each in total.included), np.zeros(self.length, np.uint64))
            if not np.array_equal(expected, total.words):
                yield f"{name} ends with a wrong total"

    def law(self, fight: Fight, found: Sequence[Mapping[str, int]]) -> Iterator[str]:
        """A sum may tell the sum over one set of honest parties, with at least `least` of them, and nothing else."""
        sets, who = [], "+".join(fight.coalition)
        for functional in found:
            members = tuple(sorted(functional))
            if set(functional.values()) != {1}:
                yield f"{who} compute another combination of {', '.join(members)} than their sum"
            elif members not in sets:
                sets.append(members)
        least = self.least(len(set(fight.coalition) & set(self.contributors)))
        for members in sets:
            if len(members) < least:
                yield f"{who} compute the sum of {', '.join(members)} alone; at least {least} must be in it"
        if len(sets) > 1:
            yield f"{who} compute {len(sets)} sums: {'; '.join(','.join(each) for each in sets)}"


def _has_words(message: Any) -> bool:
    return any(isinstance(getattr(message, name), np.ndarray) for name in message.__struct_fields__)


def small_vectors(names: Sequence[str], length: int) -> dict[str, Any]:
    coins = Coins.seeded(bytes(31) + b"v")
    return {name: coins.words(length) >> np.uint64(56) for name in names}


def sums(
    name: str, sites: Sequence[str], *, quorum: int | None = None, length: int = 1, refit: Refit | None = None, **options: Any
) -> Arena:
    """A protocol of the registry."""
    from adversary.refits import REFITS

    protocol = registry.load(name)
    sites = tuple(sites)
    setting = SUM_SETUP(sites, length, quorum, bound=1 << 20, options=options)
    vectors = small_vectors(sites, length)
    seats = protocol.roster(setting)
    reader = next((seat for seat in ("server", "miner", "builder", "collector") if seat in seats), None)

    def make(runs: Mapping[str, Run], coins: Coins) -> dict[str, Role[Any]]:
        return registry.simulate_roles(protocol, runs, setting, vectors, coins)

    quorum_size = fewest(setting)

    def least(colluders: int) -> int:
        return max(1, quorum_size - colluders)

    return Arena(
        name,
        sites,
        seats,
        reader,
        make,
        vectors,
        length,
        least,
        reader_only="builder" if name == "chain_sum" else None,
        refit=refit or REFITS.get(name, lambda arena, fight, sender, to, message: message),
        setting=setting,
    )
