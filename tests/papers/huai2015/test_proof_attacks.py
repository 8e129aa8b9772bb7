"""Attacks on the proofs of contributions: replay, mauling, borrowed proofs, ranges, weak Fiat-Shamir, nonces used twice.

Each attack that our proof withstands also runs against a form with a planted fault, where it must succeed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from blindbayes import Codebook
from blindbayes.codebook import Categorical
from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ristretto import ORDER
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Send
from blindbayes.protocols.memory import Outcome, local_runs, run_in_memory
from blindbayes.statistics import Layout
from blindbayes_papers.huai2015.oblivious_sum import proof
from blindbayes_papers.huai2015.oblivious_sum.messages import CiphertextsSent
from blindbayes_papers.huai2015.oblivious_sum.proof import BIT_BYTES, LINK_BYTES, Rule, TableProof
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum, times, times_base
from support.sums import names

SCHEME = RistrettoSum(1000)
KEY = 987654321987654321
LABEL = hashlib.sha256(b"label").digest()
RULES = (Rule("x", ((0, 1),), 3), Rule("y", ((1, 1),), 3), Rule("equal", ((0, 1), (1, -1), (2, -1)), 0))
WORDS = [5, 3, 2]
BITS = proof.bit_count(RULES)
SCALARS = range(32 * BITS, BIT_BYTES * BITS + LINK_BYTES, 32)  # where they stand in a proof


def coins(seed: int = 0) -> Coins:
    return Coins.seeded(seed.to_bytes(32, "big"))


def prover(label: bytes = LABEL, party: str = "a", rules: Sequence[Rule] = RULES) -> TableProof:
    return TableProof(SCHEME, rules, label, party)


def made(words: Sequence[int] = WORDS, label: bytes = LABEL, seed: int = 0) -> tuple[list[bytes], bytes]:
    elements = SCHEME.encrypt(words, KEY, label)
    return elements, prover(label).prove(words, elements, KEY, coins(seed))


def refuses(elements: Sequence[bytes], shown: bytes, checker: TableProof | None = None) -> bool:
    try:
        (checker or prover()).require(elements, shown)
    except PeerProtocolError as error:
        return error.party == (checker or prover())._party
    return False


def weaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant the weak Fiat-Shamir transform: challenges bind to session and contributor, not to ciphertexts and commitments."""
    root = TableProof._root
    monkeypatch.setattr(TableProof, "_root", lambda self, elements, commitments: root(self, (), ()))


def forge_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the prover go on with the low bits of a side that is out of range."""

    def forged(rules: Sequence[Rule], words: Sequence[int], party: str) -> list[int]:
        sides = (rule.constant + sum(factor * words[at] for at, factor in rule.terms) for rule in rules)
        return [side % (1 << rule.bits) for rule, side in zip(rules, sides, strict=True)]

    monkeypatch.setattr(proof, "require_rules", forged)


# -- what a proof is bound to ------------------------------------------------------------------------------------------


def test_a_proof_holds_for_its_session_contributor_rules_and_ciphertexts_alone() -> None:
    elements, shown = made()
    assert not refuses(elements, shown)
    wider = (Rule("x", ((0, 1),), 3, 1), *RULES[1:])
    others = [prover(party="b"), prover(label=hashlib.sha256(b"run 2").digest()), prover(rules=wider)]
    others += [prover(rules=(RULES[1], RULES[0], RULES[2])), prover(label=LABEL + b"a", party="")]
    assert all(refuses(elements, shown, each) for each in others)
    assert refuses([elements[1], elements[0], elements[2]], shown)
    assert refuses(SCHEME.encrypt(WORDS, KEY + 1, LABEL), shown)  # the same words under another key
    assert refuses(elements, shown[:-32])
    assert refuses(elements, shown + bytes(32))


def test_the_name_of_a_rule_is_no_part_of_the_statement() -> None:
    """Only what is proved is hashed: sites that word an error otherwise still understand each other."""
    elements, shown = made()
    assert not refuses(elements, shown, prover(rules=tuple(Rule("z", r.terms, r.bits, r.constant) for r in RULES)))


@pytest.mark.parametrize("at", SCALARS)
def test_a_scalar_has_one_encoding(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adding the order to a scalar gives other bytes for the same number: accepted, it would make one proof many."""
    elements, shown = made()
    moved = (int.from_bytes(shown[at : at + 32], "little") + ORDER).to_bytes(32, "little")
    mauled = shown[:at] + moved + shown[at + 32 :]
    assert refuses(elements, mauled)
    monkeypatch.setattr(TableProof, "_scalars", lambda self, data: [_read(data, at) for at in range(0, len(data), 32)])
    assert refuses(elements, mauled) == (at == SCALARS[-3])  # the challenge of the link is compared as it stands


def _read(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 32], "little")


def test_ciphertext_and_commitment_moved_together_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """c + G and the lowest commitment + G leave the link as it is; only the hash of the statement notices."""
    elements, shown = made([4, 3, 1])
    one = times_base(1)
    mauled = ristretto.add(shown[:32], one) + shown[32:]
    changed = [ristretto.add(elements[0], one), elements[1], ristretto.add(elements[2], one)]
    assert refuses(changed, mauled)
    weaken(monkeypatch)
    elements, shown = made([4, 3, 1])
    mauled = ristretto.add(shown[:32], one) + shown[32:]
    changed = [ristretto.add(elements[0], one), elements[1], ristretto.add(elements[2], one)]
    monkeypatch.setattr(TableProof, "_require_bit", lambda *_: None)
    assert not refuses(changed, mauled)


# -- ranges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*range(-3, 12), 1 << 251, ORDER - 1])
def test_exactly_the_values_of_the_range_are_provable(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forge_sides(monkeypatch)
    elements, shown = made([value, 3, value - 3])
    assert refuses(elements, shown) == (not 0 <= value < 8)


def test_an_equality_that_does_not_hold_is_not_provable(monkeypatch: pytest.MonkeyPatch) -> None:
    forge_sides(monkeypatch)
    assert refuses(*made([5, 3, 1]))


@pytest.mark.parametrize("bit", [0, 1])
def test_a_commitment_to_two_is_refused(bit: int) -> None:
    """The bit proof alone: whichever branch the prover takes, 2 G + r P is neither."""
    root, blind = b"r" * 64, 77
    commitment = ristretto.add(times(blind, proof._BLIND), times_base(2))
    shown = proof._prove_bit(root, 0, bit, blind, commitment, coins())
    with pytest.raises(PeerProtocolError):
        prover()._require_bit(root, 0, commitment, [_read(shown, at) for at in range(0, 128, 32)])


# -- weak Fiat-Shamir --------------------------------------------------------------------------------------------------


def chosen_after_the_challenge() -> tuple[list[bytes], bytes]:
    """Forge the bit proof of one commitment, which holds v = 1 - a / e for a challenge e that was asked first.

    Branch 0 has the challenge 0 and the announcement s P. Branch 1 announces a G + u P and gets e, and its check
    s' P - e (B - G) = a G + u P holds for B = v G + r P with e (v - 1) = -a and s' = u + e r.
    """
    own = prover()
    root, point = own._root((), ()), proof._BLIND
    a, u, s, r = 11, 22, 33, 44
    announced = (times(s, point), ristretto.add(times_base(a), times(u, point)))
    e = proof._challenge(root, bytes(8), *announced)
    v = (1 - a * pow(e, -1, ORDER)) % ORDER
    commitment = ristretto.add(times_base(v), times(r, point))
    forged_bit = proof._pack((0, e, s, u + e * r))
    # The words are v, 0 and v: the other bits are honest zeros, and the link is proved honestly for what the bits hold.
    words, blinds, stream = [v, 0, v], [r, *range(1, BITS)], coins()
    elements = SCHEME.encrypt(words, KEY, LABEL)
    commitments = [commitment, *(times(blind, point) for blind in blinds[1:])]
    proofs = [
        forged_bit,
        *(proof._prove_bit(root, at, 0, blinds[at], commitments[at], stream) for at in range(1, BITS)),
    ]
    weights = own._weights(root)
    base, target = own._combine(weights, elements, commitments)
    folded = -sum(weight * sum(each << at for at, each in enumerate(rest)) for weight, rest in own._by_rule(weights, blinds))
    challenge = proof._challenge(root, b"link", target, ristretto.add(times(7, base), times(8, point)))
    link = proof._pack((challenge, 7 + challenge * KEY, 8 + challenge * folded))
    return elements, b"".join([*commitments, *proofs, link])


def errors_that_cancel() -> tuple[list[bytes], bytes]:
    """Forge the link: the weights are known before the ciphertexts, so two wrong words can be chosen to cancel in the sum."""
    own = prover()
    weights = own._weights(own._root((), ()))
    error = -(weights[0] + weights[2]) * pow(weights[1] - weights[2], -1, ORDER) % ORDER
    elements = SCHEME.encrypt([WORDS[0] + 9, WORDS[1] + error * 9, WORDS[2]], KEY, LABEL)
    right = SCHEME.encrypt(WORDS, KEY, LABEL)
    shown = own.prove(WORDS, right, KEY, coins())
    return elements, shown


@pytest.mark.parametrize("forgery", [chosen_after_the_challenge, errors_that_cancel])
def test_forgeries_against_weak_fiat_shamir_fail_here(
    forgery: Callable[[], tuple[list[bytes], bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        weaken(patch)
        forged = forgery()
        assert not refuses(*forged)  # the planted fault
    assert refuses(*forged)


# -- nonces ------------------------------------------------------------------------------------------------------------


def read_bits(first: bytes, second: bytes) -> list[int | None]:
    """Read bits off two proofs made from one set of coins: the simulated branch is the same in both, the real one is not."""
    bits: list[int | None] = []
    for at in range(BITS):
        start = 32 * BITS + 128 * at
        same = [first[start + 32 * k :][:32] == second[start + 32 * k :][:32] for k in (0, 1)]
        bits.append(None if same[0] == same[1] else int(same[0]))
    return bits


def test_a_role_that_runs_twice_on_its_coins_uses_no_nonce_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolled back site with a lying miner proves its vector again on the same coins, under another roster and label."""
    again = hashlib.sha256(b"another roster").digest()
    assert read_bits(made()[1], made(label=again)[1]) == [None] * BITS
    monkeypatch.setattr(Coins, "derive", lambda self, label: coins(1))
    assert read_bits(made()[1], made(label=again)[1]) == [1, 0, 1, 1, 1, 0]  # 5 and 3, lowest bit first


# -- zero knowledge ----------------------------------------------------------------------------------------------------


def test_a_simulator_without_words_and_key_makes_proofs_that_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It programs the hash, as a simulator may. So a proof shows the miner nothing that the ciphertexts do not."""
    real, stream, table = proof._challenge, coins(5), {}
    elements = [ristretto.random_point(stream) for _ in WORDS]
    own, point = prover(), proof._BLIND
    commitments = [ristretto.random_point(stream) for _ in range(BITS)]
    root = own._root(elements, commitments)
    parts = []
    for at, commitment in enumerate(commitments):
        c0, c1, s0, s1 = (stream.below(ORDER) for _ in range(4))
        branches = (commitment, ristretto.subtract(commitment, times_base(1)))
        shown = [ristretto.subtract(times(s, point), times(c, b)) for c, s, b in zip((c0, c1), (s0, s1), branches, strict=True)]
        table[root, at.to_bytes(8, "big"), *shown] = (c0 + c1) % ORDER
        parts.append(proof._pack((c0, c1, s0, s1)))
    base, target = own._combine(own._weights(root), elements, commitments)
    challenge, first, second = (stream.below(ORDER) for _ in range(3))
    announced = ristretto.subtract(ristretto.add(times(first, base), times(second, point)), times(challenge, target))
    table[root, b"link", target, announced] = challenge
    simulated = b"".join([*commitments, *parts, proof._pack((challenge, first, second))])
    assert refuses(elements, simulated)  # with the hash as it is
    monkeypatch.setattr(proof, "_challenge", lambda *asked: table[asked] if asked in table else real(*asked))
    assert not refuses(elements, simulated)


# -- between roles -----------------------------------------------------------------------------------------------------

BOOK = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1")),), max_rows=60)
VECTOR = np.array([10, 20, 4, 6, 15, 5], dtype=np.uint64)


def play(run: str, change: Callable[[str, CiphertextsSent], CiphertextsSent]) -> Outcome:
    layout, protocol, contributors = Layout(BOOK), registry.load("oblivious_sum"), names(3)
    assert layout.word_count == len(VECTOR)
    setting = registry.SumSetup(contributors, layout.word_count, None, bound=max(layout.bounds), options={}, codebook=BOOK)
    runs = local_runs(protocol.roster(setting), coins=coins().derive(run))
    vectors = dict.fromkeys(contributors, VECTOR)
    roles = registry.simulate_roles(protocol, runs, setting, vectors, coins().derive(run + " coins"))
    return run_in_memory({name: _changed(name, role, change) for name, role in roles.items()}, check=False)


def _changed(name: str, role: Role[Any], change: Callable[[str, CiphertextsSent], CiphertextsSent]) -> Role[Any]:
    def wrapped() -> Iterator[Any]:
        value = None
        while True:
            try:
                effect = role.send(value)
            except StopIteration as end:
                return end.value
            if isinstance(effect, Send) and isinstance(effect.message, CiphertextsSent):
                effect = Send(effect.to, change(name, effect.message))
            value = yield effect

    return wrapped()  # type: ignore[return-value]


@pytest.mark.parametrize("replayed", ["another contributor's", "an earlier run's"])
def test_messages_of_others_and_of_earlier_runs_name_their_sender(replayed: str) -> None:
    first, second, _ = names(3)
    seen: dict[str, CiphertextsSent] = {}

    def record(name: str, message: CiphertextsSent) -> CiphertextsSent:
        return seen.setdefault(name, message)

    def copy(name: str, message: CiphertextsSent) -> CiphertextsSent:
        if name == first:
            seen.setdefault(name, message)
        return seen[first] if name == second else message

    honest = play("run 1", record)
    assert np.array_equal(honest.outputs[MINER].words, 3 * VECTOR)
    if replayed == "another contributor's":
        seen.clear()
        error = play("run 2", copy).error
    else:
        error = play("run 2", lambda name, message: seen[name] if name == second else message).error
    assert isinstance(error, PeerProtocolError)
    assert error.party == second
