"""What a batch costs by either comparison, and which of them is faster on the link that a study declares.

Bytes and rounds are exact, from the public facts of a batch. CPU is a model of a common machine with kernels, the same at all
sites: what is chosen is agreed on, and must not hang on who computes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from blindbayes.errors import ConfigError
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.ot import bits_for
from blindbayes.primitives.softspoken import correction_words
from blindbayes.protocol.digits import masked_words
from blindbayes.protocol.shared_argmax.comparing import and_gates
from blindbayes.protocol.shared_argmax.levels import levels
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup, look_up_shape

COMPARISONS = ("auto", "garbled", "transfers")
_GATE, _ENTRY, _TRANSFER, _CALL = 50, 14, 45, 700_000  # nanoseconds of both parties: per AND, entry, transfer, and message
_HIGHEST_MS, _HIGHEST_MBIT = 60_000.0, 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one batch, transfers set up and sessions agreed on."""

    comparison: str
    bytes: int  # of all messages' contents
    rounds: int  # the longest chain of messages
    cpu: float  # seconds of both parties

    def seconds(self, latency_ms: float, bandwidth_mbit: float) -> float:
        """On a link: half of its round trip for each round, and its bytes."""
        return self.rounds * latency_ms / 2000 + 8 * self.bytes / (1e6 * bandwidth_mbit) + self.cpu


@dataclass(frozen=True, slots=True)
class DeclaredLink:
    """What a study says of the link between its class holder and its first attribute holder, and how the two compare."""

    comparison: str = "auto"
    latency_ms: float | None = None  # of a round trip
    bandwidth_mbit: float | None = None  # megabits per second, each way

    def __post_init__(self) -> None:
        if self.comparison not in COMPARISONS:
            raise ConfigError(f"the option comparison is one of {', '.join(COMPARISONS)}")
        if (self.latency_ms is None) != (self.bandwidth_mbit is None):
            raise ConfigError("a link is declared by both options, latency_ms and bandwidth_mbit")
        if self.latency_ms is None or self.bandwidth_mbit is None:
            return
        if not (0 <= self.latency_ms <= _HIGHEST_MS and 0 < self.bandwidth_mbit <= _HIGHEST_MBIT):
            raise ConfigError(
                f"latency_ms is a round trip, 0 to {_HIGHEST_MS:g}; bandwidth_mbit, megabits per second, is above 0"
            )

    def settled(self, query: SharedArgmaxSetup, whole: int | None = None) -> SharedArgmaxSetup:
        """The query, with the comparison that this link asks for; `whole`: instances of all batches, by which it is chosen."""
        if query.compare_all or query.audit_rate:
            return query
        if self.comparison != "auto":
            return replace(query, by_transfers=self.comparison == "transfers")
        if self.latency_ms is None or self.bandwidth_mbit is None:
            return query
        asked = replace(query, count=min(whole or query.count, 1 << 14))
        garbled, narrow = (cost.seconds(self.latency_ms, self.bandwidth_mbit) for cost in costs(asked))
        return replace(query, by_transfers=narrow < garbled)


NO_LINK = DeclaredLink()


def costs(query: SharedArgmaxSetup) -> tuple[Cost, Cost]:
    """Of a batch, garbled and by transfers."""
    garbled, narrow = replace(query, by_transfers=False), replace(query, by_transfers=True)
    return _garbled(garbled), _narrow(narrow)


def _look_ups(query: SharedArgmaxSetup) -> tuple[int, float]:
    """Words and nanoseconds of all holders' look-ups, of shares that are handed on, and of classes that are told."""
    plan, cpu, further = query.plan, 0.0, query.holders[1:]
    handed = sum(1 + query.blinds(name) for name in further) * (plan.classes - 1) * plan.limbs
    words = query.count * (handed + len(set(query.learners) & set(further)))
    for holder in query.holders:
        shape = look_up_shape(query, holder)
        if not shape:
            continue
        chosen = sum(selectors * bits_for(entries) for entries, selectors in shape)
        sent = sum(selectors * (entries - 1) for entries, selectors in shape) * (plan.classes - 1)
        hashed = sum(selectors * (entries + 1) for entries, selectors in shape) * math.ceil((plan.classes - 1) * plan.limbs / 2)
        for part in query.chunks():
            count = part.stop - part.start
            words += correction_words(count * chosen)
            words += lm.narrow_words(count * sent, plan.bits) if query.by_transfers else count * sent * plan.limbs
            cpu += count * (chosen * _TRANSFER + hashed * _ENTRY) + 2 * _CALL
    return words, cpu


def _around(query: SharedArgmaxSetup) -> int:
    """Rounds of the look-ups, and of handing shares on."""
    return 2 * any(look_up_shape(query, holder) for holder in query.holders) + (len(query.holders) > 1)


def _garbled(query: SharedArgmaxSetup) -> Cost:
    plan, (words, cpu) = query.plan, _look_ups(query)
    lanes = query.compared
    gates, outputs = and_gates(query), (plan.classes - 1).bit_length()
    both = query.class_holder in query.learners
    for part in query.chunks():
        count = part.stop - part.start
        words += correction_words(count * lanes * plan.bits) + 4 * gates * count
        words += outputs * count * (2 * (query.holders[0] in query.learners) + both)
        cpu += count * (gates * _GATE + lanes * plan.bits * _TRANSFER) + 3 * _CALL
    told = bool(set(query.learners) & set(query.holders[1:]))
    return Cost("garbled", 8 * words, _around(query) + 2 + both + told, cpu / 1e9)


def _narrow(query: SharedArgmaxSetup) -> Cost:
    plan, (words, cpu) = query.plan, _look_ups(query)
    steps, outputs = levels(plan.bits, plan.classes), (plan.classes - 1).bit_length()
    for part in query.chunks():
        count = part.stop - part.start
        for step in steps:
            rows = count * step.rows
            words += correction_words(rows * step.bits) + masked_words(rows, step.entries, step.width)
            cpu += rows * (step.bits * _TRANSFER + (step.entries + 1) * _ENTRY) + _CALL
    pair = (query.class_holder, query.holders[0])
    learn = [name in query.learners for name in pair]
    words += sum(learn) * -(-outputs * query.count // 64)
    # The last level's sender is the first holder if their number is even; its share goes with its answer.
    last = learn[1 - len(steps) % 2]
    told = bool(set(query.learners) & set(query.holders[1:])) and len(steps) % 2
    return Cost("transfers", 8 * words, _around(query) + 1 + len(steps) + last + told, cpu / 1e9)
