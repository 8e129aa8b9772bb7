"""Public facts of one oblivious sum: its options, its scheme, and what follows from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import curve_of
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import ConfigError
from blindbayes.protocols.core import Run
from blindbayes.protocols.pair_keys import digest_of, require_keys, scope_of
from blindbayes.protocols.registry import SumSetup, require_options
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups
from blindbayes_papers.huai2015.oblivious_sum.params import ObliviousSumParams
from blindbayes_papers.huai2015.oblivious_sum.proof import Rule, TableProof, table_rules
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum

MINER = "miner"
DEALER = "dealer"
OPTIONS: dict[str, Any] = msgspec.structs.asdict(ObliviousSumParams())


class Pack(Protocol):
    """A vector as plaintexts and back."""

    @property
    def chunks(self) -> int: ...

    def pack(self, values: Sequence[int]) -> list[int]: ...

    def unpack(self, totals: Sequence[int], *, party: str | None = None) -> list[int]: ...


class ObliviousEncryption(Protocol):
    """The operations of an aggregator-oblivious encryption that the roles use; see `primitives.joye_libert`."""

    @property
    def digest(self) -> bytes: ...

    def random_key(self, coins: Coins) -> int: ...

    def pair_key(self, secret: bytes) -> int: ...

    def total(self, keys: Iterable[int]) -> int: ...

    def split(self, key: int, holders: int, threshold: int, coins: Coins, *, count: int = 1) -> list[int]: ...

    def share_bits(self, holders: int, threshold: int, count: int) -> int: ...

    def scale(self, holders: int) -> int: ...

    def weights(self, points: Sequence[int], holders: int) -> list[int]: ...

    def packing(self, length: int, bound: int) -> Pack: ...

    def encrypt(self, plaintexts: Sequence[int], key: int, label: bytes) -> list[bytes]: ...

    def masks(self, key: int, label: bytes, count: int) -> list[bytes]: ...

    def multiply(self, columns: Sequence[Sequence[bytes]]) -> list[bytes]: ...

    def power(self, elements: Sequence[bytes], exponent: int) -> list[bytes]: ...

    def open(self, elements: Sequence[bytes], scale: int = 1) -> list[int]: ...

    def is_zero(self, elements: Sequence[bytes]) -> list[bool]: ...

    def random_plaintext(self, coins: Coins) -> int: ...

    def require_elements(self, elements: Sequence[bytes], count: int, *, party: str | None = None) -> None: ...


@lru_cache(maxsize=4)
def _shuffled(context: bytes, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names in an order that follows from what is public and fixed before the run."""
    return tuple(sorted(names, key=lambda name: hashlib.sha256(context + name.encode()).digest()))


@dataclass(frozen=True, slots=True)
class ObliviousSumSetup:
    """One run's public facts."""

    run: Run
    setting: SumSetup
    purpose: str = "sum"  # or "maximum": keys of one are of no use in the other

    def __post_init__(self) -> None:
        option = self.option
        if option["scheme"] not in ("joye_libert", "ristretto") or option["keys"] not in ("pairwise", "standing", "dealer"):
            raise ConfigError("scheme is 'joye_libert' or 'ristretto', keys are 'pairwise', 'standing' or 'dealer'")
        if option["noise"] not in ("usual", "diluted") or (option["noise"] == "diluted" and not self.setting.noisy):
            raise ConfigError("noise is 'usual' or, with epsilon, 'diluted'")
        if len(self.setting.contributors) < 2:
            raise ConfigError("an oblivious sum has at least two contributors")
        if {MINER, DEALER} & set(self.setting.contributors):
            raise ConfigError(f"the names {MINER!r} and {DEALER!r} belong to parties without a vector")
        if self.tolerant and option["keys"] == "dealer":
            raise ConfigError("with dealt keys everybody must answer: leave out the quorum, or use pairwise keys")
        if self.tolerant and 2 * self.setting.quorum_size <= len(self.setting.contributors):
            raise ConfigError("a quorum is more than half of the contributors: two survivor sets must have a party in common")
        if option["scheme"] == "ristretto":
            RistrettoSum(self.bound).packing(self.setting.length, self.bound)  # refuses totals out of reach

    @property
    def option(self) -> dict[str, Any]:
        """The protocol's options with their defaults."""
        return require_options(self.setting, OPTIONS)

    @property
    def bound(self) -> int:
        """Bound on a field of the packed total. Where none is declared, any sum of signed words fits."""
        declared = self.setting.bound
        return declared if declared < 2**63 - 1 else len(self.setting.contributors) << 63

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that every contributor proves of its vector; none where nothing can be proved."""
        book, option = self.setting.codebook, self.option
        return table_rules(book) if book is not None and option["proofs"] and option["scheme"] == "ristretto" else ()

    def proof(self, label: bytes, party: str) -> TableProof:
        """The proof of one contributor's vector."""
        return TableProof(RistrettoSum(self.bound), self.rules, label, party)

    @property
    def tolerant(self) -> bool:
        """Return whether contributors may fail: a quorum below everybody is set."""
        return self.setting.quorum_size < len(self.setting.contributors)

    @property
    def needs_modulus(self) -> bool:
        """Return whether a dealer deals the modulus in this run."""
        return bool(self.option["scheme"] == "joye_libert" and self.option["modulus"] is None)

    @property
    def has_dealer(self) -> bool:
        """Return whether a dealer is in the roster."""
        return self.needs_modulus or bool(self.option["keys"] == "dealer")

    def scheme(self, modulus: int | None) -> ObliviousEncryption:
        """The encryption scheme; `modulus` as dealt in this run."""
        if self.option["scheme"] == "ristretto":
            return RistrettoSum(self.bound)
        number = int(self.option["modulus"], 16) if modulus is None else modulus
        scheme = JoyeLibert(number, toy_keys=self.option["toy_keys"])
        if self.option["modulus"] is None and scheme.bits != self.option["modulus_bits"]:
            raise ConfigError("the modulus has another size than agreed")
        return scheme

    def groups(self, names: Sequence[str]) -> Groups:
        """The key graph over these parties. With keys that stand, over everybody, as it grew with the roster; with keys of the
        run one of the run, so that nobody's place in the roster is a place in it."""
        setting, width = self.setting, self.option["width"]
        if self.stands and setting.founders and tuple(names) == setting.contributors:
            return Groups.after(setting.founders, setting.steps, width)
        groups = Groups(names, width)
        return (
            groups
            if groups.is_complete or self.stands
            else Groups(_shuffled(self.run.context("key graph"), tuple(names)), width)
        )

    def max_colluders(self, *, malicious: bool) -> int:
        """Return how many contributors may collude with the miner, semi-honest or malicious; SPEC.md, Threat model."""
        groups, quorum_size = self.groups(self.setting.contributors), self.setting.quorum_size
        size = len(self.setting.contributors)
        if not self.tolerant:
            return size - 1 if groups.is_complete or self.option["keys"] == "dealer" else groups.tolerance()
        bound = 2 * quorum_size - size - 1 if malicious else quorum_size - 1
        return bound if groups.is_complete else min(groups.width - 1, bound)

    @property
    def stands(self) -> bool:
        """Return whether the keys are those of the sites' cards."""
        return bool(self.option["keys"] == "standing")

    def agreement(self, coins: Coins) -> AgreementKey:
        """My key of this run, or the one that stands. Everybody's must stand in the signed roster, each once."""
        if not self.stands:
            return AgreementKey.generate(coins.derive("agreement"))
        run = self.run
        known = {name: curve_of(run.keys.get(name, b"")) for name in self.setting.contributors}
        if run.agreement is None or run.keys.get(run.me) != run.agreement.public:
            raise ConfigError("the roster names another standing key for this site than its card")
        if missing := [name for name in (*known, MINER) if not run.keys.get(name)]:
            raise ConfigError(f"{missing[0]} has no standing key in the roster: its card is of an earlier version")
        require_keys(known.items())
        return run.agreement.curve

    @property
    def standing(self) -> dict[str, bytes]:
        """The X25519 keys of everybody's card. Pairs that send nothing to agree on keys cannot have an encapsulated secret."""
        return {name: curve_of(key) for name, key in self.run.keys.items()}

    def scope(self, scheme: ObliviousEncryption) -> bytes:
        """Return what run keys and their signatures are bound to."""
        shape = (self.setting.length, self.setting.quorum_size, self.option["width"])
        everybody = digest_of(dict.fromkeys(self.setting.contributors, b"")).hex()
        return scope_of(self.run, "oblivious_sum v2", self.purpose, scheme.digest.hex(), everybody, *map(str, shape))

    def roster_digest(self, names: Sequence[str], keys: bytes = b"", miner: bytes = b"") -> bytes:
        """Binds labels and pair keys to the roster, to the hash of all run keys, and to the miner's."""
        return hashlib.sha256(self.run.context("roster", keys.hex(), miner.hex(), *names)).digest()

    def standing_digest(self) -> bytes:
        """The same where all keys stand in the signed roster."""
        names, keys = self.setting.contributors, self.standing
        return self.roster_digest(names, digest_of({name: keys[name] for name in names}), keys[MINER])

    def label(self, roster: bytes, step: str) -> bytes:
        """The label under which a vector is encrypted: unique to study, run, roster and step. Positions are added to it."""
        return hashlib.sha256(self.run.context("label", step, roster.hex())).digest()

    def threshold(self, groups: Groups, segment: int) -> int:
        """Return how many of the holders around a segment recover its masks."""
        return self.setting.quorum_size if len(groups.segments) <= 3 else len(groups.around(segment)) // 2 + 1

    def refusal(self, groups: Groups, survivors: Iterable[str]) -> str | None:
        """Return why the sum over these survivors must not be opened, or None."""
        left = set(survivors)
        if len(left) < self.setting.quorum_size:
            return "fewer survivors than the quorum"
        if len(groups.segments) > 3:
            minimum = -(-groups.width // 2)
            if any(len(left.intersection(segment)) < minimum for segment in groups.segments):
                return "a segment of the key graph has lost too many parties"
            for at in range(len(groups.segments)):
                if len(left.intersection(groups.around(at))) < self.threshold(groups, at):
                    return "a segment of the key graph has lost too many share holders"
        return None
