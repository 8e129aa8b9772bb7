"""Roles of the deduplicated sum. Step numbers as in SPEC.md."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all, send_all
from blindbayes.protocols.deduplicated_sum.messages import PseudonymKeyShared, PseudonymsSent
from blindbayes.protocols.floored_sum.roles import hidden
from blindbayes.protocols.registry import SumSetup, Total, require_vector
from blindbayes.protocols.secure_sum.keys import SERVER
from blindbayes.protocols.secure_sum.messages import TotalPublished
from blindbayes.protocols.shared_training.class_sums.roles import ClassSumsSetup, attribute_holder, class_holder
from blindbayes.protocols.two_party.transfer.roles import ot_receiver, ot_sender
from blindbayes.wire import U64Array

LABEL = "persons_by_sites"
MAX_CONTRIBUTORS = 64
"""With more, sites speak with the server alone, and the key of the pseudonyms must not pass through its hands."""
KEY_BYTES, PSEUDONYM_BYTES = 32, 16
_BLOCK_BYTES = 1 << 24  # of persons' words at once
_DROPPED, _COUNTED = 0, 1  # the classes of class_sums

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Persons:
    """The persons of one contributor: an identifier of each, and what each adds to the sum."""

    identifiers: Sequence[bytes] = field(repr=False)  # distinct
    words: Callable[[Places], U64Array] = field(repr=False)  # of these persons, (persons, length)


@dataclass(frozen=True)
class DeduplicatedSetup:
    """The public facts: the masked sum underneath, and the most persons that a contributor may bring."""

    sum: SumSetup
    max_persons: int

    def __post_init__(self) -> None:
        names = self.sum.contributors
        if len(names) > MAX_CONTRIBUTORS:
            raise ConfigError(f'sites_per_person = "matched" is for at most {MAX_CONTRIBUTORS} sites; give a number of sites')
        if self.sum.quorum_size < len(names):
            raise ConfigError('sites_per_person = "matched" needs every site; leave quorum unset')

    @property
    def masked(self) -> SumSetup:
        """The setting of the sum underneath: the server learns a share of the sum, which is not published."""
        options = {**self.sum.options, "publish": False}
        return replace(self.sum, options=options, bound=2**63 - 1, ranges=(), quorum=len(self.sum.contributors))

    @property
    def publish(self) -> bool:
        """Return True if every contributor learns the sum."""
        return bool(self.sum.options.get("publish", True))

    def counted(self, persons: int) -> ClassSumsSetup:
        """Return the facts of a contributor's shares: one row per person, which counts or is dropped."""
        return ClassSumsSetup(persons, self.sum.length, 2)

    @property
    def max_link_bytes(self) -> int:
        """The most that one role sends another beyond the masked sum."""
        per_person = PSEUDONYM_BYTES + 8 * (self.sum.length + 1) + 16 + 8
        return 2 * per_person * max(64, self.max_persons) + (1 << 20)


def role(
    run: Run, setup: DeduplicatedSetup, persons: Persons | None, noise: U64Array | None, coins: Coins
) -> Role[Total | None]:
    """Run any party's role. A contributor brings its persons and the noise that it adds to the sum."""
    if run.me == SERVER:
        return (yield from _server(run, setup, coins))
    if persons is None:
        raise LocalProtocolError("a contributor needs its persons", party=run.me)
    return (yield from _contributor(run, setup, persons, require_vector(noise, setup.sum, run.me), coins))


def _contributor(run: Run, setup: DeduplicatedSetup, persons: Persons, noise: U64Array, coins: Coins) -> Role[Total | None]:
    first, *others = setup.sum.contributors
    if run.me == first:  # 1. A key that every contributor has.
        key = coins.derive("pseudonyms").bytes(KEY_BYTES)
        yield from send_all(others, PseudonymKeyShared(key))
    else:
        shared = yield from receive(first, PseudonymKeyShared)
        key = shared.key
        if len(key) != KEY_BYTES:
            raise PeerProtocolError("a key of pseudonyms has the wrong length", party=first)

    # 2. One pseudonym per person, in ascending order.
    names, order = pseudonyms(run, key, persons.identifiers, coins.derive("nobody"))
    yield Send(SERVER, PseudonymsSent(names))

    # 4. Shares of what the persons that count add up to. The server alone knows which ones do.
    transfers = yield from ot_sender(run, SERVER, coins.derive("transfers"))
    facts = setup.counted(len(order))
    blocks = _blocks(persons, order, setup.sum.length)
    share = yield from attribute_holder(run, SERVER, facts, blocks, transfers, coins.derive("shares"))

    # 5. and 6. The shares, under noise, are added up.
    masked = registry.load("masked_sum").role(run, setup.masked, share[_COUNTED] + noise, coins.derive("sum"))
    yield from hidden(masked)
    if not setup.publish:
        return None
    published = yield from receive(SERVER, TotalPublished)
    if len(published.total) != setup.sum.length:
        raise PeerProtocolError("the total has another length", party=SERVER)
    yield from open_value(setup.sum.label, published.total)
    return Total(published.total, setup.sum.contributors)


def _server(run: Run, setup: DeduplicatedSetup, coins: Coins) -> Role[Total]:
    contributors = setup.sum.contributors
    sent = yield from receive_all(contributors, PseudonymsSent)  # 2.
    lists = {name: _read(sent[name].pseudonyms, setup.max_persons, name) for name in contributors}
    counts, at_sites = choose(list(lists.values()), coins.derive("choice"))  # 3.
    yield from open_value(LABEL, at_sites)

    own = np.zeros(setup.sum.length, np.uint64)
    for name, counted in zip(contributors, counts, strict=True):  # 4.
        transfers = yield from ot_receiver(run, name, coins.derive(f"transfers with {name}"))
        facts = setup.counted(len(counted))
        share = yield from class_holder(run, name, facts, [counted], transfers, coins.derive(f"shares with {name}"))
        own += share[_COUNTED]

    masked = registry.load("masked_sum").role(run, setup.masked, None, coins.derive("sum"))  # 5.
    shares = yield from hidden(masked)
    if shares is None:
        raise PeerProtocolError("nobody learned the masked total")
    total = shares.words + own  # 6.
    yield from open_value(setup.sum.label, total)
    if setup.publish:
        yield from send_all(contributors, TotalPublished(total))
    return Total(total, contributors)


def pseudonyms(run: Run, key: bytes, identifiers: Sequence[bytes], coins: Coins) -> tuple[bytes, Places]:
    """Return pseudonyms in ascending order, and the person of each; -1 for one that stands for nobody.

    A contributor without persons sends one of these, so that every contributor takes the same steps.
    """
    made = hashlib.blake2b(run.context("pseudonyms"), key=key, digest_size=32, person=b"bb pseudonyms").digest()
    keyed = partial(hashlib.blake2b, digest_size=PSEUDONYM_BYTES, key=made, person=b"bb pseudonym")
    named = sorted((keyed(each).digest(), at) for at, each in enumerate(identifiers))
    if not named:
        named = [(coins.bytes(PSEUDONYM_BYTES), -1)]
    return b"".join(name for name, _ in named), np.array([at for _, at in named], dtype=np.int64)


def choose(lists: Sequence[U64Array], coins: Coins) -> tuple[list[Places], dict[tuple[int, ...], int]]:
    """Return for each list of pseudonyms which of them count, and how many are in which lists together.

    Of equal pseudonyms one counts, every one with the same chance, whatever the others are.
    """
    sizes = [len(each) for each in lists]
    names, where = np.concatenate(lists), np.repeat(np.arange(len(lists)), sizes)
    order = np.lexsort((coins.words(len(names)), names[:, 1], names[:, 0]))
    ordered = names[order]
    starts = np.flatnonzero(np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)]))
    counts = np.full(len(names), _DROPPED, dtype=np.int64)
    counts[order[starts]] = _COUNTED
    combination = np.add.reduceat(np.left_shift(np.uint64(1), where[order].astype(np.uint64)), starts)
    together = Counter({int(bits): int(times) for bits, times in zip(*np.unique(combination, return_counts=True), strict=True)})
    at_sites = {tuple(at for at in range(len(lists)) if bits >> at & 1): times for bits, times in together.items()}
    return np.split(counts, np.cumsum(sizes)[:-1]), at_sites


def _read(packed: bytes, limit: int, sender: str) -> U64Array:
    """Return a list of pseudonyms as pairs of words, after checking that they are distinct and in order."""
    if not packed or len(packed) % PSEUDONYM_BYTES or len(packed) > PSEUDONYM_BYTES * limit:
        raise PeerProtocolError("a list of pseudonyms has the wrong length", party=sender)
    words = np.frombuffer(packed, ">u8").astype(np.uint64).reshape(-1, 2)
    high, low = words[:, 0], words[:, 1]
    if not ((high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))).all():
        raise PeerProtocolError("pseudonyms are not distinct and in order", party=sender)
    return words


def _blocks(persons: Persons, order: Places, length: int) -> Iterator[U64Array]:
    """Yield the words of the persons in the order of their pseudonyms; zeros for nobody."""
    size = max(64, _BLOCK_BYTES // (8 * length))
    for low in range(0, len(order), size):
        part = order[low : low + size]
        yield persons.words(part) if part[0] >= 0 else np.zeros((len(part), length), np.uint64)


def by_names(at_sites: Mapping[tuple[int, ...], int], names: Sequence[str]) -> dict[str, int]:
    """Return the numbers of `choose` under the names of the sites, for reports."""
    return {" and ".join(names[at] for at in each): times for each, times in sorted(at_sites.items())}
