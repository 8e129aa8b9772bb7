"""Plots of a model as SVG: priors, strongest evidence, means, evaluation. Equal models give equal files."""

from __future__ import annotations

from html import escape

import numpy as np

from blindbayes.report.weight_of_evidence import Weight, information, weights
from blindbayes.statistics import Statistics
from blindbayes.statistics.drift import MOVED, RETRAIN, Drift
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.intervals import NoiseInterval, between
from blindbayes.statistics.parameters import FloatArray, Gaussian, Parameters

_MAX_VALUES = 30  # of all features
_FONT = 'font-family="system-ui,sans-serif" font-size="13"'
_BLUE, _RED = (31, 95, 168), (179, 38, 30)
_COLOURS = (_BLUE, _RED, (46, 125, 50), (123, 31, 162), (230, 126, 34), (84, 110, 122))
_SIDE, _GAP, _TOP = 300, 110, 60  # of the two panels of an evaluation


def noisy_shares(noise_interval: NoiseInterval | None, statistics: Statistics | None) -> FloatArray | None:
    """Return the class shares by the noisy counts of a private model; None for others.

    The score of a private model starts elsewhere, since smoothing and selected rules move it.
    """
    if noise_interval is None or statistics is None:
        return None
    counts: FloatArray = np.maximum(statistics.class_counts.astype(np.float64), 0)
    return counts / max(float(counts.sum()), 1.0)


def priors_plot(
    parameters: Parameters, noise_interval: NoiseInterval | None = None, statistics: Statistics | None = None
) -> str:
    """Draw a bar per class: its prior, or of a private model its share by the noisy counts."""
    shares = noisy_shares(noise_interval, statistics)
    labels, values = parameters.codebook.classes, np.exp(parameters.log_prior) if shares is None else shares
    title = "Prior" if shares is None else "Class shares, by the noisy counts,"
    left, width, step = _margin(labels), 420, 28
    out = _open(left + width + 70, 40 + step * len(labels), f"{title} of {parameters.codebook.target}")
    for at, (label, value) in enumerate(zip(labels, values, strict=True)):
        y = 36 + step * at
        out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(_short(label))}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{max(width * float(value), 1):.1f}" height="20" fill="rgb{_BLUE}"/>')
        out.append(f'<text x="{left + width * float(value) + 6:.1f}" y="{y + 14}">{value:.3f}</text>')
    return "".join([*out, "</svg>\n"])


def evidence_plot(
    parameters: Parameters, noise_interval: NoiseInterval | None = None, statistics: Statistics | None = None
) -> str:
    """Draw a heat map of the values with the strongest evidence, weighted by frequency, one row each.

    Values without rows are omitted; features with the most information come first. With `noise_interval`, each cell shows the
    interval that contains the exact weight in 90 of 100 releases, and is pale where the interval contains 0.
    """
    chosen = [weight for weight in weights(parameters, noise_interval=noise_interval, statistics=statistics) if weight.seen]
    chosen = sorted(chosen, key=lambda weight: weight.strength, reverse=True)[:_MAX_VALUES]
    order = {name: at for at, name in enumerate(information(parameters))}
    chosen.sort(key=lambda weight: (order[weight.feature], weight.at))
    classes, names = parameters.codebook.classes, [_name(weight) for weight in chosen]
    left, cell, step, top = _margin(names), (110 if noise_interval is None else 170), 24, 64
    legend = "" if noise_interval is None else "in brackets: 90% interval of the number without privacy noise; grey: may be 0"
    out = _open(
        max(left + cell * len(classes) + 20, 480 if legend else 0),
        top + step * max(len(chosen), 1) + 20 + (20 if legend else 0),
        "Weight of evidence, by value (with the share of rows that have it) and class",
    )
    if legend:
        out.append(f'<text x="12" y="{top + step * max(len(chosen), 1) + 22}" fill="#444">{legend}</text>')
    for at, label in enumerate(classes):
        x = left + cell * at + cell / 2
        out.append(f'<text x="{x}" y="{top - 8}" text-anchor="middle" font-weight="600">{escape(_short(label, 14))}</text>')
    for row, (weight, name) in enumerate(zip(chosen, names, strict=True)):
        y = top + step * row
        out.append(f'<text x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(_short(name))}</text>')
        for at, value in enumerate(weight.values):
            x = left + cell * at
            ends = weight.interval(at)
            fill = "rgb(238,238,238)" if ends is not None and ends[0] <= 0 <= ends[1] else _heat(float(value))
            note = "" if ends is None else f' <tspan font-size="11">{escape(bracket(*ends))}</tspan>'
            out.append(f'<rect x="{x}" y="{y}" width="{cell - 2}" height="{step - 2}" fill="{fill}"/>')
            out.append(f'<text x="{x + cell / 2}" y="{y + 16}" text-anchor="middle">{value:+.2f}{note}</text>')
    if not chosen:
        out.append(f'<text x="20" y="{top + 16}">no feature with cells</text>')
    return "".join([*out, "</svg>\n"])


def bracket(low: float, high: float) -> str:
    """Format an interval; an infinite one is hidden by the noise."""
    return f"[{low:+.2f}, {high:+.2f}]" if np.isfinite(low) and np.isfinite(high) else "[not known]"


def plain(value: float) -> str:
    """Format a number: four digits, or a whole number without an exponent."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def gaussian_plot(parameters: Parameters, noise_interval: NoiseInterval | None = None) -> str | None:
    """Draw the class means and deviations of every Gaussian feature within its bounds; None without such a feature.

    With `noise_interval`, a thin line shows the interval that contains the exact mean in 90 of 100 releases.
    """
    gaussians = [(name, term) for name, term in parameters.terms.items() if isinstance(term, Gaussian)]
    if not gaussians:
        return None
    classes = parameters.codebook.classes
    left, width, step = _margin([f"{name}: {label}" for name, _ in gaussians for label in classes]), 480, 22
    out = _open(left + width + 90, 44 + (step * len(classes) + 14) * len(gaussians), "Mean and deviation, by class")
    y = 40.0
    for name, term in gaussians:
        feature = parameters.codebook.numeric(name)
        low, high = float(feature.low), float(feature.high)
        other = None if noise_interval is None else noise_interval.terms[name]
        means = between(other.mean) if isinstance(other, Gaussian) else None
        for at, (label, mean, variance) in enumerate(zip(classes, term.mean, term.variance, strict=True)):
            spread = float(np.sqrt(variance)) if np.isfinite(variance) else high - low
            ends = [
                left + width * min(max((edge - low) / (high - low), 0.0), 1.0) for edge in (mean - spread, mean, mean + spread)
            ]
            out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(_short(f"{name}: {label}"))}</text>')
            out.append(f'<line x1="{left}" y1="{y + 10}" x2="{left + width}" y2="{y + 10}" stroke="#ddd"/>')
            out.append(
                f'<line x1="{ends[0]:.1f}" y1="{y + 10}" x2="{ends[2]:.1f}" y2="{y + 10}" stroke="rgb{_BLUE}" '
                'stroke-width="5"/>'
            )
            if means is not None:
                x1, x2 = (left + width * min(max((float(side[at]) - low) / (high - low), 0.0), 1.0) for side in means)
                out.append(f'<path d="M {x1:.1f} {y + 3} v 14 m 0 -7 H {x2:.1f} m 0 -7 v 14" fill="none" stroke="rgb{_RED}"/>')
            out.append(f'<circle cx="{ends[1]:.1f}" cy="{y + 10}" r="5" fill="rgb{_RED}"/>')
            out.append(f'<text x="{left + width + 8}" y="{y + 14}">{plain(float(mean))}</text>')
            y += step
        y += 14
    return "".join([*out, "</svg>\n"])


def evaluation_plot(evaluation: Evaluation) -> str:
    """Draw ROC curve and calibration curve of each class against the others. Dots are larger where a bin has more rows."""
    height = _TOP + _SIDE + 50 + 20 * len(evaluation.classes)
    out = _open(2 * _SIDE + _GAP + 100, height, f"Evaluation on {evaluation.rows:,} held-out rows")
    panels = (
        ("ROC", "false positive rate", "true positive rate"),
        ("Calibration", "predicted probability", "fraction of rows"),
    )
    for at, (title, across, up) in enumerate(panels):
        left = 60 + at * (_SIDE + _GAP)
        out.append(f'<text x="{left}" y="{_TOP - 10}" font-weight="600">{title}</text>')
        out.append(f'<rect x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#888"/>')
        out.append(f'<path d="M {left} {_TOP + _SIDE} L {left + _SIDE} {_TOP}" stroke="#ccc"/>')
        out.append(f'<text x="{left + _SIDE / 2}" y="{_TOP + _SIDE + 32}" text-anchor="middle">{across}, 0 to 1</text>')
        middle = f"{left - 14} {_TOP + _SIDE / 2}"
        out.append(f'<text transform="translate({middle}) rotate(-90)" text-anchor="middle">{up}, 0 to 1</text>')
    for at, label in enumerate(evaluation.classes):
        colour = f"rgb{_COLOURS[at % len(_COLOURS)]}"
        false, true = evaluation.roc(label)
        if np.isfinite(false).all() and np.isfinite(true).all():
            line = " L ".join(f"{60 + _SIDE * x:.1f} {_TOP + _SIDE * (1 - y):.1f}" for x, y in zip(false, true, strict=True))
            out.append(f'<path d="M {line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        points = evaluation.calibration(label)
        dots = [
            (60 + _SIDE + _GAP + _SIDE * (point.low + point.high) / 2, _TOP + _SIDE * (1 - point.fraction), point.rows)
            for point in points
        ]
        if dots:
            line = " L ".join(f"{x:.1f} {y:.1f}" for x, y, _ in dots)
            out.append(f'<path d="M {line}" fill="none" stroke="{colour}" stroke-width="1" stroke-dasharray="3 3"/>')
        for x, y, rows in dots:
            radius = 2 + 6 * (rows / evaluation.rows) ** 0.5
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}" fill-opacity="0.7"/>')
        area, y = evaluation.auc(label), _TOP + _SIDE + 56 + 20 * at
        known = f"AUC {area.value:.3f} ({area.low:.3f} to {area.high:.3f})" if np.isfinite(area.value) else "no AUC"
        out.append(f'<rect x="60" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="80" y="{y}">{escape(_short(label))}: {known}</text>')
    return "".join([*out, "</svg>\n"])


def drift_plot(drift: Drift) -> str:
    """Draw the stability index of each feature and of the classes as a bar, beside the limits of 0.1 and 0.25.

    A line across the bar marks what noise and few rows explain of it.
    """
    indices = {**({} if drift.classes is None else {"(classes)": drift.classes}), **drift.features}
    chance = {"(classes)": drift.chance_of_classes, **drift.chance}
    names = sorted(indices, key=lambda name: -indices[name])[:_MAX_VALUES]
    left, width, step = _margin(names), 420, 24
    scale = width / max([2 * RETRAIN, *(indices[name] for name in names)])
    out = _open(left + width + 70, 70 + step * len(names), "Population stability index of current rows")
    for limit in (MOVED, RETRAIN):
        x = left + scale * limit
        out.append(f'<path d="M {x:.1f} 36 V {44 + step * len(names)}" stroke="#888" stroke-dasharray="3 3"/>')
        out.append(f'<text x="{x:.1f}" y="{60 + step * len(names)}" text-anchor="middle">{limit:g}</text>')
    for at, name in enumerate(names):
        y, value = 40 + step * at, indices[name]
        by_chance = min(scale * chance.get(name, 0.0), width)
        colour = _RED if value >= RETRAIN and value > chance.get(name, 0.0) else _BLUE
        out.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(_short(name))}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{max(scale * value, 1):.1f}" height="18" fill="rgb{colour}"/>')
        out.append(f'<path d="M {left + by_chance:.1f} {y - 2} v 22" stroke="#000" stroke-width="2"/>')
        out.append(f'<text x="{left + scale * value + 6:.1f}" y="{y + 14}">{value:.3f}</text>')
    return "".join([*out, "</svg>\n"])


def _open(width: int, height: int, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="12" y="20" font-size="15" font-weight="600">{escape(title)}</text>',
    ]


def _margin(names: list[str] | tuple[str, ...]) -> int:
    return 24 + 8 * max((len(_short(name)) for name in names), default=4)


def _short(text: str, width: int = 34) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _name(weight: Weight) -> str:
    name = _short(f"{weight.feature}: {weight.value}", 28)
    return name if weight.share == 1.0 else f"{name} {weight.share:.0%}" if weight.share >= 0.01 else f"{name} <1%"


def _heat(value: float) -> str:
    strength = 0.6 * min(abs(value) / 2.0, 1.0)
    red, green, blue = (round(255 + strength * (part - 255)) for part in (_BLUE if value > 0 else _RED))
    return f"rgb({red},{green},{blue})"
