"""Roles of shared_model. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.primitives.circuits import Number
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Plain, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.softspoken import Keeper, Planter
from blindbayes.primitives.tweaks import Blocks, TweakedHash
from blindbayes.protocol.class_sums.layout import RowLayout
from blindbayes.protocol.core import Role, Run, Send, receive
from blindbayes.protocol.garbled import receive_step, send_step
from blindbayes.protocol.shared_model.circuit import build
from blindbayes.protocol.shared_model.messages import ModelGarbled, SumsChosen
from blindbayes.protocol.shared_model.noise import Key, Noise, noise_bits, noise_fields
from blindbayes.protocol.shared_model.plan import ScorePlan
from blindbayes.protocol.shared_model.tables import add_denominators, from_outputs, output_lanes
from blindbayes.protocol.transfer import agree
from blindbayes.wire import Words

_WORD_BITS = 64


class GarblerSide:
    """The class holder's inputs: its share of the sums, its class counts, its masks."""

    def __init__(
        self,
        garbler: Garbler,
        share: Words,
        labels: Blocks,
        class_counts: npt.NDArray[np.int64],
        layout: RowLayout,
        plan: ScorePlan,
        coins: Coins,
        noise: Noise | None = None,
    ) -> None:
        self.gates: Gates = garbler
        self._garbler = garbler
        self._share = c.to_bits(_by_word(share), _WORD_BITS)
        self._labels, self._noise_labels = _split_labels(labels, layout, plan)
        self._noise = noise_bits(noise, layout, plan)
        self._counts = c.to_bits([int(value) for value in class_counts], layout.count_bits)
        self._classes = plan.classes
        self._bits = plan.bits
        self._coins = coins
        self.masks: list[npt.NDArray[np.uint8]] = []

    def words(self, indices: Sequence[int]) -> Number:
        """Shares added in the circuit."""
        lanes = _lanes(indices, self._classes)
        return c.add(self.gates, self._garbler.own(self._share[:, lanes]), self._labels[:, lanes], bits=_WORD_BITS)

    def class_counts(self) -> Number:
        """Rows per class."""
        return self._garbler.own(self._counts)

    def mask(self, lanes: int) -> Number:
        """Fresh uniform bits."""
        raw = np.frombuffer(self._coins.bytes(-(-self._bits * lanes // 8)), dtype=np.uint8)
        bits = np.unpackbits(raw)[: self._bits * lanes].reshape(self._bits, lanes)
        self.masks.append(bits)
        return self._garbler.own(bits)

    def noise(self, key: Key) -> list[Number]:
        """Its own, and the other's."""
        return [self._garbler.own(self._noise[key]), self._noise_labels[key]] if self._noise else []


class EvaluatorSide:
    """The attribute holder's inputs: the labels of its share's bits."""

    def __init__(self, evaluator: Evaluator, labels: Blocks, layout: RowLayout, plan: ScorePlan) -> None:
        self.gates: Gates = evaluator
        self._evaluator = evaluator
        self._labels, self._noise_labels = _split_labels(labels, layout, plan)
        self._count_bits = layout.count_bits
        self._classes, self._bits = plan.classes, plan.bits

    def words(self, indices: Sequence[int]) -> Number:
        """Shares added in the circuit."""
        lanes = _lanes(indices, self._classes)
        return c.add(self.gates, self._evaluator.own((_WORD_BITS, len(lanes))), self._labels[:, lanes], bits=_WORD_BITS)

    def class_counts(self) -> Number:
        """Rows per class: the garbler's."""
        return self._evaluator.own((self._count_bits, self._classes))

    def mask(self, lanes: int) -> Number:
        """The garbler's."""
        return self._evaluator.own((self._bits, lanes))

    def noise(self, key: Key) -> list[Number]:
        """The garbler's, and its own."""
        if not self._noise_labels:
            return []
        own = self._noise_labels[key]
        return [self._evaluator.own(own.shape[:2]), own]


class PlainSide:
    """Everything in clear: the oracle."""

    def __init__(
        self,
        words: Words,
        class_counts: npt.NDArray[np.int64],
        layout: RowLayout,
        plan: ScorePlan,
        noise: Sequence[Noise] = (),
    ) -> None:
        self.gates: Gates = Plain()
        self._noise = [noise_bits(part, layout, plan) for part in noise]
        self._words = c.to_bits(_by_word(words), _WORD_BITS)
        self._counts = c.to_bits([int(value) for value in class_counts], layout.count_bits)
        self._classes, self._bits = plan.classes, plan.bits

    def words(self, indices: Sequence[int]) -> Number:
        """The sums."""
        return self._words[:, _lanes(indices, self._classes)]

    def class_counts(self) -> Number:
        """Rows per class."""
        return self._counts

    def mask(self, lanes: int) -> Number:
        """None."""
        return np.zeros((self._bits, lanes), dtype=np.uint8)

    def noise(self, key: Key) -> list[Number]:
        """All parties'."""
        return [part[key] for part in self._noise]


def _split_labels(labels: Blocks, layout: RowLayout, plan: ScorePlan) -> tuple[Blocks, dict[Key, Number]]:
    """Labels of the evaluator's bits: of its share's words, then of its noise."""
    at = _WORD_BITS * layout.words * plan.classes
    words = labels[:at].reshape(_WORD_BITS, -1, 2)
    found: dict[Key, Number] = {}
    for field in noise_fields(layout, plan):
        size = field.bits * field.lanes
        found[field.key] = labels[at : at + size].reshape(field.bits, field.lanes, 2)
        at += size
    return words, found


def evaluator_bits(share: Words, noise: Noise | None, layout: RowLayout, plan: ScorePlan) -> npt.NDArray[np.uint8]:
    """The bits that the evaluator brings: of its share's words, then of its noise."""
    own = noise_bits(noise, layout, plan)
    parts = [c.to_bits(_by_word(share), _WORD_BITS).reshape(-1)]
    return np.concatenate([*parts, *(own[field.key].reshape(-1) for field in noise_fields(layout, plan))])


def transfers(layout: RowLayout, plan: ScorePlan) -> int:
    """How many bits the evaluator brings."""
    noise = sum(field.bits * field.lanes for field in noise_fields(layout, plan))
    return _WORD_BITS * layout.words * plan.classes + noise


def _by_word(share: Words) -> Words:
    """(classes, words) to lanes, classes fastest."""
    return np.ascontiguousarray(share.T).reshape(-1)


def _lanes(indices: Sequence[int], classes: int) -> npt.NDArray[np.int64]:
    return (np.array(indices, dtype=np.int64)[:, None] * classes + np.arange(classes)).reshape(-1)


def plain_tables(
    words: Words, class_counts: npt.NDArray[np.int64], layout: RowLayout, plan: ScorePlan, noise: Sequence[Noise] = ()
) -> tuple[dict[str, Limbs], int]:
    """What the two shares add up to, computed in clear, and the number of AND gates: the oracle of the tests."""
    side = PlainSide(words, class_counts, layout, plan, noise)
    outputs = list(build(side, layout, plan))
    return add_denominators(from_outputs(outputs, layout, plan), class_counts, layout, plan), side.gates.and_count


def class_holder(
    run: Run,
    attribute_holder_name: str,
    share: Words,
    class_counts: npt.NDArray[np.int64],
    layout: RowLayout,
    plan: ScorePlan,
    keeper: Keeper,
    coins: Coins,
    noise: Noise | None = None,
) -> Role[dict[str, Limbs]]:
    """The garbler. Returns its share of the score tables."""
    _require_share(share, layout, plan)
    if class_counts.shape != (plan.classes,) or int(class_counts.sum()) != layout.rows:
        raise LocalProtocolError("the class counts do not add up to the rows")
    facts = plan.facts() + layout.facts()
    session = yield from agree(run, attribute_holder_name, "shared_model", facts, coins)  # step 1
    tmmo, stream = TweakedHash(session), keeper.session(session)
    chosen = yield from receive(attribute_holder_name, SumsChosen)
    labels = stream.extend(chosen.corrections, transfers(layout, plan), attribute_holder_name).reshape(-1, 2)
    garbler = Garbler(tmmo, keeper.delta)
    side = GarblerSide(garbler, share, labels, class_counts, layout, plan, coins, noise)
    for outputs in build(side, layout, plan):  # steps 3 to 5
        yield from send_step(attribute_holder_name, garbler, outputs, ModelGarbled)
    tables = from_outputs(side.masks, layout, plan, negative=True)
    return add_denominators(tables, class_counts, layout, plan)  # step 6


def attribute_holder(
    run: Run,
    class_holder_name: str,
    share: Words,
    layout: RowLayout,
    plan: ScorePlan,
    planter: Planter,
    coins: Coins,
    noise: Noise | None = None,
) -> Role[dict[str, Limbs]]:
    """The evaluator. Returns its share of the score tables."""
    _require_share(share, layout, plan)
    facts = plan.facts() + layout.facts()
    session = yield from agree(run, class_holder_name, "shared_model", facts, coins)  # step 1
    tmmo, stream = TweakedHash(session), planter.session(session)
    corrections, t = stream.extend(evaluator_bits(share, noise, layout, plan))
    yield Send(class_holder_name, SumsChosen(corrections))  # step 2
    evaluator = Evaluator(tmmo, class_holder_name)
    side = EvaluatorSide(evaluator, t.reshape(-1, 2), layout, plan)
    circuit = build(side, layout, plan)
    opened: list[npt.NDArray[np.uint8]] = []
    for _ in output_lanes(layout, plan):  # steps 3 to 5
        tags = yield from receive_step(class_holder_name, evaluator, ModelGarbled)
        outputs: Wires = next(circuit)
        evaluator.require_finished()
        opened.append(evaluator.read(outputs, tags))
    return from_outputs(opened, layout, plan)


def _require_share(share: Words, layout: RowLayout, plan: ScorePlan) -> None:
    if share.shape != (plan.classes, layout.words) or share.dtype != np.uint64:
        raise LocalProtocolError("the share of the sums does not fit the layout")
