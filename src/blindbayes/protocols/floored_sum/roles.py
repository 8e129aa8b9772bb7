"""Roles of the floored sum. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import KEY_BYTES, expand, tags_of
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Done, Open, Role, Run, Send, fail, open_value, receive, send_all, step
from blindbayes.protocols.floored_sum.messages import (
    BitsFound,
    MasksGiven,
    TablePublished,
    TagKeyShared,
    TagsSent,
    ValuesOpened,
)
from blindbayes.protocols.registry import SumSetup, Total
from blindbayes.protocols.secure_sum.keys import SERVER
from blindbayes.statistics import Layout
from blindbayes.statistics.floor import Answer, Ask, FlooredTable, Reveal, Rule, open_table, require_floor, values_of
from blindbayes.wire import U64Array

LABEL = "floored_sum"
MAX_CONTRIBUTORS = 64
"""With more, sites speak with the server alone, and the tags of the masker must not pass through its hands."""


@dataclass(frozen=True)
class FlooredSetup:
    """The public facts: the masked sum underneath, the floor, and the two contributors that help the server."""

    sum: SumSetup
    layout: Layout
    floor: int
    masker: str
    referee: str

    def __post_init__(self) -> None:
        require_floor(self.layout, self.floor)
        names = self.sum.contributors
        if len({self.masker, self.referee} & set(names)) < 2:
            raise ConfigError("masker and referee are two of the contributors")
        if len(names) > MAX_CONTRIBUTORS:
            raise ConfigError(f"an exact sum with min_cell has at most {MAX_CONTRIBUTORS} sites; take more with an epsilon")
        if self.sum.quorum_size < len(names):
            raise ConfigError("an exact sum with min_cell needs every site; leave quorum unset")
        if self.sum.options.get("publish") is False:
            raise ConfigError("with min_cell every site learns the table; leave the option publish out")

    @classmethod
    def make(cls, setting: SumSetup, layout: Layout, floor: int, host: str) -> FlooredSetup:
        """Choose the first two contributors that are not the server's host: the three must not collude."""
        others = [name for name in setting.contributors if name != host]
        if len(others) < 2:
            raise ConfigError("min_cell needs three sites that do not collude: the server's host and two other contributors")
        return cls(setting, layout, floor, others[0], others[1])

    @property
    def masked(self) -> SumSetup:
        """The setting of the sum underneath: the server learns masked words, which are not published."""
        options = {**self.sum.options, "publish": False}
        return replace(self.sum, options=options, bound=2**63 - 1, ranges=(), quorum=len(self.sum.contributors))

    @property
    def max_link_bytes(self) -> int:
        """The most that one role sends another beyond the masked sum."""
        classes = len(self.layout.codebook.classes)
        sizes = [classes, *([group.columns + 1 for group in self.layout.groups if group.kind in ("count", "n")] * classes)]
        tags = sum(size * self.floor * (size + 1) for size in sizes)
        return 8 * (tags + 4 * self.layout.word_count) + (1 << 16)


@dataclass(frozen=True, slots=True)
class FlooredTotal:
    """The output of every role: the table as far as the floor lets it be opened."""

    table: FlooredTable = field(repr=False)
    included: tuple[str, ...]


def role(run: Run, setup: FlooredSetup, vector: U64Array | None, coins: Coins) -> Role[FlooredTotal]:
    """Run any party's role."""
    protocol, inner = registry.load("masked_sum"), coins.derive("sum")
    mask = expand(coins.derive("mask").bytes(KEY_BYTES), setup.sum.length)
    if run.me == setup.masker and vector is not None:
        vector = vector + mask  # step 1
    total = yield from hidden(protocol.role(run, setup.masked, vector, inner))
    rule = open_table(setup.layout, setup.floor)
    if run.me == SERVER:
        if total is None:
            raise PeerProtocolError("nobody learned the masked total")
        table = yield from _server(setup, total.words, rule)
    elif run.me == setup.masker:
        table = yield from _masker(setup, mask, rule, coins.derive("tags"))
    elif run.me == setup.referee:
        table = yield from _referee(setup, rule)
    else:
        published = yield from receive(SERVER, TablePublished)
        table = _replay(setup, rule, published)
    yield from open_value(LABEL, table)
    return FlooredTotal(table, setup.sum.contributors)


def hidden(inner: Role[Total | None]) -> Role[Total | None]:
    """Run a masked sum whose total is no sum of vectors yet, and so is not opened: under a mask, or one share of two."""
    effect = step(inner)
    while not isinstance(effect, Done):
        if isinstance(effect, Open):
            effect = step(inner, effect.value)
            continue
        try:
            answer = yield effect
        except BlindbayesError as error:
            effect = fail(inner, error)
        else:
            effect = step(inner, answer)
    total: Total | None = effect.value
    return total


Question: TypeAlias = Callable[[Ask], Role[Answer]]
Opening: TypeAlias = Callable[[Reveal], Role[Answer]]


def _drive(setup: FlooredSetup, rule: Rule, ask: Question, reveal: Opening) -> Role[FlooredTable]:
    """Answer the questions of the rule."""
    answer: Answer | None = None
    while True:
        try:
            question = rule.send(answer)  # type: ignore[arg-type]  # None starts the generator
        except StopIteration as stop:
            table: FlooredTable = stop.value
            return table
        except DataError as cause:
            raise PeerProtocolError(str(cause), suspects=(SERVER, *setup.sum.contributors)) from cause
        answer = yield from (ask(question) if isinstance(question, Ask) else reveal(question))


def _server(setup: FlooredSetup, words: U64Array, rule: Rule) -> Role[FlooredTable]:
    shared = yield from receive(setup.masker, TagKeyShared)  # step 2
    if len(shared.key) != KEY_BYTES:
        raise PeerProtocolError("a key of tags has the wrong length", party=setup.masker)
    bits: list[npt.NDArray[np.bool_]] = []
    opened: list[U64Array] = []
    asked = 0

    def ask(question: Ask) -> Role[Answer]:
        nonlocal asked
        values = values_of(question.sums, words)
        numbers = np.arange(asked, asked + len(values), dtype=np.uint64)
        asked += len(values)
        yield Send(setup.referee, TagsSent(tags_of(shared.key, numbers, values)))  # step 3
        bits.append((yield from _receive_bits(setup, len(values))))
        return bits[-1]

    def reveal(question: Reveal) -> Role[Answer]:
        given = yield from receive(setup.masker, MasksGiven)  # step 5
        if len(given.masks) != len(question.sums):
            raise PeerProtocolError("masks have the wrong length", party=setup.masker)
        opened.append(values_of(question.sums, words) - given.masks)
        yield from send_all((setup.masker, setup.referee), ValuesOpened(opened[-1]))
        return opened[-1]

    table = yield from _drive(setup, rule, ask, reveal)
    others = [name for name in setup.sum.contributors if name not in (setup.masker, setup.referee)]
    flags, values = np.concatenate([np.zeros(0, bool), *bits]), np.concatenate([np.zeros(0, np.uint64), *opened])
    yield from send_all(others, TablePublished(_pack(flags), values))  # step 6
    return table


def _masker(setup: FlooredSetup, mask: U64Array, rule: Rule, coins: Coins) -> Role[FlooredTable]:
    key = coins.bytes(KEY_BYTES)
    yield Send(SERVER, TagKeyShared(key))  # step 2
    asked = 0

    def ask(question: Ask) -> Role[Answer]:
        nonlocal asked
        low, sizes = np.array(question.low, np.uint64), _sizes(question)
        number = np.repeat(np.arange(asked, asked + len(low), dtype=np.uint64), sizes)
        asked += len(low)
        steps = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        wanted = np.repeat(values_of(question.sums, mask) + low, sizes) + steps.astype(np.uint64)
        tags = tags_of(key, number, wanted)
        yield Send(setup.referee, TagsSent(tags[np.lexsort((tags, number))]))  # sorted: their order says nothing
        return (yield from _receive_bits(setup, len(low)))

    def reveal(question: Reveal) -> Role[Answer]:
        yield Send(SERVER, MasksGiven(values_of(question.sums, mask)))
        return (yield from _receive_values(question))

    return (yield from _drive(setup, rule, ask, reveal))


def _referee(setup: FlooredSetup, rule: Rule) -> Role[FlooredTable]:
    def ask(question: Ask) -> Role[Answer]:
        own = yield from receive(SERVER, TagsSent)
        theirs = yield from receive(setup.masker, TagsSent)
        sizes = _sizes(question)
        if len(own.tags) != len(sizes):
            raise PeerProtocolError("tags have the wrong length", party=SERVER)
        if len(theirs.tags) != sizes.sum():
            raise PeerProtocolError("tags have the wrong length", party=setup.masker)
        bits = np.logical_or.reduceat(theirs.tags == np.repeat(own.tags, sizes), np.cumsum(sizes) - sizes)
        yield from send_all((SERVER, setup.masker), BitsFound(_pack(bits)))  # step 4
        return bits

    def reveal(question: Reveal) -> Role[Answer]:
        return (yield from _receive_values(question))

    return (yield from _drive(setup, rule, ask, reveal))


def _replay(setup: FlooredSetup, rule: Rule, published: TablePublished) -> FlooredTable:
    """Step 6 of the other contributors: follow the rule by the published answers."""
    bits = np.unpackbits(np.frombuffer(published.bits, np.uint8), bitorder="little").astype(bool)
    values, left = published.values, len(published.bits) * 8
    answer: Answer | None = None
    while True:
        try:
            question = rule.send(answer)  # type: ignore[arg-type]  # None starts the generator
        except StopIteration as stop:
            if len(values) or left >= 8:
                raise PeerProtocolError("the server published more answers than the rule asks for", party=SERVER) from None
            table: FlooredTable = stop.value
            return table
        except DataError as cause:
            raise PeerProtocolError(str(cause), suspects=(SERVER, *setup.sum.contributors)) from cause
        size = len(question.sums)
        if size > (left if isinstance(question, Ask) else len(values)):
            raise PeerProtocolError("the server published fewer answers than the rule asks for", party=SERVER)
        if isinstance(question, Ask):
            answer, bits, left = bits[:size], bits[size:], left - size
        else:
            answer, values = values[:size], values[size:]


def _sizes(question: Ask) -> npt.NDArray[np.int64]:
    return np.array(question.high, np.int64) - np.array(question.low, np.int64) + 1


def _pack(bits: npt.NDArray[np.bool_]) -> bytes:
    return np.packbits(bits, bitorder="little").tobytes()


def _receive_bits(setup: FlooredSetup, count: int) -> Role[npt.NDArray[np.bool_]]:
    sent = yield from receive(setup.referee, BitsFound)
    if len(sent.bits) != -(-count // 8):
        raise PeerProtocolError("answers have the wrong length", party=setup.referee)
    return np.unpackbits(np.frombuffer(sent.bits, np.uint8), count=count, bitorder="little").astype(bool)


def _receive_values(question: Reveal) -> Role[U64Array]:
    opened = yield from receive(SERVER, ValuesOpened)
    if len(opened.values) != len(question.sums):
        raise PeerProtocolError("opened values have the wrong length", party=SERVER)
    return opened.values
