"""Post-processing: what it does without noise, with much noise, and that it never leaves the simplex."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from blindbayes.dp.release import postprocess as post


def test_class_sizes_without_noise_are_the_counts() -> None:
    counts = np.array([120.0, 30.0, 50.0])
    assert post.class_sizes(counts, 1e-9, None).rows == pytest.approx(counts, rel=1e-6)


def test_class_sizes_drowned_in_noise_are_even_and_sum_to_the_declared_rows() -> None:
    sizes = post.class_sizes(np.array([9000.0, -4000.0, 100.0]), 5000.0, 300)
    assert sizes.total == pytest.approx(300, rel=0.05)
    assert sizes.rows.max() < 2 * sizes.rows.min()


def test_a_wrong_declaration_of_rows_does_not_distort_the_shares() -> None:
    """Declared as 1,000, a table of 8,000 rows had the shares 0.92 and 0.08 in place of 0.8 and 0.2."""
    sizes = post.class_sizes(np.array([6430.0, 1590.0]), 50.0, 1000).rows
    assert sizes / sizes.sum() == pytest.approx([0.8, 0.2], abs=0.01)
    assert sizes.sum() == pytest.approx(8020, rel=0.01)
    close = post.class_sizes(np.array([760.0, 260.0]), 50.0, 1000).rows  # within the noise: the declaration helps
    assert abs(close.sum() - 1000) < abs(1020 - 1000)


def test_class_sizes_are_positive_whatever_the_noise() -> None:
    generator = np.random.default_rng(1)
    for _ in range(200):
        classes = int(generator.integers(1, 6))
        sizes = post.class_sizes(generator.normal(0, 1000, classes), float(generator.uniform(0.1, 1000)), None)
        assert (sizes.rows > 0).all()
        assert np.exp(sizes.log_prior).sum() == pytest.approx(1)


def test_positive_mean_against_integration() -> None:
    for mean, deviation in ((2.0, 1.0), (0.0, 1.0), (-3.0, 2.0)):
        x = np.linspace(0, 40, 400_001)
        density = norm.pdf(x, mean, deviation)
        assert post.positive_mean(np.array(mean), deviation) == pytest.approx((x * density).sum() / density.sum(), rel=1e-3)


def _shrunk(cells: np.ndarray, sizes: post.ClassSizes, deviation: float) -> np.ndarray:
    contrast = post.Contrast.estimate(cells, sizes, deviation, 1.0)
    return post.shrink_histogram(contrast, post.learn_effects([contrast]), 1.0)


def test_a_histogram_without_noise_keeps_its_shares() -> None:
    cells = np.array([[80.0, 15.0, 5.0], [10.0, 30.0, 60.0]])
    sizes = post.ClassSizes(cells.sum(axis=1), 1e-9)
    assert _shrunk(cells, sizes, 1e-9) == pytest.approx(cells / 100, rel=1e-6)


def test_no_cell_falls_below_half_of_alpha() -> None:
    cells = np.array([[100.0, 0.0], [50.0, 50.0]])
    table = _shrunk(cells, post.ClassSizes(cells.sum(axis=1), 1e-9), 1e-9)
    assert table[0, 1] == pytest.approx(0.5 / 100.5)


def test_an_attribute_that_is_pure_noise_says_nothing_on_average() -> None:
    generator = np.random.default_rng(2)
    ratios, raw = [], []
    for _ in range(200):
        cells = np.full((2, 5), 100.0) + generator.normal(0, 30, (2, 5))
        cells += ((500 - cells.sum(axis=1)) / 5)[:, None]
        table = _shrunk(cells, post.ClassSizes(np.array([500.0, 500.0]), 0.0), 30 * np.sqrt(0.8))
        ratios.append(np.abs(np.log(table[0] / table[1])).max())
        raw.append(np.abs(np.log(np.maximum(cells[0], 1) / np.maximum(cells[1], 1))).max())
    assert np.mean(ratios) < 0.5 * np.mean(raw)


def test_a_feature_is_believed_less_among_features_that_show_nothing() -> None:
    generator = np.random.default_rng(8)
    sizes = post.ClassSizes(np.array([300.0, 300.0]), 1.0)

    def feature(gap: float) -> post.Contrast:
        return post.Contrast.estimate(np.array([[150 + gap, 150 - gap], [150 - gap, 150 + gap]]), sizes, 40.0, 1.0)

    def tilt(others: list[float]) -> float:
        contrasts = [feature(60.0), *(feature(gap) for gap in others)]
        table = post.shrink_histogram(contrasts[0], post.learn_effects(contrasts), 1.0)
        return float(np.log(table[0, 0] / table[1, 0]))

    noise = [float(value) for value in generator.normal(0, 40 / np.sqrt(2), 30)]
    alone, among_noise, among_likes = tilt([]), tilt(noise), tilt([60.0] * 30)
    assert among_noise < 0.7 * alone < alone < among_likes


def test_thirty_features_of_noise_do_not_outvote_the_largest_class() -> None:
    generator = np.random.default_rng(9)
    sizes = post.ClassSizes(np.array([700.0, 300.0]), 5.0)
    against = []
    for _ in range(30):
        exact = np.outer(sizes.rows, [0.5, 0.5])
        tilt = generator.normal(0, 60, (30, 2))
        contrasts = [post.Contrast.estimate(exact + np.stack([one, -one], axis=1), sizes, 60.0, 1.0) for one in tilt]
        weights = post.learn_effects(contrasts)
        tables = [post.shrink_histogram(each, weights, 1.0) for each in contrasts]
        logs = np.array([np.log(table[1] / table[0]) for table in tables])
        values = generator.integers(0, 2, (200, 30))  # rows
        against.append((logs[np.arange(30), values].sum(axis=1) > np.log(7 / 3)).mean())
    assert np.mean(against) < 0.12


def test_a_value_that_a_class_never_has_counts_against_it_where_noise_is_small() -> None:
    sizes = post.ClassSizes(np.array([1000.0, 1000.0]), 1.0)
    for count in (-4.0, 0.0, 4.0):
        cells = np.array([[300.0, 400.0, 300.0], [count, 600.0 - count, 400.0]])
        assert _shrunk(cells, sizes, 5.0)[1, 0] < 0.01  # a noise of 5 hides nothing of 300 rows
        assert _shrunk(cells, sizes, 400.0)[1, 0] > 0.1  # and one of 400 all of it


def test_a_law_of_a_weak_feature_says_no_more_than_its_cells() -> None:
    sizes = post.ClassSizes(np.array([600.0, 400.0]), 1.0)
    law = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]])
    cells = np.array([[0.48, 0.52], [0.52, 0.48]])
    tilt = np.log(post.temper_law(law, cells, sizes, (0, 2, 4)))
    assert 0 < np.abs(tilt[0] - tilt[1]).max() < 0.3 * np.log(4)  # as fitted it is log 4
    even = np.array([[0.5, 0.5], [0.5, 0.5]])
    flat = post.temper_law(law, even, sizes, (0, 2, 4))
    assert flat[0] == pytest.approx(flat[1])


def test_tables_are_distributions_for_any_noise() -> None:
    generator = np.random.default_rng(3)
    for _ in range(100):
        classes, width = int(generator.integers(2, 5)), int(generator.integers(2, 9))
        deviation = float(10 ** generator.uniform(-2, 4))
        sizes = post.class_sizes(generator.uniform(1, 500, classes), deviation, 500)
        table = _shrunk(generator.normal(50, deviation, (classes, width)), sizes, deviation)
        assert (table > 0).all()
        assert table.sum(axis=1) == pytest.approx(np.ones(classes))


def _cells(mean: float, deviation: float, rows: float, edges: tuple[int, ...], fine: int) -> np.ndarray:
    below = norm.cdf(2 * np.arange(fine + 1) / fine - 1, mean, deviation)
    below[0], below[-1] = 0, 1
    return rows * np.add.reduceat(np.diff(below), edges[:-1])


def test_a_normal_law_is_found_again_from_six_exact_cells() -> None:
    edges, fine = (0, 40, 80, 120, 160, 200, 240), 240
    truth = [(-0.3, 0.15), (0.2, 0.25)]
    cells = np.array([[_cells(mean, deviation, 5000, edges, fine) for mean, deviation in truth]])
    law = post.fit_normal([post.Ordered(cells, np.array([[5000.0, 5000.0]]), np.array([1.0]), tuple(edges))], 0.0)[0][0]
    centres = (2 * np.arange(fine) + 1) / fine - 1
    for found, (mean, deviation) in zip(law, truth, strict=True):
        assert found.sum() == pytest.approx(1)
        assert (found * centres).sum() == pytest.approx(mean, abs=0.02)
        assert np.sqrt((found * centres**2).sum() - (found * centres).sum() ** 2) == pytest.approx(deviation, rel=0.15)


def test_a_fit_to_pure_noise_pulls_the_classes_together() -> None:
    edges = (0, 120, 240)
    generator = np.random.default_rng(4)
    tilt = []
    for _ in range(20):
        half = generator.normal(0, 200, 2)
        cells = np.array([[[25 + x, 25 - x] for x in half]])
        law = post.fit_normal([post.Ordered(cells, np.array([[50.0, 50.0]]), np.array([200.0]), tuple(edges))], 0.0)[0][0]
        tilt.append(np.abs(np.log(law[0] / law[1])).max())
    assert np.mean(tilt) < 0.2


def test_cells_that_contradict_the_law_take_over() -> None:
    edges, fine = (0, 60, 120, 180, 240), 240
    flat = np.full((1, fine), 1 / fine)
    spike = np.array([[10.0, 10.0, 10.0, 9970.0]])
    law = post.blend_cells(flat, spike, np.array([10_000.0]), 5.0, edges, 1.0)
    assert law[0, 180:].sum() == pytest.approx(0.997, abs=0.002)
    kept = post.blend_cells(
        flat, np.full((1, 4), 2500.0) + np.array([[20, -30, 15, -5]]), np.array([10_000.0]), 50.0, edges, 1.0
    )
    assert kept == pytest.approx(flat)


def test_moments_without_noise_are_the_class_moments() -> None:
    generator = np.random.default_rng(5)
    parts = [np.clip(generator.normal(mean, deviation, 20_000), -1, 1) for mean, deviation in ((-0.4, 0.1), (0.3, 0.2))]
    first = np.array([part.sum() for part in parts])
    second = np.array([(2 * part**2 - 1).sum() for part in parts])
    mean, variance = post.shrink_moments(first, second, post.ClassSizes(np.array([20_000.0, 20_000.0]), 1e-6), 1e-6)
    assert mean == pytest.approx([part.mean() for part in parts], rel=1e-6)
    assert variance == pytest.approx([part.var() for part in parts], rel=1e-3)


def test_moments_drowned_in_noise_say_nothing() -> None:
    generator = np.random.default_rng(6)
    gaps = []
    for _ in range(100):
        mean, variance = post.shrink_moments(
            generator.normal(0, 1000, 2), generator.normal(0, 1000, 2), post.ClassSizes(np.array([100.0, 100.0]), 10.0), 1000.0
        )
        assert (variance > 0).all()
        assert (np.abs(mean) <= 1).all()
        gaps.append(abs(mean[0] - mean[1]) / np.sqrt(variance.max()))
    assert np.median(gaps) < 0.2
