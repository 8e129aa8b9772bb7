"""How far noise moves the weight of evidence: said as large as it is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from blindbayes import NaiveBayes
from blindbayes.datasets import hospitals
from blindbayes.report import release_files
from blindbayes.report.evidence import Noise, weights

DATA = hospitals(6000)
TABLE = pa.concat_tables(DATA.tables.values())
RELEASES = 60


def noise_of(model: NaiveBayes) -> Noise:
    found = Noise.of(model.privacy_, model.statistics_.class_counts)
    assert found is not None
    return found


def test_the_intervals_hold_what_noise_does() -> None:
    """Over repeated releases of one table, 95% of the weights lie within the interval around the exact one.

    60 releases, correlated within a release: the share has a standard error of at most sqrt(.95 * .05 / 60) = 0.028, so a
    true share of 95% falls below 0.85 with probability under 0.001. Half the interval is one deviation and holds 68%: its
    share exceeds 0.85 with probability under 0.001, unless the intervals are too wide.
    """
    exact = {(w.feature, w.value): w.values for w in weights(NaiveBayes(DATA.codebook).fit(TABLE)._record().parameters)}
    held, half_held, widths = [], [], []
    for _ in range(RELEASES):
        model = NaiveBayes(DATA.codebook, epsilon=1.0).fit(TABLE)
        for weight in weights(model._record().parameters, noise=noise_of(model)):
            if weight.noise is None or not np.isfinite(weight.noise).all():
                continue
            error = np.abs(weight.values - exact[weight.feature, weight.value])
            held.append((error <= weight.noise).mean())
            half_held.append((error <= weight.noise / 2).mean())
            widths.append(weight.noise.mean())
    assert len(held) > RELEASES * 5
    assert np.mean(held) > 0.85
    assert np.mean(half_held) < 0.85, "the intervals are far too wide"
    assert 0 < np.mean(widths) < 1


def test_noise_that_drowns_a_value_is_said_so_and_an_exact_model_says_nothing() -> None:
    drowned = NaiveBayes(DATA.codebook, epsilon=0.01).fit(TABLE)
    found = [weight for weight in weights(drowned._record().parameters, noise=noise_of(drowned)) if weight.noise is not None]
    assert any(np.isinf(weight.noise).any() for weight in found)
    assert b"<em>noise</em>" in release_files(drowned)["explain.html"]
    plain = NaiveBayes(DATA.codebook).fit(TABLE)
    assert Noise.of(getattr(plain, "privacy_", None), plain.statistics_.class_counts) is None
