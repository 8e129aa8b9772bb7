"""The largest of the parties' numbers, and nothing else: the paper's Delta = max N_k, for noise that protects a whole party.

Digit by digit from the top. A contributor whose number still agrees with the digits opened so far is a candidate; a candidate
whose next digit is 1 encrypts a uniform non-zero number, everybody else zero. The sum is zero if nobody has the digit 1 (or
with chance 2^-252), else uniform: it shows whether, never how many or who. So the opened digits are exactly those of the
maximum.

No dealer and no range: the scheme is the one in ristretto255, and the miner only tests for zero, so no logarithm is taken. All
must answer. A contributor can lie upwards (more noise for all) or downwards (its own rows are then protected less). A miner
that shows 0 for a 1 is named by the party that has it; one that shows different digits to different parties reads nothing.
Everybody learns the maximum; it is exact, so it is no private release of the sizes themselves.
"""

from __future__ import annotations

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all, send_all
from blindbayes.protocols.registry import SumSetup
from blindbayes_papers.huai2015.oblivious_sum.contributor import enrol
from blindbayes_papers.huai2015.oblivious_sum.messages import BitSent, BitShown
from blindbayes_papers.huai2015.oblivious_sum.miner import enrol_all
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousSumSetup
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum

LABEL = "maximum"


def _terms(run: Run, contributors: tuple[str, ...], bits: int) -> ObliviousSumSetup:
    if not 1 <= bits <= 63:
        raise ConfigError("a maximum has 1 to 63 binary digits")
    return ObliviousSumSetup(run, SumSetup(contributors, 1, bound=1, options={"scheme": "ristretto"}), LABEL)


def label_of(terms: ObliviousSumSetup, roster: bytes, bit: int, maximum: int) -> bytes:
    """The label of a digit. It holds the digits shown before: parties that were shown others have masks that do not cancel."""
    return terms.label(roster, f"digit {bit} after {maximum}")


def contributor(run: Run, contributors: tuple[str, ...], number: int, bits: int, coins: Coins) -> Role[int]:
    """Takes part with a number of at most `bits` binary digits; returns the maximum."""
    terms = _terms(run, contributors, bits)
    if not 0 <= number < 1 << bits:
        raise LocalProtocolError("the number has more binary digits than agreed", party=run.me)
    scheme = RistrettoSum(1)
    session = yield from enrol(terms, scheme, coins)  # 1
    maximum = 0
    for bit in reversed(range(bits)):
        is_candidate = number >> (bit + 1) == maximum >> (bit + 1)
        plaintext = scheme.random_plaintext(coins) if is_candidate and number >> bit & 1 else 0
        label = label_of(terms, session.digest, bit, maximum)
        yield Send(MINER, BitSent(scheme.encrypt([plaintext], session.zero_key, label)[0]))  # 2
        shown = yield from receive(MINER, BitShown)  # 3
        if plaintext and not shown.bit:  # a sum with our uniform number in it is zero with chance 2^-252
            raise PeerProtocolError("it showed 0 for a digit that this party has as 1", party=MINER)
        maximum |= shown.bit << bit
    yield from open_value(LABEL, maximum)
    return maximum


def miner(run: Run, contributors: tuple[str, ...], bits: int, coins: Coins) -> Role[int]:
    """Test each digit's sum for zero and send the answer to all."""
    terms = _terms(run, contributors, bits)
    scheme = RistrettoSum(1)
    names, key, roster = yield from enrol_all(terms, scheme, coins)  # 1
    maximum = 0
    for bit in reversed(range(bits)):
        sent = yield from receive_all(names, BitSent)  # 2
        for name, message in sent.items():
            scheme.require_elements([message.element], 1, party=name)
        mask = scheme.masks(key, label_of(terms, roster, bit, maximum), 1)
        is_one = not scheme.is_zero(scheme.multiply([*([message.element] for message in sent.values()), mask]))[0]
        maximum |= is_one << bit
        yield from send_all(names, BitShown(is_one))  # 3
    yield from open_value(LABEL, maximum)
    return maximum
