"""The logarithm in a circuit: its error bound."""

import math

import numpy as np
import pytest

from blindbayes.crypto import logarithm
from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Plain
from support.two_party import coins


def run(function, *numbers, **options):
    """(result as integers, AND gates per lane) of a circuit on (values, bits) pairs."""
    g = Plain()
    out = function(g, *[circuits.to_bits(values, bits) for values, bits in numbers], **options)
    lanes = len(numbers[0][0])
    assert g.and_count % lanes == 0
    return circuits.from_bits(np.atleast_2d(out)), g.and_count // lanes


@pytest.mark.parametrize("fraction", [16, 20, 24])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 13, 16])
def test_ln_keeps_its_bound_for_every_number(n, fraction):
    values = list(range(1, 2**n))
    got, _ = run(logarithm.ln, (values, n), fraction=fraction)
    worst = max(abs(result / 2**fraction - math.log(value)) for result, value in zip(got, values, strict=True))
    assert worst < logarithm.ln_error(fraction)
    assert max(got) < 2 ** logarithm.ln_bits(n, fraction)


@pytest.mark.parametrize("n", [17, 21, 30, 64, 100])
def test_ln_keeps_its_bound_for_wide_numbers(n):
    source = coins(f"ln {n}")
    values = [1, 2, 3, 2**n - 1] + [1 << k for k in range(n)] + [(1 << k) - 1 for k in range(2, n)]
    values += [max(1, source.bits(1 + source.below(n))) for _ in range(5000)]
    got, gates = run(logarithm.ln, (values, n), fraction=24)
    worst = max(abs(result / 2**24 - math.log(value)) for result, value in zip(got, values, strict=True))
    assert worst < logarithm.ln_error(24)
    # The bound has teeth: half of it is not kept.
    assert n < 21 or worst > logarithm.ln_error(24) / 4
    assert gates == {17: 1002, 21: 1141, 30: 1329, 64: 1632, 100: 2081}[n]


@pytest.mark.parametrize("fraction", [8, 16, 20, 24])
@pytest.mark.parametrize("rest", [1, 5, 13, 21])
def test_what_ln_cuts_off_cannot_pass_its_bound_whatever_the_number(fraction, rest):
    """Worst cases added up: half of what products are cut by, products of t^2 left out, tables, rounding, quadratics."""
    inner = fraction + logarithm._GUARD
    rest, bend_bits, unit = min(rest, inner - 7), max(0, inner - 14), 2.0**-inner
    _, slopes, bends = logarithm._ln_tables(fraction, 7, rest)
    places = [i + j + (i != j) for i in range(rest) for j in range(i + 1)]
    dropped = sum(2.0 ** (place - 2 * (7 + rest)) for place in places if place < 2 * (7 + rest) - inner)
    rows = [
        float(logarithm._cut(a, rest) + logarithm._cut(b, min(2 * rest, bend_bits))) for a, b in zip(slopes, bends, strict=True)
    ]
    cut = max(row / 2 * unit + dropped * bend / 2**bend_bits for row, bend in zip(rows, bends, strict=True))
    assert cut + 0.5 * 2.0**-fraction + 4 * 0.5 * unit + 2.0**-21 / 96 < logarithm.ln_error(fraction)
