"""Zero-knowledge proof that an encrypted vector is one that a table of the codebook can have. SPEC.md, Proofs.

A table's words obey linear rules, 0 <= constant + sum of coefficient * word < 2^bits, or = 0. For each rule with bits the
contributor commits to the bits of the left side, B = b G + r P with P a hashed point, and proves each B to hold 0 or 1 (Cramer,
Damgard and Schoenmakers 1994). One further proof (Okamoto 1992), over a combination of all rules by challenges, links the bits
to the ciphertexts c_j = x_j G + k H_j without opening k or any x. Challenges are hashes of all that was sent (Fiat-Shamir).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ristretto import ORDER
from blindbayes.errors import DataError, PeerProtocolError
from blindbayes.statistics.layout import CellGroup, Layout
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum, times, times_base

T = TypeVar("T")
BIT_BYTES = 160  # a commitment and four scalars
LINK_BYTES = 96
MAX_TANGENTS = 5  # per class of a Gaussian feature: below its squares no table can be, see `_square_rules`
_BLIND = ristretto.hash_to_point(b"blindbayes oblivious_sum proof v1")  # P


@dataclass(frozen=True, slots=True)
class Rule:
    """0 <= constant + sum of coefficient * word < 2^bits; with bits = 0 the sum is 0."""

    where: str
    terms: tuple[tuple[int, int], ...]  # (position, coefficient)
    bits: int
    constant: int = 0


@lru_cache(maxsize=4)
def table_rules(book: Codebook) -> tuple[Rule, ...]:
    """Return the linear rules that the words of every table of at most `max_rows` rows obey."""
    return tuple(_rules(Layout(book)))


def _rules(layout: Layout) -> Iterator[Rule]:
    book, classes = layout.codebook, range(len(layout.codebook.classes))
    yield Rule("class counts", tuple((label, -1) for label in classes), book.max_rows.bit_length(), book.max_rows)
    for group in layout.groups:
        counted = None if group.feature is None else layout.find("n", group.feature.name)
        for label in classes:
            cells = range(group.start + label * group.columns, group.start + (label + 1) * group.columns)
            yield from _group_rules(layout, group, cells, label, label if counted is None else counted.start + label)


def _group_rules(layout: Layout, group: CellGroup, cells: range, label: int, count: int) -> Iterator[Rule]:
    """Yield the rules of one class; the word at `count` is the number of its rows that have the feature."""
    feature, rows, first = group.feature, layout.codebook.max_rows, cells[0]
    where, size = "class counts" if feature is None else f"feature {feature.name!r}", group.bound.bit_length()
    if isinstance(feature, Numeric) and group.kind == "sum":
        yield from _sum_rules(where, feature, rows, (count, first))
        return
    if isinstance(feature, Numeric) and group.kind == "square":
        total = layout.require("sum", feature.name).start + label
        yield from _square_rules(where, feature, rows, (count, total, first))
        return
    yield from (Rule(where, ((cell, 1),), size) for cell in cells)
    if feature is None:
        return
    if group.kind == "n":
        yield Rule(where, ((label, 1), (first, -1)), rows.bit_length())
    elif isinstance(feature, Text):
        if feature.once:
            yield from (Rule(where, ((count, 1), (cell, -1)), size) for cell in cells)
        if feature.reach < len(cells) or not feature.once:  # the words of a document together
            yield Rule(where, ((count, feature.reach), *((cell, -1) for cell in cells)), (rows * feature.reach).bit_length())
    else:  # every row has one value, or at most one
        yield Rule(where, ((count, 1), *((cell, -1) for cell in cells)), rows.bit_length() if feature.optional else 0)


def _sum_rules(where: str, feature: Numeric, rows: int, words: tuple[int, int]) -> Iterator[Rule]:
    """A sum of m codes lies between m times the least and m times the largest code."""
    (count, total), (low, high) = words, (feature.code_low, feature.code_high)
    size = (rows * (high - low)).bit_length()
    yield Rule(where, ((total, 1), (count, -low)), size)
    yield Rule(where, ((total, -1), (count, high)), size)


def _square_rules(where: str, feature: Numeric, rows: int, words: tuple[int, int, int]) -> Iterator[Rule]:
    """Every code x has (x - low)(high - x) >= 0, and (x - k)(x - k - 1) >= 0 for each whole k: m of them add up to no less."""
    (count, total, square), (low, high) = words, (feature.code_low, feature.code_high)
    half, span = (high - low) // 2, high - low
    size = (rows * half * (span - half)).bit_length()
    yield Rule(where, ((square, -1), (total, low + high), (count, -low * high)), size)
    for k in _tangents(low, high):
        size = (rows * max((low - k) * (low - k - 1), (high - k) * (high - k - 1))).bit_length()
        yield Rule(where, ((square, 1), (total, -2 * k - 1), (count, k * (k + 1))), size)


def _tangents(low: int, high: int) -> list[int]:
    """Return up to `MAX_TANGENTS` codes, the ends among them: all of a short range, which makes the rules exact."""
    last, steps = max(high - 1, low), MAX_TANGENTS - 1
    return sorted({low + (last - low) * at // steps for at in range(MAX_TANGENTS)})


def bit_count(rules: Sequence[Rule]) -> int:
    """Return the number of bits that are committed to."""
    return sum(rule.bits for rule in rules)


def require_rules(rules: Sequence[Rule], words: Sequence[int], party: str) -> list[int]:
    """Return the left side of every rule. Raise `DataError` if one does not hold."""
    sides = []
    for rule in rules:
        side = rule.constant + sum(coefficient * words[at] for at, coefficient in rule.terms)
        if not 0 <= side < max(1, 1 << rule.bits):
            raise DataError(f"{party}: {rule.where}: no table of the codebook has this vector; it was not sent")
        sides.append(side)
    return sides


class TableProof:
    """The proof of one contributor's vector under one label."""

    def __init__(self, scheme: RistrettoSum, rules: Sequence[Rule], label: bytes, party: str) -> None:
        self._scheme, self._rules, self._label, self._party = scheme, rules, label, party

    def prove(self, words: Sequence[int], elements: Sequence[bytes], key: int, coins: Coins) -> bytes:
        """Return the proof for c_j = words_j G + key H_j."""
        sides = require_rules(self._rules, words, self._party)
        # Coins of their own for each statement: a role that a rolled back journal starts twice does not use a nonce twice.
        coins = coins.derive(f"proof of {self._root(elements, ()).hex()}")
        bits = [side >> at & 1 for rule, side in zip(self._rules, sides, strict=True) for at in range(rule.bits)]
        blinds = [coins.below(ORDER) for _ in bits]
        commitments = [ristretto.add(times(blind, _BLIND), times_base(bit)) for bit, blind in zip(bits, blinds, strict=True)]
        root = self._root(elements, commitments)
        shown = b"".join(
            _prove_bit(root, at, bit, blind, commitment, coins)
            for at, (bit, blind, commitment) in enumerate(zip(bits, blinds, commitments, strict=True))
        )
        weights = self._weights(root)
        base, target = self._combine(weights, elements, commitments)
        folded = -sum(weight * sum(r << at for at, r in enumerate(rest)) for weight, rest in self._by_rule(weights, blinds))
        first, second = coins.below(ORDER), coins.below(ORDER)
        challenge = _challenge(root, b"link", target, ristretto.add(times(first, base), times(second, _BLIND)))
        scalars = (challenge, first + challenge * key, second + challenge * folded)
        return b"".join(commitments) + shown + _pack(scalars)

    def require(self, elements: Sequence[bytes], proof: bytes) -> None:
        """Raise `PeerProtocolError` with the contributor's name unless the proof holds."""
        count = bit_count(self._rules)
        if len(proof) != BIT_BYTES * count + LINK_BYTES:
            raise self._refusal()
        commitments = [ristretto.require_point(proof[at : at + 32], self._party) for at in range(0, 32 * count, 32)]
        root = self._root(elements, commitments)
        for at, commitment in enumerate(commitments):
            start = 32 * count + 128 * at
            self._require_bit(root, at, commitment, self._scalars(proof[start : start + 128]))
        challenge, first, second = self._scalars(proof[-LINK_BYTES:])
        base, target = self._combine(self._weights(root), elements, commitments)
        announced = ristretto.add(times(first, base), times(second, _BLIND))
        announced = ristretto.subtract(announced, times(challenge, target))
        if _challenge(root, b"link", target, announced) != challenge:
            raise self._refusal()

    def _require_bit(self, root: bytes, at: int, commitment: bytes, scalars: Sequence[int]) -> None:
        challenges, responses = scalars[:2], scalars[2:]
        announced = (
            ristretto.subtract(times(response, _BLIND), times(challenge, point))
            for challenge, response, point in zip(challenges, responses, _branches(commitment), strict=True)
        )
        if _challenge(root, at.to_bytes(8, "big"), *announced) != sum(challenges) % ORDER:
            raise self._refusal()

    def _refusal(self) -> PeerProtocolError:
        return PeerProtocolError("it did not prove its vector to be that of a table of the codebook", party=self._party)

    def _scalars(self, data: bytes) -> list[int]:
        """Read scalars in their only encoding: without that check one proof gives others by adding the order."""
        scalars = [int.from_bytes(data[at : at + 32], "little") for at in range(0, len(data), 32)]
        if any(scalar >= ORDER for scalar in scalars):
            raise self._refusal()
        return scalars

    def _root(self, elements: Sequence[bytes], commitments: Sequence[bytes]) -> bytes:
        """The hash of all that the proof is about; every part with its length, so that no two statements have one encoding."""
        rules = hashlib.sha512(repr([(rule.terms, rule.bits, rule.constant) for rule in self._rules]).encode()).digest()
        points = (b"".join(elements), b"".join(commitments))
        digest = hashlib.sha512(b"blindbayes oblivious_sum proof v2")
        for part in (self._scheme.digest, _BLIND, self._label, self._party.encode(), rules, *points):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def _weights(self, root: bytes) -> list[int]:
        return [_challenge(root, b"rule", at.to_bytes(8, "big")) for at in range(len(self._rules))]

    def _by_rule(self, weights: Sequence[int], each_bit: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
        start = 0
        for rule, weight in zip(self._rules, weights, strict=True):
            yield weight, each_bit[start : start + rule.bits]
            start += rule.bits

    def _combine(self, weights: Sequence[int], elements: Sequence[bytes], commitments: Sequence[bytes]) -> tuple[bytes, bytes]:
        """Return Q = sum of w_j H_j and the point that is k Q + s P: all rules, each times its weight, less their bits."""
        word_weights, constant = [0] * len(elements), 0
        for rule, weight in zip(self._rules, weights, strict=True):
            constant += weight * rule.constant
            for at, coefficient in rule.terms:
                word_weights[at] += weight * coefficient
        base, target = ristretto.IDENTITY, times_base(constant)
        for at, (weight, element) in enumerate(zip(word_weights, elements, strict=True)):
            base = ristretto.add(base, times(weight, self._scheme.base(self._label, at)))
            target = ristretto.add(target, times(weight, element))
        for weight, points in self._by_rule(weights, commitments):
            whole = ristretto.IDENTITY
            for point in reversed(points):
                whole = ristretto.add(ristretto.add(whole, whole), point)
            target = ristretto.subtract(target, times(weight, whole))
        return base, target


def _branches(commitment: bytes) -> tuple[bytes, bytes]:
    """The points whose logarithm to the base P is known if the bit is 0, or 1."""
    return commitment, ristretto.subtract(commitment, times_base(1))


def _prove_bit(root: bytes, at: int, bit: int, blind: int, commitment: bytes, coins: Coins) -> bytes:
    """Return the challenges and responses of both branches; the one that does not hold is simulated."""
    challenge, response, nonce = (coins.below(ORDER) for _ in range(3))
    point = _branches(commitment)[1 - bit]
    simulated = ristretto.subtract(times(response, _BLIND), times(challenge, point))
    announced = (times(nonce, _BLIND), simulated) if bit == 0 else (simulated, times(nonce, _BLIND))
    own = _challenge(root, at.to_bytes(8, "big"), *announced) - challenge
    mine = (own, nonce + own * blind)
    pairs = (mine, (challenge, response)) if bit == 0 else ((challenge, response), mine)
    return _pack((pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]))


def _challenge(root: bytes, *parts: bytes) -> int:
    return int.from_bytes(hashlib.sha512(root + b"".join(parts)).digest(), "little") % ORDER


def _pack(scalars: Sequence[int]) -> bytes:
    return b"".join((scalar % ORDER).to_bytes(32, "little") for scalar in scalars)
