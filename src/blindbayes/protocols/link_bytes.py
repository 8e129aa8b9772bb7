"""Limits on the bytes that one party may send another in a run, from public facts and the formulas of the SPECs.

A site refuses more, so that a peer cannot fill its disk. The bounds over columns are loose: twice the formulas, and a constant.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from blindbayes.codebook import Codebook, Text
from blindbayes.crypto.ot.base import bits_for
from blindbayes.crypto.ot.softspoken import correction_words
from blindbayes.crypto.psi.okvs import cells
from blindbayes.protocols import registry
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores.roles import JoinedScoresSetup
from blindbayes.protocols.private_join.sums.equal import BINS, levels
from blindbayes.protocols.private_join.sums.roles import JoinedSumsSetup
from blindbayes.protocols.shared_inference.compare_all import triples_needed
from blindbayes.protocols.shared_inference.comparing import and_gates
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup
from blindbayes.protocols.shared_inference.references import COUNT
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.shared_training.shared_model import ScoreLayout
from blindbayes.protocols.shared_training.shared_model.roles import and_gates as model_gates
from blindbayes.protocols.shared_training.shared_model.roles import transfers

_SLACK = 2
_SMALL = 1 << 20  # setup of transfers, names, frames, roots
_MAX_CIRCUITS = 64
_GATES: dict[bytes, int] = {}  # AND gates of circuits, by their public facts
_QUESTION, _CHECK = 64, 10_272  # bytes per question about an identifier, and per 2^17 of them


def secure_sum(protocol: str, contributors: int, words: Callable[[], int]) -> int | None:
    """Evaluate `bytes_per_link` of a SPEC; None if it has none, so that the journal's quota is the bound.

    `words` returns the length of the vectors.
    """
    formula = registry.spec(protocol).get("bytes_per_link") if protocol in registry.known() else None
    return None if formula is None else int(value_of(formula, {"n": contributors, "words": words()}))


def _chosen(transferred: int) -> int:
    return 8 * correction_words(max(1, transferred))


def _model(columns: ColumnsSetup, layout: RowLayout) -> int:
    """Bytes of shared_model, in which both parties garble."""
    plan, facts = columns.plan, columns.plan.facts() + layout.facts()
    if (gates := _GATES.get(facts)) is None:  # counted by playing the circuit, which takes as long as a small run
        gates = _GATES[facts] = model_gates(layout, plan)
        if len(_GATES) > _MAX_CIRCUITS:
            del _GATES[next(iter(_GATES))]
    return 32 * gates + _chosen(sum(transfers(layout, plan))) + 32 * plan.bits * plan.classes * layout.sums


def training(columns: ColumnsSetup) -> int:
    """Bound class_sums and shared_model with any attribute holder."""
    largest = 0
    for party in columns.holders:
        if columns.shared(party):
            shape = columns.shape(party)
            each = 8 * shape.words + 32 * shape.levels
            blocks = -(-shape.rows // shape.block) * _chosen(shape.block * shape.levels)
            largest = max(largest, shape.rows * each + blocks + _model(columns, columns.aligned[party]) + _references(columns))
    return _SLACK * largest + _SMALL


def words(codebook: Codebook, text: Text) -> tuple[int, int, int]:
    """Estimate the bytes of a text by words: of training's circuits, of a row in training, of a classified document."""
    one = msgspec.structs.replace(text, words=("word",), buckets=None, model="bernoulli", optional=True, max_words=None)
    columns = ColumnsSetup(codebook.with_features([one]), codebook.max_rows, {"text": (one.name,), "class": ()}, ("class",))
    layout, plan = columns.layout("text"), columns.plan
    counters = len(one.by_word[0].values)
    row = -(-counters * text.size // (64 // layout.count_bits))
    return 2 * text.size * _model(columns, layout), 8 * row, text.size * _features(plan, columns.coded("text"))


def joined_training(join: JoinSetup) -> int:
    """Bound joined_sums, shared_model and priors with any attribute holder."""
    columns, largest = join.columns, 0
    for party in join.holders:
        sums = _join(join.shape(party)) + _join(join.own_shape(party)) + _model(columns, columns.layout(party))
        if join.own_layout is not None:
            sums += _model(columns, join.own_layout)
        priors = columns.plan.classes * (1 << 16)
        largest = max(largest, sums + priors + 2 * _references(columns))
    return _SLACK * largest + _SMALL


def _join(shape: JoinedSumsSetup) -> int:
    per_bin = _QUESTION + 20 * sum(levels(shape.tag_bits)) + 32 * (shape.planes + 2) + 8 * shape.words * shape.planes
    blocks = -(-shape.bins // shape.block) * _chosen(shape.block * (2 + shape.planes))
    blocks += -(-shape.bins // BINS) * len(levels(shape.tag_bits)) * _chosen(1)
    store = 8 * cells(shape.keys) * shape.payload_words
    return shape.bins * per_bin + blocks + store + _CHECK * -(-shape.bins // (1 << 17)) + (1 << 16)


def _references(columns: ColumnsSetup) -> int:
    if not columns.audit_rate:
        return 0
    return sum(_batch(columns.query(COUNT)).values())


def _batch(query: SharedArgmaxSetup) -> dict[str, int]:
    """Return the bytes of a batch's look-ups, comparison and audits, in both directions."""
    plan, limbs = query.plan, query.plan.limbs * (query.plan.classes - 1)
    pairs = query.compared
    asked = query.count + max(query.dummies, query.decoys)
    look = max(_features(plan, query.shared.get(holder, ())) for holder in query.holders)
    compared = query.count + 2 * query.dummies + query.decoys
    all_compare = 5 * triples_needed(len(query.holders) + 1, plan.bits, plan.classes, compared) if query.compare_all else 0
    return {
        "look-ups": asked * (look + 8 * limbs + 64),
        "comparison": compared * (32 * and_gates(query) + 4 * plan.bits * pairs + 64 * plan.classes + 32 * limbs),
        "all": all_compare,
        "tally": query.count * (4 + 8 * plan.classes**2) * (1 << bits_for(plan.classes)) if query.tally else 0,
        "small": 4096 * (-(-compared // query.chunk()) + 1) * 8,
    }


def _features(plan: ScoreLayout, names: tuple[str, ...]) -> int:
    width = 8 * plan.limbs * (plan.classes - 1)
    features = [plan.features[name] for name in names]
    return sum(each.selectors * (4 * bits_for(each.entries) + each.entries * width) for each in features)


def classification(
    columns: ColumnsSetup, count: int, *, compare_all: bool = False, tally: bool = False, batch: int = 1 << 14
) -> int:
    """Bound shared_argmax over all batches; of an inner join both directions of the look-ups."""
    batches = -(-count // batch)
    each = sum(_batch(columns.query(min(count, batch), compare_all=compare_all, tally=tally)).values())
    own = _features(columns.plan, columns.coded(columns.class_holder)) * (count + batches) * 2
    return _SLACK * (batches * each + own) + _SMALL


def hidden(scoring: JoinedScoresSetup) -> int:
    """Bound joined_scores with any helper, and the comparison of every bin."""
    largest = 0
    for shape in scoring.shapes.values():
        bits = shape.tag_bits + shape.planes
        per_bin = _QUESTION + 2 * shape.block_bytes + 16 * shape.entry_words + 64 * shape.width
        blocks = -(-shape.bins // shape.block) * 2 * _chosen(shape.block * (bits + 1))
        store = 8 * cells(shape.keys) * shape.payload_words
        largest = max(largest, shape.bins * per_bin + blocks + store + _CHECK * -(-shape.bins // (1 << 17)))
    own = _features(scoring.join.columns.plan, scoring.own) * scoring.bins
    compared = sum(_batch(scoring.query(scoring.bins)).values())
    return _SLACK * (largest + own + compared) + _SMALL
