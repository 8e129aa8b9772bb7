"""The shared model in clear: what the two shares add up to."""

from __future__ import annotations

import numpy as np

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.protocols.shared_training.shared_model.field_sums import entered, with_noise
from blindbayes.protocols.shared_training.shared_model.roles import circuit_of, require_share, transfers
from blindbayes.protocols.shared_training.shared_model.tables import add_denominators, from_outputs, output_lanes


def plain_tables(words, class_counts, layout, plan, noise=()):
    """Return the score tables of sums (classes, words), with the noise of some parties, and the AND gates it took."""
    require_share(words, layout, plan)
    for part in noise:
        words = with_noise(words, part, layout)
    counts = c.to_bits([int(value) for value in class_counts], layout.count_bits)
    masks = [np.zeros((plan.bits, lanes), dtype=np.uint8) for lanes in output_lanes(layout, plan)]
    own = np.concatenate([part.reshape(-1) for part in (*entered(words, layout, raised=True), counts, *masks)])
    gates, other = Plain(), np.zeros(transfers(layout, plan)[1], dtype=np.uint8)
    outputs = list(circuit_of(layout, plan)(gates, own, other))
    return add_denominators(from_outputs(outputs, layout, plan), class_counts, layout, plan), gates.and_count


def to_integers(values, bits):
    """Return signed integers of `bits` bits from (n, limbs)."""
    half, modulus = 1 << (bits - 1), 1 << bits
    integers = []
    for row in values:
        value = sum(int(limb) << (64 * place) for place, limb in enumerate(row)) % modulus
        integers.append(value - modulus if value >= half else value)
    return integers


def to_floats(tables, plan):
    """Return tables in clear as plain numbers, (selectors, entries, K - 1)."""
    floats = {}
    for name, table in tables.items():
        flat = to_integers(table.reshape(-1, plan.limbs), plan.bits)
        floats[name] = np.array([value / 2**plan.fraction for value in flat]).reshape(table.shape[:-1])
    return floats
