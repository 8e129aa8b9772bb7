"""HTML pages: the leak report with its diagram, and the model's explanation. No script, no font, no link to anywhere."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np

from blindbayes.model.parameters import Gaussian, Histogram, Parameters
from blindbayes.report.leakage import TRUST_WORDS, Flow, LeakReport
from blindbayes.wire import Trust

COLOURS = {
    Trust.CLEAR.value: "#b3261e",
    Trust.NOISY.value: "#b26a00",
    Trust.SHARE.value: "#5b4b9a",
    Trust.MASKED.value: "#1f5fa8",
    Trust.ENCRYPTED.value: "#1b6e55",
    Trust.KEY.value: "#7a7a7a",
}
_MANY = 8  # more parties than this are drawn as one lifeline
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1c1c1c;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;margin:.5rem 0 1.2rem}
td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}
th{background:#f3f3f3}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem}
.card{border:1px solid #ccc;border-radius:.5rem;padding:.6rem 1rem}.card h3{margin:.2rem 0}
.tag{display:inline-block;padding:0 .5rem;border-radius:.6rem;color:#fff;font-size:.85rem}
.muted{color:#555}.num{text-align:right}svg text{font:13px system-ui,sans-serif}
"""


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'
    )


def _tag(trust: str) -> str:
    return f'<span class="tag" style="background:{COLOURS[trust]}">{escape(trust)}</span>'


def leak_page(report: LeakReport, title: str = "Who learned what") -> str:
    """The leak report: plain words per party, the diagram, then every kind of message."""
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="muted">Protocol {escape(report.protocol)}, {report.contributors} contributors. '
        "Made from the transcript of this run.</p>",
        '<div class="cards">',
    ]
    for view in report.views:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in view.plain)
        parts.append(f'<div class="card"><h3>What {escape(view.party)} learns</h3><ul>{items}</ul></div>')
    parts.append("</div>")
    if report.assumptions:
        parts.append("<h2>Under which assumptions</h2><ul>")
        parts.extend(f"<li>{escape(line)}</li>" for line in report.assumptions)
        parts.append("</ul>")
    if report.flows:
        parts.append("<h2>The run, message by message</h2>")
        parts.append(sequence_diagram(report.flows))
        legend = " ".join(f"{_tag(trust.value)} {escape(TRUST_WORDS[trust])}<br>" for trust in Trust)
        parts.append(f"<p>{legend}</p>")
    parts.append("<h2>Every kind of message, by receiver</h2>")
    for view in report.views:
        parts.append(
            f"<h3>{escape(view.party)}</h3><table><tr><th>message</th><th>holds</th><th>how many</th><th>what it is</th></tr>"
        )
        for item in view.received:
            parts.append(
                f'<tr><td>{escape(item.kind)}</td><td>{_tag(item.trust)}</td><td class="num">{item.count}</td>'
                f"<td>{escape(item.words)}</td></tr>"
            )
        parts.append("</table>")
    return _document(title, "\n".join(parts))


def sequence_diagram(flows: tuple[Flow, ...]) -> str:
    """An SVG with one lifeline per party (or one for all contributors, if they are many) and one row per kind and depth."""
    parties = tuple(dict.fromkeys(name for flow in flows for name in (*flow.senders, *flow.receivers)))
    busiest = max(parties, key=lambda name: sum(name in flow.receivers for flow in flows))
    lanes = parties if len(parties) <= _MANY else (f"{len(parties) - 1} others", busiest)

    def lane(name: str) -> int:
        return lanes.index(name) if name in lanes else 0

    gap, top, step = max(150, 760 // max(1, len(lanes))), 46, 40
    width, height = gap * len(lanes) + 300, top + step * len(flows) + 24
    centres = [gap // 2 + gap * at for at in range(len(lanes))]
    out = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="sequence diagram">']
    for name, x in zip(lanes, centres, strict=True):
        out.append(f'<text x="{x}" y="20" text-anchor="middle" font-weight="600">{escape(name)}</text>')
        out.append(f'<line x1="{x}" y1="28" x2="{x}" y2="{height - 10}" stroke="#bbb" stroke-dasharray="3 4"/>')
    for row, flow in enumerate(flows):
        y, colour = top + step * row + 12, COLOURS[flow.trust]
        pairs = sorted({(lane(a), lane(b)) for a in flow.senders for b in flow.receivers if a != b})
        for start, stop in pairs:
            x1, x2 = centres[start], centres[stop]
            if start == stop:
                out.append(f'<circle cx="{x1}" cy="{y}" r="4" fill="{colour}"/>')
                continue
            head = 7 if x2 > x1 else -7
            out.append(f'<circle cx="{x1}" cy="{y}" r="3.5" fill="{colour}"/>')
            out.append(f'<line x1="{x1}" y1="{y}" x2="{x2 - head}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
            out.append(f'<path d="M {x2} {y} l {-head} -4 l 0 8 z" fill="{colour}"/>')
        label = f"{flow.kind} ({flow.count}, {flow.bytes:,} bytes)"
        out.append(f'<text x="{gap * len(lanes) + 6}" y="{y + 4}" fill="{colour}">{escape(label)}</text>')
    out.append("</svg>")
    return "".join(out)


def model_page(parameters: Parameters, *, title: str = "What the model says", shown: int = 12) -> str:
    """Per feature, how far each value speaks for or against each class: ln P(value | class) less the mean over classes."""
    codebook = parameters.codebook
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="muted">Codebook {codebook.sha256}</p>']
    parts.append(
        "<p>Each cell is the weight of evidence: how much that value raises (blue) or lowers (red) the log-score of the "
        "class against the mean of all classes. A Gaussian feature is shown by its mean and deviation per class.</p>"
    )
    heads = "".join(f"<th>{escape(label)}</th>" for label in codebook.classes)
    priors = "".join(f'<td class="num">{np.exp(value):.3f}</td>' for value in parameters.log_prior)
    parts.append(f"<h2>Prior</h2><table><tr>{heads}</tr><tr>{priors}</tr></table>")
    for feature in codebook.features:
        term = parameters.terms[feature.name]
        parts.append(f"<h2>{escape(feature.name)}</h2>")
        if isinstance(term, Gaussian):
            rows = "".join(
                f'<tr><td>{escape(label)}</td><td class="num">{mean:.4g}</td><td class="num">{np.sqrt(variance):.4g}</td></tr>'
                for label, mean, variance in zip(codebook.classes, term.mean, term.variance, strict=True)
            )
            parts.append(f"<table><tr><th>class</th><th>mean</th><th>deviation</th></tr>{rows}</table>")
        elif isinstance(term, Histogram):
            names = getattr(feature, "values", None) or _cells(feature, term.log_prob.shape[1])
            weights = term.log_prob - term.log_prob.mean(axis=0, keepdims=True)
            order = np.argsort(-np.abs(weights).max(axis=0), kind="stable")[:shown]
            order = np.sort(order)
            rows = "".join(
                f"<tr><td>{escape(str(names[at]))}</td>" + "".join(_heat(float(weight)) for weight in weights[:, at]) + "</tr>"
                for at in order
            )
            more = "" if len(names) <= shown else f'<p class="muted">the {shown} strongest of {len(names)} values</p>'
            parts.append(f"<table><tr><th>value</th>{heads}</tr>{rows}</table>{more}")
    return _document(title, "\n".join(parts))


def _cells(feature: object, count: int) -> list[str]:
    low, high = float(getattr(feature, "low", 0.0)), float(getattr(feature, "high", 1.0))
    edges = np.linspace(low, high, count + 1)
    return [f"{start:.4g} to {stop:.4g}" for start, stop in pairwise(edges)]


def _heat(weight: float) -> str:
    strength = min(abs(weight) / 2.0, 1.0)
    colour = f"rgba(31,95,168,{0.55 * strength:.2f})" if weight > 0 else f"rgba(179,38,30,{0.55 * strength:.2f})"
    return f'<td class="num" style="background:{colour}">{weight:+.2f}</td>'
