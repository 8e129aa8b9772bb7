"""Score tables: what a party holds of a model, and how it is looked up locally.

Per feature an array (selectors, entries, K - 1, limbs): ln p of class k minus ln p of class 0, for k >= 1, as integers modulo
2^bits. Entry 0 is 0. A shared model is two such sets of tables that add up; local ones (a party that knows the class of its own
rows) stand alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.limbs import Limbs
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.shared_training.class_sums.layout import HistogramFields, RowLayout
from blindbayes.protocols.shared_training.shared_model.circuit import LN_LANES, gaussian_groups, histogram_lanes
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout

Tables = Mapping[str, Limbs]
Bits = npt.NDArray[np.uint8]


def output_lanes(layout: RowLayout, plan: ScoreLayout) -> list[int]:
    """Return the lanes of each stack of outputs that the circuit yields, in order."""
    cells = len(histogram_lanes(layout)) * plan.classes
    lanes = [min(LN_LANES, cells - low) for low in range(0, cells, LN_LANES)]
    for group in gaussian_groups(layout, plan):
        lanes += [len(alike) * plan.features[alike[0].feature.name].selectors * plan.classes for alike in group]
    return lanes


def from_outputs(outputs: Sequence[Bits], layout: RowLayout, plan: ScoreLayout, *, negative: bool = False) -> dict[str, Limbs]:
    """Make a share of the tables of the circuit's outputs: the opened ones, or minus the garbler's masks."""
    if [stack.shape[1] for stack in outputs] != output_lanes(layout, plan):
        raise LocalProtocolError("the outputs do not fit the layout")
    values = [_limbs(stack, plan) for stack in outputs]
    if negative:
        values = [lm.subtract(np.zeros_like(part), part) for part in values]
    lanes = histogram_lanes(layout)
    cells = -(-len(lanes) * plan.classes // LN_LANES)
    tables: dict[str, Limbs] = {}
    if lanes:
        logs = np.concatenate(values[:cells]).reshape(len(lanes), plan.classes, plan.limbs)
        at = {lane: position for position, lane in enumerate(lanes)}
        for fields in layout.fields:
            if not isinstance(fields, HistogramFields):
                continue
            name = fields.feature.name
            rows = logs[[at[name, value] for value in range(len(fields.counts))]]
            if fields.feature.optional:
                rows = lm.subtract(rows, logs[at[name, -1]][None])
            change = _differences(rows, plan)
            tables[name] = np.concatenate([np.zeros_like(change[:1]), change])[None]  # the zero entry in front
    rest = iter(values[cells:])
    for group in gaussian_groups(layout, plan):
        for alike in group:
            for fields, rows in zip(alike, np.split(next(rest), len(alike)), strict=True):
                change = _differences(rows.reshape(-1, plan.classes, plan.limbs), plan)
                tables[fields.feature.name] = np.stack([np.zeros_like(change), change], axis=1)
    return {fields.feature.name: tables[fields.feature.name] for fields in layout.fields}


def add_denominators(
    tables: dict[str, Limbs], class_counts: npt.NDArray[np.int64], layout: RowLayout, plan: ScoreLayout
) -> dict[str, Limbs]:
    """Add -ln(n_c + alpha r) of always-present features to the class holder's share: it knows n_c."""
    completed = dict(tables)
    for fields in layout.fields:
        if isinstance(fields, HistogramFields) and not fields.feature.optional:
            alpha = plan.alpha / 2**plan.alpha_shift
            totals = class_counts.astype(np.float64) + alpha * len(fields.counts)
            logs = np.rint(-np.log(totals) * 2.0**plan.fraction)
            change = lm.from_floats(logs[1:] - logs[0], plan.limbs)
            table = completed[fields.feature.name].copy()
            table[0, 1:] = lm.cut(lm.add(table[0, 1:], change[None]), plan.bits)
            completed[fields.feature.name] = table
    return completed


def _limbs(stack: Bits, plan: ScoreLayout) -> Limbs:
    padded = np.zeros((64 * plan.limbs, stack.shape[1]), dtype=np.uint8)
    padded[: len(stack)] = stack
    packed = np.ascontiguousarray(np.packbits(padded.T, axis=1, bitorder="little"))
    return packed.view("<u8").astype(np.uint64)


def _differences(rows: Limbs, plan: ScoreLayout) -> Limbs:
    return lm.cut(lm.subtract(rows[:, 1:], np.broadcast_to(rows[:, :1], rows[:, 1:].shape)), plan.bits)


def score(tables: Tables, columns: Mapping[str, npt.NDArray[np.int64]], plan: ScoreLayout, rows: int) -> Limbs:
    """Sum the selected entries, (rows, K - 1, limbs)."""
    total = np.zeros((rows, plan.classes - 1, plan.limbs), dtype=np.uint64)
    for name, table in tables.items():
        chosen = plan.features[name].choices(columns[name])
        for selector in range(table.shape[0]):
            total = lm.add(total, table[selector].take(chosen[:, selector].astype(np.int64), axis=0))
    return total
