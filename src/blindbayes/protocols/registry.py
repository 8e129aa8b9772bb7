"""The protocols for rows, by name, behind one small interface.

Those of this distribution are listed here; others add theirs under `blindbayes.sums` (see `extensions`). Every protocol that
sums the parties' vectors offers an object `PROTOCOL` in its package, a `SumProtocol`.

`setting` is public and the same for all. Vectors are words modulo 2^64; so is the total. A protocol that works on
integers reads words as signed (two's complement) and relies on `setting.bound`. Whatever only one protocol knows
(number of neighbours, key size) stands in `setting.options` under names that its SPEC lists; `require_options` refuses
unknown ones. If the vectors already carry noise, `setting.noisy` is set, and the total is opened as `noisy_sum`.

Beside the code stands SPEC.md with one fenced toml block, read by `spec(name)`:

    opened = ["sum"]          labels opened in a run, noise off; with noise on "sum" reads "noisy_sum"
    minimum = 3               minimum number of contributors
    rounds = "4"              python expressions in n (contributors), words, and the names under [variables],
    messages = "4*n"          compared with what the driver measures
    [variables]               optional: name = expression, in order
    [labels]                  optional: what is opened under a label of its own, in plain words
    [facts]                   public properties, see `study.tasks.sums.task_class`
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import tomllib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np

from blindbayes import _extensions as extensions
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, LocalProtocolError, ProtocolError
from blindbayes.protocols.core import Role, Run
from blindbayes.wire import MAX_FRAME_BYTES
from blindbayes.wire import U64Array as U64Array

ROWS = {"masked_sum": "blindbayes.protocols.secure_sum"}
FRAME_OVERHEAD = 4096  # bytes of a message besides its vector


@dataclass(frozen=True, slots=True)
class SumSetup:
    """The public facts of one sum."""

    contributors: tuple[str, ...]  # who brings a vector, in the study's order
    length: int  # words per vector
    quorum: int | None = None  # fewest contributors whose sum may be opened; None: all of them
    noisy: bool = False  # the vectors carry noise already
    bound: int = 2**63 - 1  # every word of the total, read as signed, lies within +-bound
    options: Mapping[str, Any] = field(default_factory=dict)
    founders: tuple[str, ...] = ()  # where contributors come and go: who they were at first
    steps: tuple[tuple[str, bool], ...] = ()  # and who left (False) or came (True) since, in order
    corrupt: float = 0.1  # fraction of the contributors whose collusion a sparse graph is planned for
    ranges: tuple[tuple[int, int, int], ...] = ()  # of words of the total: runs of (low, high, count); none: +-bound for all
    codebook: Codebook | None = None  # if every vector is the exact statistics of a whole table

    def __post_init__(self) -> None:
        if len(set(self.contributors)) != len(self.contributors):
            raise ConfigError(f"contributor {Counter(self.contributors).most_common(1)[0][0]!r} stands twice in the setting")
        if self.length < 1:
            raise ConfigError("a vector has at least one word")
        if self.length * 8 > MAX_FRAME_BYTES - FRAME_OVERHEAD:
            raise ConfigError(f"a vector of {self.length:,} words does not fit one message; take fewer bins, or group values")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.contributors):
            raise ConfigError("a quorum lies between 1 and the number of contributors")
        if self.ranges and sum(count for _, _, count in self.ranges) != self.length:
            raise ConfigError("the counts of the ranges add up to the words of a vector")

    @property
    def quorum_size(self) -> int:
        return len(self.contributors) if self.quorum is None else self.quorum

    @property
    def label(self) -> str:
        return "noisy_sum" if self.noisy else "sum"


@dataclass(frozen=True, slots=True)
class Total:
    """The output of a learner's role."""

    words: U64Array = field(repr=False)  # the sum over `included`, modulo 2^64
    included: tuple[str, ...]  # whose vectors are in it
    error: ProtocolError | None = None  # what came together is no sum: for the learner alone, and its role ends as ever.
    # Otherwise a party that adds a guess to its vector would learn whether the others' total exceeds it.
    refused: tuple[str, ...] = ()  # contributors that a quorum went on without, since their vectors failed a check


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest sum that a protocol can be made to open, to which noise in the vectors may be calibrated."""

    honest: int  # vectors of honest contributors that every opened sum holds, at least; 0: nothing is proved
    failure: float = 0.0  # the chance, over a random graph, that it holds fewer


@dataclass(frozen=True, slots=True)
class Coalition:
    """The numbers of contributors that may collude with the reader and learn no more than the sum of the others."""

    reader: str  # empty: every party reads
    passive: int  # if all of them follow the protocol
    active: int  # if they deviate, the reader too; negative: nothing is claimed
    parts: bool = False  # a reader that deviates may learn sums over parts of the others, if each is large
    trusted: str = ""  # a role that must stay outside: together with the reader it reads every contribution


def known() -> dict[str, str]:
    """Return the modules of all protocols over rows, by name; an extension cannot replace a built-in one."""
    return ROWS | {name: module for name, module in extensions.added(extensions.SUMS).items() if name not in ROWS}


def coalition_of(name: str, setting: SumSetup) -> Coalition | None:
    """Return the coalition that a protocol resists in this setting, as its SPEC proves; None if it claims nothing."""
    return load(name).bears(setting) if name in known() else None


def waits_for_all(name: str, setting: SumSetup) -> bool:
    """Return True if nothing can be opened before every contributor has confirmed who is in the sum."""
    return name in known() and load(name).waits_for_all(setting)


class SumProtocol(ABC):
    """A protocol that sums vectors. Members with a body state the default: no claim beyond the SPEC's."""

    name: ClassVar[str]
    params: ClassVar[type[msgspec.Struct] | None] = None  # its options
    apart: ClassVar[tuple[tuple[str, ...], ...]] = ()  # roles that no one site may fill together

    @abstractmethod
    def check(self, setting: SumSetup) -> None:
        """Raise if no run of this protocol can have this setting."""

    @abstractmethod
    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        """Return all parties: the contributors and, if any, parties without a vector."""

    @abstractmethod
    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        """Return the parties whose role returns a `Total`; the others return None."""

    @abstractmethod
    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        """Return the generator that `run.me` runs; `vector` is None for a party without one."""

    @abstractmethod
    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """Return the smallest sum that `corrupt` contributors can have opened, with an honest or deviating reader."""

    def resists(self, setting: SumSetup) -> bool:
        """Return True if the protocol's SPEC claims anything about a deviating reader of the sum."""
        return False

    def bears(self, setting: SumSetup) -> Coalition | None:
        """Return how many may collude; None: nothing is claimed."""
        return None

    def waits_for_all(self, setting: SumSetup) -> bool:
        """Return True if nothing opens without every contributor's confirmation."""
        return False

    def unsafe(self, setting: SumSetup) -> tuple[str, ...]:
        """Return the options that protect nothing, with the reason; no site runs with one."""
        return ()

    def honest_of(self, setting: SumSetup, name: str, honest: int) -> int:
        """Return the number of honest shares for which a party scales its own noise, if `honest` are planned."""
        return honest

    def noise_law(self, setting: SumSetup) -> type[Any] | None:
        """Return a subclass of `DistributedNoise` that plans the noise of this sum; None: the usual one."""
        return None


def load(name: str) -> SumProtocol:
    """Return the protocol of that name, or raise `ConfigError`."""
    if name not in (modules := known()):
        extensions.refuse_missing(name)
        raise ConfigError(f"there is no rows protocol {name!r}; known: {', '.join(modules)}")
    protocol: SumProtocol = importlib.import_module(modules[name]).PROTOCOL
    return protocol


@functools.cache
def spec(name: str) -> Mapping[str, Any]:
    """Return the machine-readable part of a protocol's SPEC.md."""
    return spec_table((importlib.resources.files(known()[name]) / "SPEC.md").read_text("utf-8"))


def spec_table(text: str) -> dict[str, Any]:
    """Return the machine-readable part of the text of a SPEC.md."""
    return tomllib.loads(text.split("```toml\n", 1)[1].split("```", 1)[0])


def simulate_roles(
    protocol: SumProtocol, runs: Mapping[str, Run], setting: SumSetup, vectors: Mapping[str, U64Array], coins: Coins
) -> dict[str, Role[Total | None]]:
    """Make one role per party of the roster, each with its own coins, for a driver in one process."""
    return {
        name: protocol.role(runs[name], setting, vectors.get(name), coins.derive(f"party {name}"))
        for name in protocol.roster(setting)
    }


def require_vector(vector: U64Array | None, setting: SumSetup, party: str) -> U64Array:
    """Return the party's own input if it consists of words and has the setting's length."""
    if vector is None:
        raise LocalProtocolError("a contributor needs a vector", party=party)
    if vector.dtype != np.uint64 or vector.shape != (setting.length,):
        raise LocalProtocolError("a vector has the setting's length and 64-bit words", party=party)
    return vector


def require_options(setting: SumSetup, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with their defaults. Raise `ConfigError` for an unknown name."""
    unknown = sorted(set(setting.options) - set(known))
    if unknown:
        raise ConfigError(f"unknown protocol option {unknown[0]!r}; known: {', '.join(sorted(known)) or 'none'}")
    return {**known, **setting.options}
