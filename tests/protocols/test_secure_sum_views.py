"""masked_sum: what the server can tell apart, the entropy of masks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adversary import planted
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import derive_key, expand, keys_of
from blindbayes.protocols import pair_keys
from blindbayes.protocols.memory import Drop, Fault, Vanish
from blindbayes.protocols.secure_sum import contributor as contributor_module
from blindbayes.protocols.secure_sum import messages
from blindbayes.protocols.secure_sum import server as server_module
from blindbayes.wire.transcript import Keep
from support.masked import SENDS_VECTOR, start
from support.sums import SEED, names, pooled, random_vectors, run_sum
from support.views import distinguished


class IdealMasks:
    """Every mask a uniform bit of its own, chosen by the test; everything else is the shipped code. Vectors modulo 2.

    The stream cipher, key agreement and sealing are idealised: a party's view holds the masks whose keys it used, and the
    frames it was handed.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.table: dict[bytes, int] = {}
        self.used: dict[str, list[bytes]] = {}
        self.calls = 0
        self.sent: dict[str, int] = {}
        patch.setattr(contributor_module, "add_masks", self.by_contributor)
        patch.setattr(server_module, "add_masks", self.by_server)

    def begin(self, bits: tuple[int, ...] | None) -> None:
        if bits is not None:
            self.table = dict(zip(self.table, bits, strict=True))
        self.used, self.calls = {}, 0

    def total(self, party: str, vector: np.ndarray, found: list[bytes]) -> np.ndarray:
        self.used[party] = found
        for key in found:
            self.table.setdefault(key, 0)
        result = (vector + np.uint64(sum(self.table[key] for key in found))) & np.uint64(1)
        self.sent[party] = int(result[0])
        return result

    def by_contributor(self, vector: np.ndarray, plus: bytes, minus: bytes) -> np.ndarray:
        party = self.order[self.calls]
        self.calls += 1
        return self.total(party, vector, keys_of(plus + minus)[1 - self.own :])  # its own mask comes first

    def by_server(self, vector: np.ndarray, plus: bytes, minus: bytes) -> np.ndarray:
        return self.total("server", vector, [key for key in keys_of(plus + minus) if self.own or key in self.table])

    order: list[str]
    own = 1


def ideal_samples(
    patch: pytest.MonkeyPatch, faults: list[Fault], order: list[str], seen_late: str | None = None
) -> list[tuple[dict[str, int], dict[str, Any]]]:
    masks = IdealMasks(patch)
    masks.order = order
    sites = names(3)

    def run(inputs: dict[str, int], bits: tuple[int, ...] | None) -> dict[str, tuple[Any, ...]]:
        masks.begin(bits)
        vectors = {name: np.array([inputs[name]], np.uint64) for name in sites}
        outcome = run_sum("masked_sum", vectors, quorum=2, faults=faults, keep=Keep.FRAMES)
        included = outcome.outputs["server"].included
        assert int(outcome.outputs["server"].words[0]) == sum(inputs[name] for name in included) % 2
        views: dict[str, tuple[Any, ...]] = {
            name: (tuple(masks.table[key] for key in masks.used.get(name, [])), tuple(outcome.transcript.deliveries[name]))
            for name in (*sites, "server")
        }
        if seen_late:
            views["server"] = (*views["server"], masks.sent[seen_late])
        return views

    run(dict.fromkeys(sites, 0), None)
    samples = []
    for values in itertools.product((0, 1), repeat=3):
        inputs = dict(zip(sites, values, strict=True))
        for bits in itertools.product((0, 1), repeat=len(masks.table)):
            samples.append((inputs, run(inputs, bits)))
    return samples


SITES = list(names(3))
PATTERNS: dict[str, tuple[list[Fault], list[str], set[str]]] = {
    "nobody lost": ([], SITES, set(SITES)),
    "lost before its vector": ([Vanish("site1", SENDS_VECTOR)], SITES, {"site0", "site2"}),
    "lost after its vector": ([Vanish("site1", SENDS_VECTOR + 1)], SITES, set(SITES)),
}


@pytest.mark.parametrize(
    "pattern", ["nobody lost", "lost before its vector", pytest.param("lost after its vector", marks=pytest.mark.slow)]
)
def test_the_server_and_a_colluder_learn_the_sum_of_the_others_only(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every input, every mask: exact equality of the views' distributions for equal sums over the honest included."""
    faults, order, included = PATTERNS[pattern]
    samples = ideal_samples(monkeypatch, faults, order)
    for coalition in (("server",), *((name, "server") for name in SITES)):
        members = [name for name in coalition if name != "server"]

        def honest_sum(inputs: dict[str, int], members: list[str] = members) -> tuple[int, ...]:
            return (sum(inputs[name] for name in included if name not in members) % 2, *(inputs[name] for name in members))

        known = [({**inputs, "server": 0}, views) for inputs, views in samples]
        assert distinguished(known, coalition, honest_sum) == []


def test_one_mask_for_all_pairs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.one_seed_for_all(monkeypatch)
    samples = ideal_samples(monkeypatch, [], SITES)
    known = [({**inputs, "server": 0}, views) for inputs, views in samples]
    assert distinguished(known, ("server",), lambda inputs: sum(inputs.values()) % 2)


@pytest.mark.parametrize("own_mask", [True, False])
def test_a_vector_that_comes_late_stays_hidden_by_its_own_mask(own_mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """site1's vector arrives after its pair masks were recovered. Without a mask of its own the server reads it."""
    if not own_mask:
        monkeypatch.setattr(IdealMasks, "own", 0)
    late = Drop(lambda entry: entry.kind is messages.MaskedVectorSent and entry.sender == "site1")
    samples = ideal_samples(monkeypatch, [late], SITES, seen_late="site1")
    known = [({**inputs, "server": 0}, views) for inputs, views in samples]
    found = distinguished(known, ("server",), lambda inputs: (inputs["site0"] + inputs["site2"]) % 2)
    assert bool(found) != own_mask


@pytest.mark.parametrize("lost", [None, "site1"])
def test_a_simulator_that_knows_only_the_sum_makes_the_same_messages(lost: str | None) -> None:
    """With the same coins, other inputs of the same sum change the masked vectors and nothing else, byte for byte."""
    vectors = random_vectors(names(5), 4)
    faults: list[Fault] = [] if lost is None else [Vanish(lost, SENDS_VECTOR)]
    honest = [name for name in vectors if name != lost]
    faked = {name: np.zeros(4, np.uint64) for name in vectors}
    faked[honest[-1]] = pooled(vectors, honest)
    real, simulated = (
        run_sum("masked_sum", each, quorum=3, faults=faults, keep=Keep.FRAMES).transcript.entries for each in (vectors, faked)
    )
    assert len(real) == len(simulated)
    for one, other in zip(real, simulated, strict=True):
        assert (one.sender, one.to, one.kind, one.size) == (other.sender, other.to, other.kind, other.size)
        assert (one.frame == other.frame) == (one.kind is not messages.MaskedVectorSent)


def test_no_vector_stands_in_any_message() -> None:
    canary = np.array([0x1122334455667788, 0x99AABBCCDDEEFF00], np.uint64)
    vectors = {name: canary + np.uint64(index) for index, name in enumerate(names(4))}
    outcome = run_sum("masked_sum", vectors, keep=Keep.FRAMES)
    for vector in vectors.values():
        for word in vector:
            assert not any(word.tobytes() in (entry.frame or b"") for entry in outcome.transcript.entries)


# -- entropy of masks -------------------------------------------------------------------------------------------------------


def weak_bits(mask_of: Callable[[bytes], bytes]) -> list[int]:
    """Bits of the agreed secret that do not enter the mask."""
    secret = bytes(range(100, 132))
    base = mask_of(secret)
    weak = []
    for place in range(256):
        flipped = bytearray(secret)
        flipped[place // 8] ^= 1 << place % 8
        if mask_of(bytes(flipped)) == base:
            weak.append(place)
    return weak


def collisions(masks_of: Callable[[list[bytes]], list[bytes]], draws: int) -> int:
    """Equal masks among many random secrets: with b-bit seeds about draws^2 / 2^(b+1)."""
    secrets = Coins.seeded(SEED).derive("collisions").bytes(32 * draws)
    return draws - len(set(masks_of([secrets[at : at + 32] for at in range(0, len(secrets), 32)])))


def test_masks_carry_the_full_entropy_of_their_secrets() -> None:
    _, terms, _ = start(3, 2)

    class Agreed(AgreementKey):
        """A key whose agreed secret the test chooses."""

        def agree_many(self, publics: Any, parties: Any) -> list[bytes]:
            return list(publics)

    mine = Agreed(bytes(32))

    def mask_keys(secrets: list[bytes]) -> list[bytes]:
        how = {"me": "site0", "other": "site1", "scope": terms.context, "purpose": "masked_sum pair"}
        pairs = b"".join([pair_keys.pair_key(mine, secret, **how) for secret in secrets])
        return keys_of(terms.mask_keys(terms.run_keys(pairs, 0, [1] * len(secrets), bytes(32))[0])[0])

    def shipped(secret: bytes) -> bytes:
        return expand(mask_keys([secret])[0], 1).tobytes()

    def short(secret: bytes) -> bytes:  # Flower's SecAgg+ seeds its masks with 32 bits
        return derive_key(secret[:4] + bytes(28), "pair mask")[:8]

    assert weak_bits(shipped) == []
    assert len(weak_bits(short)) == 224
    assert collisions(lambda secrets: [key[:8] for key in mask_keys(secrets)], 300_000) == 0  # chance of any: 3e-9
    assert collisions(lambda secrets: list(map(short, secrets)), 300_000) > 0  # chance of none: e^-10.5


def test_short_keys_are_refused() -> None:
    for key in (b"", bytes(4), bytes(31), bytes(33)):
        with pytest.raises(ValueError):
            expand(key, 1)
        with pytest.raises(ValueError):
            derive_key(key, "x")
