"""HTML pages of a release: cover, leak report with its sequence diagram, explanation of the model. They load nothing.

Only the explanation has a script, for its what-if form; the page's content security policy allows it by hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup

from blindbayes.protocols import registry
from blindbayes.report.cover_sheet import OFFICER, Cover
from blindbayes.report.leakage import OTHERS, TRUST_WORDS, Flow, LeakReport, PartyView
from blindbayes.report.plots import bracket, noisy_shares, plain
from blindbayes.report.prose import to_html
from blindbayes.report.theme import render
from blindbayes.report.weight_of_evidence import information, weights
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import COVERAGE, NoiseInterval, between
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, Term, WordTable
from blindbayes.wire import Trust

_MAX_ROWS = 48  # a longer run is drawn by kind of message
_MAX_VALUES = 12  # of a feature
_MANY = 8  # more parties than this share one lifeline
_PAGES = {
    "explain.html": "explanation of the model, value by value",
    "leakage.html": "who learned what in the run",
    "model.json": "the model itself, for software",
    "evaluation.md": "results of the model on held-out rows",
    "evaluation.json": "the results, for software",
    "statement.json": "the statement, for software",
    "run.json": "which run, of which study",
    "receipts.json": "receipts that the parties of the run signed",
    "study.toml": "what the parties agreed on, with their signatures",
    "checksums": "SHA-256 of every file, checked by sha256sum -c checksums and by blindbayes report FOLDER",
}


def index_page(cover: Cover, files: Mapping[str, bytes]) -> str:
    """Return the first page of a release folder: cover, statement, card, plots, the officer's fields, list of files."""
    pictures = sorted(name for name in files if name.startswith("plots/") and name.endswith(".svg"))
    documents = [name for name in ("statement.md", "model_card.md") if name in files]
    return render(
        "index.html",
        title=cover.title,
        cover=cover,
        officer=OFFICER,
        pages=[(name, what) for name, what in _PAGES.items() if name in files or name == "checksums"],
        documents=[Markup(to_html(files[name].decode(), below=1)) for name in documents],  # noqa: S704 - it escapes every text
        pictures=[Markup(files[name].decode()) for name in pictures],  # noqa: S704 - drawn here, and a page loads nothing
    )


def leak_page(report: LeakReport) -> str:
    parties = []
    for names, view in _alike(report):
        columns = [", ".join(report.about.holds[name]) or "no column" for name in names if name in report.about.holds]
        brought = [f"It holds the columns {'; '.join(columns)}."] if columns else []
        parties.append(
            {
                "who": _several([report.about.role(name) for name in names]),
                "verb": "learns" if len(names) == 1 else "learn, each",
                "lines": [*brought, *view.plain],
                "names": f"{_several(names)}{', each' * (len(names) > 1)}",
                "received": view.received,
            }
        )
    specs = []
    for spec in report.specs:
        learns, threat = spec.paragraph("Who learns what"), spec.paragraph("Threat model")
        # The page states it above for this number of parties.
        specs.append((spec.name, learns, "see What follows" if spec.name in registry.known() else threat))
    return render(
        "leakage.html",
        title="Who learned what",
        report=report,
        about=[*report.about.lines, ("protocol", f"{report.protocol}, {report.contributors} contributors")],
        parties=parties,
        specs=specs,
        one_site=report.one_site or any(sender == OTHERS for flow in report.flows for sender, _ in flow.pairs),
        diagram=Markup(sequence_diagram(report.flows)) if report.flows else "",  # noqa: S704 - it escapes every text
        trusts=[(trust.value, TRUST_WORDS[trust]) for trust in Trust],
    )


def _alike(report: LeakReport) -> list[tuple[list[str], PartyView]]:
    """Group the parties that received and opened the same; two parties stay apart."""
    groups: dict[tuple[object, ...], tuple[list[str], PartyView]] = {}
    for view in report.views:
        key = (
            view.party if len(report.views) == 2 else "",
            view.whole,
            view.opened,
            *sorted((item.kind, item.count) for item in view.received),
        )
        groups.setdefault(key, ([], view))[0].append(view.party)
    return list(groups.values())


def _several(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) > 5:
        return f"{', '.join(names[:3])} and {len(names) - 3} others"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _condensed(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """Return the flows of a long run by kind and direction only, in order of first appearance."""
    if len(flows) <= _MAX_ROWS:
        return flows
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], Flow] = {}
    for flow in flows:
        key = (flow.kind, flow.pairs)
        first = merged.get(key)
        if first is not None:
            flow = replace(first, count=first.count + flow.count, bytes=first.bytes + flow.bytes)
        merged[key] = flow
    return tuple(merged.values())


def sequence_diagram(flows: tuple[Flow, ...]) -> str:
    """Return an SVG with one lifeline per party (or one for all but the busiest of many) and one row per kind and depth."""
    flows = _condensed(flows)
    parties = tuple(dict.fromkeys(name for flow in flows for pair in flow.pairs for name in pair))
    busiest = max(parties, key=lambda name: sum(name == to for flow in flows for _, to in flow.pairs))
    lifelines = parties if len(parties) <= _MANY else (f"{len(parties) - 1} others", busiest)

    def lifeline(name: str) -> int:
        return lifelines.index(name) if name in lifelines else 0

    gap, top, step, margin = (150 if len(lifelines) <= 4 else 100), 46, 34, 320
    width, height = gap * len(lifelines) + margin, top + step * len(flows) + 24
    centres = [gap // 2 + gap * at for at in range(len(lifelines))]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'aria-label="sequence diagram">'
    ]
    for name, x in zip(lifelines, centres, strict=True):
        shown = name if len(name) <= gap // 8 else f"{name[: gap // 8 - 1]}…"
        out.append(f'<text x="{x}" y="20" text-anchor="middle" font-weight="600">{escape(shown)}</text>')
        out.append(f'<line x1="{x}" y1="28" x2="{x}" y2="{height - 10}" class="lifeline" stroke-dasharray="3 4"/>')
    for row, flow in enumerate(flows):
        y = top + step * row + 12
        out.append(f'<g class="t-{escape(flow.trust)}">')
        for start, stop in sorted({(lifeline(sender), lifeline(to)) for sender, to in flow.pairs}):
            x1, x2 = centres[start], centres[stop]
            if start == stop:
                out.append(f'<circle cx="{x1}" cy="{y}" r="6" fill="none" stroke="currentColor" stroke-width="2"/>')
                continue
            head = 8 if x2 > x1 else -8
            out.append(f'<circle cx="{x1}" cy="{y}" r="3.5" fill="currentColor"/>')
            out.append(f'<line x1="{x1}" y1="{y}" x2="{x2 - head}" y2="{y}" stroke="currentColor" stroke-width="2"/>')
            out.append(f'<path d="M {x2} {y} l {-head} -5 l 0 10 z" fill="currentColor"/>')
        size = f", {flow.bytes:,} bytes" if flow.bytes else ""
        label = f"{flow.kind} ({flow.count}{size})"
        out.append(f'<text x="{gap * len(lifelines) + 6}" y="{y + 4}" class="label">{escape(label)}</text></g>')
    out.append("</svg>")
    return "".join(out)


def model_page(
    parameters: Parameters,
    *,
    title: str = "Explanation of the model",
    noise_interval: NoiseInterval | None = None,
    statistics: Statistics | None = None,
    approved: str | None = None,
) -> str:
    """Return the page with the weight of evidence of every value: ln P(value | class) minus the mean over classes.

    Features with the most information come first. Values without rows by `statistics` are counted and not shown. `approved` is
    the hash of the agreed codebook, if the release was counted in other cells.
    """
    codebook = parameters.codebook
    about = f"The model predicts {codebook.target} ({', '.join(codebook.classes)}). Codebook {approved or codebook.sha256}"
    ends = None if noise_interval is None else between(np.exp(noise_interval.log_prior))
    features = [_feature(parameters, name, bits, noise_interval, statistics) for name, bits in information(parameters).items()]
    shares = noisy_shares(noise_interval, statistics)
    script = render("whatif.js")
    return render(
        "explain.html",
        title=title,
        about=about,
        target=codebook.target,
        classes=codebook.classes,
        coverage="" if noise_interval is None else f"{COVERAGE:.0%}",
        priors=[
            {"text": f"{np.exp(value):.3f}", "note": _note(ends, index) if shares is None else ""}
            for index, value in enumerate(parameters.log_prior)
        ],
        shares=[]
        if shares is None
        else [{"text": f"{share:.3f}", "note": _share_note(ends, index)} for index, share in enumerate(shares)],
        features=features,
        model=_what_if(parameters, noise_interval, statistics),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _share_note(ends: tuple[FloatArray, FloatArray] | None, at: int) -> str:
    """Return the interval of a class share, or nothing where priors were declared: noise is no part of those."""
    return "" if ends is None or np.allclose(*ends) else _note(ends, at)


def _feature(
    parameters: Parameters, name: str, bits: float, noise_interval: NoiseInterval | None, statistics: Statistics | None
) -> dict[str, Any]:
    """Return one feature of the page: its moments, its strongest values, and notes on what is not shown."""
    term, every = parameters.terms[name], weights(parameters, name, noise_interval, statistics)
    shown = [weight for weight in every if weight.seen]
    feature: dict[str, Any] = {"name": name, "bits": f"{bits:.3f}", "moments": [], "rows": [], "heads": ("value", "rows")}
    if isinstance(term, Gaussian):
        exact = None if noise_interval is None else noise_interval.terms[name]
        feature["moments"] = _moments(parameters.codebook.classes, term, exact)
    if not shown:
        return feature | {
            "notes": [f"All {len(every)} values are hidden by the noise." if len(every) > 1 else "Hidden by the noise."]
        }
    words = isinstance(term, WordTable)
    limit = len(shown) if words else _MAX_VALUES  # a text shows the words with the most evidence for each class
    strongest = sorted(shown, key=lambda weight: weight.strength, reverse=True)[:limit]
    for weight in sorted(strongest, key=lambda weight: (int(np.argmax(weight.values)) if words else 0, weight.at)):
        cells = [_cell(float(value), weight.interval(index)) for index, value in enumerate(weight.values)]
        rows = weight.rows_in_words or ("" if weight.share == 1.0 else f"{weight.share:.1%}")
        feature["rows"].append({"value": weight.value, "rows": rows, "cells": cells})
    notes = [f"The {limit} values with the most evidence, of {len(shown)}."] if len(shown) > limit else []
    if noise_interval is not None and isinstance(term, Histogram) and noise_interval.terms[name] is None:
        notes.append(
            "The counts of this feature were not released. A rule was selected because it classifies most rows correctly."
        )
    if isinstance(term, WordTable):
        feature["heads"] = ("word", "uses")
        notes.append(f"The words with the most evidence for each class, of {term.log_prob.shape[1]:,}.")
    if hidden := len(every) - len(shown):
        reason = "no row has them" if noise_interval is None else "hidden by the noise"
        notes.append(f"Values not shown: {hidden} ({reason}).")
    return feature | {"notes": [" ".join(notes)] if notes else []}


def _cell(value: float, ends: tuple[float, float] | None) -> dict[str, Any]:
    return {"text": f"{value:+.2f}", "value": value, "ends": ends, "note": "" if ends is None else bracket(*ends)}


def _moments(classes: tuple[str, ...], term: Gaussian, exact: Term | None) -> list[tuple[str, dict[str, str], dict[str, str]]]:
    means = deviations = None
    if isinstance(exact, Gaussian):
        means, deviations = between(exact.mean), between(np.sqrt(exact.variance))
    return [
        (
            label,
            {"text": plain(float(mean)), "note": _note(means, at)},
            {"text": plain(float(np.sqrt(variance))), "note": _note(deviations, at)},
        )
        for at, (label, mean, variance) in enumerate(zip(classes, term.mean, term.variance, strict=True))
    ]


def _note(ends: tuple[FloatArray, FloatArray] | None, at: int) -> str:
    return "" if ends is None else f"[{plain(float(ends[0][at]))}, {plain(float(ends[1][at]))}]"


def _what_if(parameters: Parameters, noise_interval: NoiseInterval | None, statistics: Statistics | None) -> str:
    """Return the released model as JSON for the what-if form: values that occur, without texts."""
    features: list[dict[str, Any]] = []
    for name, term in parameters.terms.items():
        if isinstance(term, Gaussian) and np.isfinite(term.variance).all():
            numeric = parameters.codebook.numeric(name)  # the page rounds and clamps a number as prediction does
            grid = {"low": numeric.grid_low, "high": numeric.grid_high, "scale": numeric.scale}
            features.append({"name": name, "mean": term.mean.tolist(), "variance": term.variance.tolist(), **grid})
        elif isinstance(term, Histogram):
            shown = [weight for weight in weights(parameters, name, noise_interval, statistics) if weight.seen]
            values = [
                [weight.value, np.round(weight.values, 6).tolist()] for weight in shown if np.isfinite(weight.values).all()
            ]
            if values:
                features.append({"name": name, "values": values})
    if not features:
        return ""
    prior = [float(value) if np.isfinite(value) else None for value in parameters.log_prior]
    return json.dumps({"classes": list(parameters.codebook.classes), "prior": prior, "features": features}, allow_nan=False)
