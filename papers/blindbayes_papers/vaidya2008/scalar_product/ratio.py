"""Protocol 3, for rows: ratios of sums over the collusion-resistant ring, by shared logarithms. Steps as in SPEC.md, 25 to 30.

Every party has a vector of whole numbers; a ratio is (sum_i + plus) / (sum_j + plus). Nominal attributes: (count + alpha) over
(class size + alpha r), with vectors scaled to whole numbers. Numeric attributes: (sum x + n) / n and (sum x^2 + n) / n, that is
mean + 1 and mean square + 1, for values from 0 (the 1 keeps ln 0 away); the variance follows from both, and with the divisor
n - 1 from the ratio n / (n - 1) too.

`opening="printed"` announces every ratio, as the paper does, and so opens the counts behind them (at 16 bits or more a few
ratios of one class fix it). `opening="shares"` takes the exponential in a garbled circuit and leaves the two computing parties
with shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all
from blindbayes.protocols.registry import SumSetup
from blindbayes.wire import U64Array
from blindbayes_papers.primitives.paillier import PrivateKey
from blindbayes_papers.vaidya2008.ring_sum.cycles import ring, seating
from blindbayes_papers.vaidya2008.ring_sum.messages import PartialPassed
from blindbayes_papers.vaidya2008.ring_sum.roles import places, ring_count
from blindbayes_papers.vaidya2008.scalar_product.channel import Channel, ScalarProductSetup, connect
from blindbayes_papers.vaidya2008.scalar_product.exponential import EXP_ERROR, HEIGHT, IN_BITS
from blindbayes_papers.vaidya2008.scalar_product.logarithm import FRACTION, ln_error, ln_evaluator, ln_garbler
from blindbayes_papers.vaidya2008.scalar_product.messages import LogarithmShareSent, RatiosAnnounced
from blindbayes_papers.vaidya2008.scalar_product.roles import quotient

MAX_SPAN = 46_340
"""Numbers from 0 to this have mean squares below 2^(HEIGHT - 1), with a bit to spare for the error of a ratio."""
SHARE_BITS = FRACTION + HEIGHT + 1
"""Shares of ratios are modulo 2^SHARE_BITS, with FRACTION bits after the point."""


@dataclass(frozen=True, slots=True)
class RatioSetup:
    """The public facts of one run."""

    pairs: tuple[tuple[int, int], ...]  # positions of numerator and denominator
    plus: tuple[int, ...]  # what is added to each sum, or taken off
    bits: int  # every sum, with what is added, lies below 2^bits
    opening: Literal["shares", "printed"] = "shares"
    rings: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 62:
            raise ConfigError("sums have 1 to 62 bits")
        if not self.pairs or any(not 0 <= at < len(self.plus) for pair in self.pairs for at in pair):
            raise ConfigError("a ratio names two positions of the vector")

    def setting(self, parties: tuple[str, ...]) -> SumSetup:
        """The ring sum's setting, with a modulus of our size."""
        options = {"modulus_bits": self.bits} if self.rings is None else {"modulus_bits": self.bits, "rings": self.rings}
        return SumSetup(parties, len(self.plus), options=options)


def side_by_side(pieces: Sequence[RatioSetup], opening: Literal["shares", "printed"], rings: int | None = None) -> RatioSetup:
    """One run for all of them: vectors and ratios one behind the other."""
    pairs: list[tuple[int, int]] = []
    plus: list[int] = []
    for piece in pieces:
        pairs += [(over + len(plus), under + len(plus)) for over, under in piece.pairs]
        plus += piece.plus
    return RatioSetup(tuple(pairs), tuple(plus), max(piece.bits for piece in pieces), opening, rings)


def nominal_ratios(counts: int, alpha: Fraction, max_rows: int) -> tuple[RatioSetup, int]:
    """Ratios of one class: positions 0 .. counts - 1 over position counts (the class size); and the factor of all vectors."""
    factor = alpha.denominator
    if alpha <= 0 or factor > 1 << 16:
        raise ConfigError("alpha is a positive fraction with a small denominator")
    plus = (*([alpha.numerator] * counts), alpha.numerator * counts)
    bits = (factor * max_rows + alpha.numerator * counts).bit_length()
    return RatioSetup(tuple((at, counts) for at in range(counts)), plus, bits), factor


def numeric_ratios(max_rows: int, span: int, divisor: Literal["n", "n-1"] = "n") -> RatioSetup:
    """Ratios of one class's numbers in [0, span]: mean + 1, mean square + 1, and with "n-1" also n / (n - 1) (one row: 1).

    A party's vector is n, sum x + n, sum x^2 + n, and with "n-1" n again.
    """
    bits = (max_rows * (span * span + 1)).bit_length()
    if divisor == "n":
        return RatioSetup(((1, 0), (2, 0)), (0, 0, 0), bits)
    return RatioSetup(((1, 0), (2, 0), (0, 3)), (0, 0, 0, -1), bits)


def mean_and_variance(ratios: Sequence[float]) -> tuple[float, float]:
    """From the ratios of `numeric_ratios`, opened."""
    mean, square, *factor = ratios
    variance = (square - 1) - (mean - 1) ** 2
    return mean - 1, variance * factor[0] if factor else variance


def relative_error(degree: int) -> float:
    """Bound on the relative error of a ratio, besides one unit of 2^-FRACTION."""
    return math.expm1(2 * ln_error(degree)) + EXP_ERROR


def party(
    run: Run, ratios: RatioSetup, terms: ScalarProductSetup, vector: U64Array, coins: Coins, key: PrivateKey | None = None
) -> Role[list[int] | None]:
    """Everybody's role. Two parties return shares of the ratios (the others None), or all return the announced ratios."""
    setting = ratios.setting(run.parties)
    starter = run.parties[seating(run.study, run.run_id, len(run.parties))[-1]]
    closer = next(name for name in run.parties if name != starter)
    share = yield from _ring(run, ratios, setting, vector, starter, closer, coins)  # steps 25, 26
    if run.me == starter:
        return (yield from _first(run, ratios, terms, share, closer, coins, key))
    if run.me == closer:
        result = yield from _second(run, ratios, terms, share, starter, coins, key)
        if ratios.opening == "shares":
            return result
    if ratios.opening == "shares":
        return None
    message = yield from receive(starter, RatiosAnnounced)  # step 29
    if len(message.ratios) != len(ratios.pairs) or not message.ratios.all():
        raise PeerProtocolError("the announced ratios have the wrong length, or one of them is 0", party=starter)
    return (yield from open_value("probabilities_and_counts", [int(value) for value in message.ratios]))


def _ring(
    run: Run, ratios: RatioSetup, setting: SumSetup, vector: U64Array, starter: str, closer: str, coins: Coins
) -> Role[list[int]]:
    """The ring sum until its last step: the starter keeps minus its masks, the closer gets what the rings end with."""
    rings = ring_count(setting)
    spots = places(run, setting, rings)
    modulus = np.uint64((1 << ratios.bits) - 1)
    if vector.dtype != np.uint64 or vector.shape != (setting.length,):
        raise ConfigError("a vector has one word per position")
    shares = [coins.words(setting.length) & modulus for _ in range(rings - 1)]
    shares.append((vector - sum(shares, np.zeros(setting.length, np.uint64))) & modulus)
    total = np.zeros(setting.length, np.uint64)
    if run.me == starter:
        for number, (spot, share) in enumerate(zip(spots, shares, strict=True)):
            mask = coins.words(setting.length) & modulus
            total -= mask
            yield Send(spot.after, PartialPassed(number, (mask + share) & modulus))
        total += np.array([value % (1 << ratios.bits) for value in ratios.plus], dtype=np.uint64)
        return [int(value) for value in total & modulus]
    for hop in sorted({spot.hop for spot in spots}):
        due = [number for number, spot in enumerate(spots) if spot.hop == hop]
        came = yield from receive_all([spots[number].before for number in due], PartialPassed)
        for number in due:
            spot = spots[number]
            partial_sum = (_checked(came[spot.before], number, setting, modulus, spot.before) + shares[number]) & modulus
            if spot.after != starter:
                yield Send(spot.after, PartialPassed(number, partial_sum))
            elif run.me == closer:
                total += partial_sum
            else:
                yield Send(closer, PartialPassed(number, partial_sum))
    if run.me == closer:  # rings that end elsewhere
        for number in range(rings):
            last = _last(run, setting, number)
            if last != closer:
                message = yield from receive(last, PartialPassed)
                total += _checked(message, number, setting, modulus, last)
    return [int(value) for value in total & modulus]


def _last(run: Run, setting: SumSetup, number: int) -> str:
    names, seats = setting.contributors, seating(run.study, run.run_id, len(setting.contributors))
    return names[seats[ring(len(names), number)[-1]]]


def _checked(message: PartialPassed, number: int, setting: SumSetup, modulus: np.uint64, sender: str) -> U64Array:
    if message.ring != number or len(message.partial_masked) != setting.length or (message.partial_masked & ~modulus).any():
        raise PeerProtocolError("the partial sum has another ring, length or modulus", party=sender)
    return message.partial_masked


def _first(
    run: Run, ratios: RatioSetup, terms: ScalarProductSetup, share: list[int], other: str, coins: Coins, key: PrivateKey | None
) -> Role[list[int]]:
    channel = yield from connect(run, other, terms, coins, key)
    logs = yield from ln_garbler(channel, share, ratios.bits)  # step 27
    differences = [logs[over] - logs[under] for over, under in ratios.pairs]
    if ratios.opening == "shares":
        masks = [coins.bits(SHARE_BITS) for _ in differences]
        circuit = partial(quotient, SHARE_BITS)
        yield from channel.garble(circuit, [differences, masks], [IN_BITS, SHARE_BITS], IN_BITS)  # step 30
        return [-mask % (1 << SHARE_BITS) for mask in masks]
    sent = yield from _receive_logs(channel, len(differences))  # step 28
    results = []
    for own, theirs in zip(differences, sent, strict=True):
        whole = (own + theirs) % (1 << 64)
        whole -= (whole >> 63) << 64
        if whole / 2**FRACTION >= HEIGHT * math.log(2):
            raise PeerProtocolError("the shares of logarithms add up to no ratio of sums", party=other)
        results.append(max(1, round(math.exp(whole / 2**FRACTION) * 2**FRACTION)))
    for name in run.others:
        yield Send(name, RatiosAnnounced(np.array(results, dtype=np.uint64)))  # step 29
    return (yield from open_value("probabilities_and_counts", results))


def _second(
    run: Run, ratios: RatioSetup, terms: ScalarProductSetup, share: list[int], other: str, coins: Coins, key: PrivateKey | None
) -> Role[list[int]]:
    channel = yield from connect(run, other, terms, coins, key)
    logs = yield from ln_evaluator(channel, share, ratios.bits)  # step 27
    differences = [logs[over] - logs[under] for over, under in ratios.pairs]
    if ratios.opening == "shares":
        circuit = partial(quotient, SHARE_BITS)
        return (yield from channel.evaluate(circuit, differences, IN_BITS, [IN_BITS, SHARE_BITS]))  # step 30
    words = np.array([value % (1 << 64) for value in differences], dtype=np.uint64)
    yield Send(other, LogarithmShareSent(channel.next_mark(LogarithmShareSent), words))  # step 28
    return []


def _receive_logs(channel: Channel, count: int) -> Role[list[int]]:
    message = yield from channel.due(LogarithmShareSent)
    if len(message.shares) != count:
        raise PeerProtocolError("the shares of logarithms have the wrong length", party=channel.other)
    return [int(value) for value in message.shares]
