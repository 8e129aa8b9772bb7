"""HTML pages: the leak report with its diagram, and the model's explanation. No script, no font, no link to anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape

import numpy as np

from blindbayes.model.explain import COVERAGE, NoiseInterval, between
from blindbayes.model.parameters import FloatArray, Gaussian, Parameters, Term, Words
from blindbayes.report.cover import OFFICER, Cover
from blindbayes.report.evidence import Weight, information, weights
from blindbayes.report.leakage import OTHERS, TRUST_WORDS, Flow, LeakReport, PartyView
from blindbayes.report.plots import bracket, plain
from blindbayes.report.prose import to_html
from blindbayes.statistics import Statistics
from blindbayes.wire import Trust

COLOURS = {
    Trust.CLEAR.value: "#b3261e",
    Trust.NOISY.value: "#b26a00",
    Trust.SHARE.value: "#5b4b9a",
    Trust.MASKED.value: "#1f5fa8",
    Trust.ENCRYPTED.value: "#1b6e55",
    Trust.KEY.value: "#7a7a7a",
}
_MOST_ROWS = 48  # more steps than this are drawn by kind
_MANY = 8  # more parties than this are drawn as one lifeline
_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1c1c1c;max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;margin:.5rem 0 1.2rem}
td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:left;vertical-align:top}
th{background:#f3f3f3}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:1rem}
.two{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
.card{border:1px solid #ccc;border-radius:.5rem;padding:.6rem 1rem}.card h3{margin:.2rem 0}
.tag{display:inline-block;padding:0 .5rem;border-radius:.6rem;color:#fff;font-size:.85rem}
.alarm{border:2px solid #b3261e;padding:.5rem 1rem}.wide{overflow-x:auto}
.muted{color:#555}.num{text-align:right}svg text{font:13px system-ui,sans-serif}
.fill{height:2.2rem;min-width:28rem}
@media print{body{font-size:10.5pt;margin:0;max-width:none}h2{break-after:avoid}
table,.card,svg{break-inside:avoid}a{color:inherit;text-decoration:none}.pages{break-before:page}}
"""


def _document(title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>{body}</body></html>\n'
    )


_PAGES = {
    "explain.html": "what the model says, value by value",
    "leakage.html": "who learned what in the run",
    "model.json": "the model itself, for software",
    "statement.json": "the statement, for software",
    "run.json": "which run, of which study",
    "study.toml": "what the parties agreed on, with their signatures",
    "checksums": "SHA-256 of every file; `sha256sum -c checksums` or `blindbayes report FOLDER` checks them",
}


def index_page(cover: Cover, files: Mapping[str, bytes]) -> str:
    """The first page of a release folder: cover, statement, card, plots, the officer's fields, and what else is there."""
    facts = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in cover.facts.items())
    links = "".join(
        f'<li><a href="{name}">{name}</a>: {escape(what)}</li>'
        for name, what in _PAGES.items()
        if name in files or name == "checksums"
    )
    parts = [f"<h1>{escape(cover.title)}</h1>", f"<table>{facts}</table>", f"<h2>In this folder</h2><ul>{links}</ul>"]
    parts += [to_html(files[name].decode(), below=1) for name in ("statement.md", "model_card.md") if name in files]
    pictures = sorted(name for name in files if name.startswith("plots/") and name.endswith(".svg"))
    if pictures:
        shown = "".join(f'<div class="wide">{files[name].decode()}</div>' for name in pictures)  # a page loads nothing
        parts.append(f'<div class="pages"><h2>Pictures</h2>{shown}</div>')
    filled = "".join(
        f'<tr><th>{escape(name)}</th><td class="fill">{escape(cover.officer.get(name, ""))}'
        f'<br><span class="muted">{escape(why)}</span></td></tr>'
        for name, why in OFFICER.items()
    )
    parts.append(f'<div class="pages"><h2>For the data protection officer</h2><table>{filled}</table></div>')
    return _document(cover.title, "\n".join(parts))


def _tag(trust: str) -> str:
    return f'<span class="tag" style="background:{COLOURS[trust]}">{escape(trust)}</span>'


def leak_page(report: LeakReport, title: str = "Who learned what") -> str:
    """The leak report: plain words per party, what follows, the diagram, then every kind of message."""
    about = [*report.about.lines, ("protocol", f"{report.protocol}, {report.contributors} contributors")]
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in about)
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<table>{rows}</table>",
        '<p class="muted">Made from the transcript of this run and the protocol\'s specification.</p>',
    ]
    if report.unforeseen:
        labels = escape(", ".join(report.unforeseen))
        parts.append(f'<p class="alarm">Opened, and in no specification: {labels}. Do not use this release; report it.</p>')
    parts.append(f'<div class="{"two" if len(report.views) == 2 else "cards"}">')
    for names, view in _alike(report):
        held = [", ".join(report.about.holds[name]) or "no column" for name in names if name in report.about.holds]
        brought = [f"It brings the columns {'; '.join(held)}."] if held else []
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in (*brought, *view.plain))
        who, verb = _several([report.about.seat(name) for name in names]), "learns" if len(names) == 1 else "learn, each"
        parts.append(f'<div class="card"><h3>What {escape(who)} {verb}</h3><ul>{items}</ul></div>')
    parts.append("</div>")
    if report.follows:
        parts.append("<h2>What follows</h2><ul>")
        parts.extend(f"<li>{escape(line)}</li>" for line in report.follows)
        parts.append("</ul>")
    if report.specs:
        heads = "<tr><th>protocol</th><th>who learns what</th><th>trust</th></tr>"
        parts.append(f"<h2>What the specification says</h2><table>{heads}")
    for spec in report.specs:
        learns, threat = spec.paragraph("Who learns what"), spec.paragraph("Threat model")
        if "collusion" in spec.table:  # worked out above, for this number of parties
            threat = "see What follows"
        parts.append(f"<tr><td>{escape(spec.name)}</td><td>{escape(learns)}</td><td>{escape(threat)}</td></tr>")
    if report.specs:
        parts.append("</table>")
    if report.flows:
        parts.append("<h2>The run, message by message</h2>")
        if report.one_site or any(sender == OTHERS for flow in report.flows for sender, _ in flow.pairs):
            parts.append(
                '<p class="muted">As seen from one site: what it sent and was handed, in the order in which the kinds first '
                "came. The other sites' releases hold their own views.</p>"
            )
        parts.append(f'<div class="wide">{sequence_diagram(report.flows)}</div>')
        rows = "".join(f"<tr><td>{_tag(trust.value)}</td><td>{escape(TRUST_WORDS[trust])}</td></tr>" for trust in Trust)
        parts.append(f"<table><tr><th>colour</th><th>what the receiver holds</th></tr>{rows}</table>")
    parts.append("<h2>Every kind of message, by receiver</h2>")
    for names, view in _alike(report):
        parts.append(
            f"<h3>{escape(_several(names))}{', each' * (len(names) > 1)}</h3>"
            "<table><tr><th>message</th><th>holds</th><th>how many</th><th>what it is</th></tr>"
        )
        for item in view.received:
            parts.append(
                f'<tr><td>{escape(item.kind)}</td><td>{_tag(item.trust)}</td><td class="num">{item.count}</td>'
                f"<td>{escape(item.words)}</td></tr>"
            )
        parts.append("</table>" if view.received else '<tr><td colspan="4">nothing</td></tr></table>')
    return _document(title, "\n".join(parts))


def _alike(report: LeakReport) -> list[tuple[list[str], PartyView]]:
    """Parties that received the same kinds, as often, and opened the same, together; two parties stay apart."""
    found: dict[tuple[object, ...], tuple[list[str], PartyView]] = {}
    for view in report.views:
        key = (
            view.party if len(report.views) == 2 else "",
            view.whole,
            view.opened,
            *sorted((item.kind, item.count) for item in view.received),
        )
        found.setdefault(key, ([], view))[0].append(view.party)
    return list(found.values())


def _several(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) > 5:
        return f"{', '.join(names[:3])} and {len(names) - 3} others"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _condensed(flows: tuple[Flow, ...]) -> tuple[Flow, ...]:
    """A run of very many steps, by kind and direction only, in the order of first appearance."""
    if len(flows) <= _MOST_ROWS:
        return flows
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Flow] = {}
    for flow in flows:
        key = (flow.kind, flow.pairs)
        first = found.get(key)
        if first is not None:
            flow = replace(first, count=first.count + flow.count, bytes=first.bytes + flow.bytes)
        found[key] = flow
    return tuple(found.values())


def sequence_diagram(flows: tuple[Flow, ...]) -> str:
    """An SVG with one lifeline per party (or one for all contributors, if they are many) and one row per kind and depth."""
    flows = _condensed(flows)
    parties = tuple(dict.fromkeys(name for flow in flows for pair in flow.pairs for name in pair))
    busiest = max(parties, key=lambda name: sum(name == to for flow in flows for _, to in flow.pairs))
    lanes = parties if len(parties) <= _MANY else (f"{len(parties) - 1} others", busiest)

    def lane(name: str) -> int:
        return lanes.index(name) if name in lanes else 0

    gap, top, step, margin = (150 if len(lanes) <= 4 else 100), 46, 34, 320
    width, height = gap * len(lanes) + margin, top + step * len(flows) + 24
    centres = [gap // 2 + gap * at for at in range(len(lanes))]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        'aria-label="sequence diagram">'
    ]
    for name, x in zip(lanes, centres, strict=True):
        shown = name if len(name) <= gap // 8 else f"{name[: gap // 8 - 1]}…"
        out.append(f'<text x="{x}" y="20" text-anchor="middle" font-weight="600">{escape(shown)}</text>')
        out.append(f'<line x1="{x}" y1="28" x2="{x}" y2="{height - 10}" stroke="#bbb" stroke-dasharray="3 4"/>')
    for row, flow in enumerate(flows):
        y, colour = top + step * row + 12, COLOURS[flow.trust]
        for start, stop in sorted({(lane(sender), lane(to)) for sender, to in flow.pairs}):
            x1, x2 = centres[start], centres[stop]
            if start == stop:
                out.append(f'<circle cx="{x1}" cy="{y}" r="6" fill="none" stroke="{colour}" stroke-width="2"/>')
                continue
            head = 8 if x2 > x1 else -8
            out.append(f'<circle cx="{x1}" cy="{y}" r="3.5" fill="{colour}"/>')
            out.append(f'<line x1="{x1}" y1="{y}" x2="{x2 - head}" y2="{y}" stroke="{colour}" stroke-width="2"/>')
            out.append(f'<path d="M {x2} {y} l {-head} -5 l 0 10 z" fill="{colour}"/>')
        size = f", {flow.bytes:,} bytes" if flow.bytes else ""
        label = f"{flow.kind} ({flow.count}{size})"
        out.append(f'<text x="{gap * len(lanes) + 6}" y="{y + 4}" fill="{colour}">{escape(label)}</text>')
    out.append("</svg>")
    return "".join(out)


def model_page(
    parameters: Parameters,
    *,
    title: str = "What the model says",
    shown: int = 12,
    noise_interval: NoiseInterval | None = None,
    statistics: Statistics | None = None,
    approved: str | None = None,
) -> str:
    """Per feature, how far each value speaks for or against each class: ln P(value | class) less the mean over classes.

    Features that tell most come first. Values that nobody has, as far as `statistics` tell, are counted and not shown.
    `approved` is the hash of the codebook that people agreed on, if the release was counted in other cells.
    """
    codebook = parameters.codebook
    labels = ", ".join(codebook.classes)
    about = f"What is predicted: {codebook.target} ({labels}). Codebook {approved or codebook.sha256}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="muted">{escape(about)}</p>']
    parts.append(
        "<p>Each cell is the weight of evidence: how much that value raises (blue) or lowers (red) the log-score of the "
        "class against the mean of all classes. A Gaussian feature is shown at some values, after its mean and deviation.</p>"
    )
    if noise_interval is not None:
        parts.append(
            f"<p>The counts carry differential privacy noise. The brackets say where the number lies without it: in "
            f"{COVERAGE:.0%} of all releases the same table, counted exactly, gives a number between the two. A grey cell may "
            "be 0. A number outside its brackets was smoothed: few rows stand behind it. The brackets are worked out from the "
            "release and the law of its noise; that other people might have been in the table is no part of them.</p>"
        )
    heads = "".join(f"<th>{escape(label)}</th>" for label in codebook.classes)
    ends = None if noise_interval is None else between(np.exp(noise_interval.log_prior))
    priors = "".join(
        f'<td class="num">{np.exp(value):.3f}{_note(ends, at)}</td>' for at, value in enumerate(parameters.log_prior)
    )
    parts.append(f"<h2>Prior</h2><table><tr>{heads}</tr><tr>{priors}</tr></table>")
    for name, bits in information(parameters).items():
        term = parameters.terms[name]
        parts.append(
            f'<h2>{escape(name)}</h2><p class="muted">tells {bits:.3f} bits about {escape(codebook.target)} by itself</p>'
        )
        if isinstance(term, Gaussian):
            parts.append(_moments(codebook.classes, term, None if noise_interval is None else noise_interval.terms[name]))
        every = weights(parameters, name, noise_interval, statistics)
        found = [weight for weight in every if weight.seen]
        if not found:
            parts.append(f'<p class="muted">None of its {len(every)} values stands out of the noise.</p>')
            continue
        words = isinstance(term, Words)
        most = len(found) if words else shown  # of a text the words that speak most for each class, class by class
        strongest = sorted(
            sorted(found, key=lambda weight: weight.strength, reverse=True)[:most],
            key=lambda weight: (int(np.argmax(weight.values)) if words else 0, weight.at),
        )
        rows = "".join(
            f'<tr><td>{escape(weight.value)}</td><td class="num">{_rows(weight)}</td>'
            + "".join(_heat(float(value), weight.interval(at)) for at, value in enumerate(weight.values))
            + "</tr>"
            for weight in strongest
        )
        notes = [f"the {most} that say most, of {len(found)} values"] if len(found) > most else []
        if isinstance(term, Words):
            notes.append(f"the words that speak most for each class, of {term.log_prob.shape[1]:,}")
        notes += (
            [f"{len(every) - len(found)} of its values are not shown: (almost) nobody has them"]
            if len(found) < len(every)
            else []
        )
        more = f'<p class="muted">{"; ".join(notes)}</p>' if notes else ""
        what = "<th>word</th><th>uses</th>" if words else "<th>value</th><th>rows</th>"
        parts.append(f"<table><tr>{what}{heads}</tr>{rows}</table>{more}")
    return _document(title, "\n".join(parts))


def _rows(weight: Weight) -> str:
    """How many rows have the value, or where their number lies; else their share."""
    return weight.rows_in_words or ("" if weight.share == 1.0 else f"{weight.share:.1%}")


def _moments(classes: tuple[str, ...], term: Gaussian, drawn: Term | None) -> str:
    means = deviations = None
    if isinstance(drawn, Gaussian):
        means, deviations = between(drawn.mean), between(np.sqrt(drawn.variance))
    rows = "".join(
        f'<tr><td>{escape(label)}</td><td class="num">{plain(float(mean))}{_note(means, at)}</td>'
        f'<td class="num">{plain(float(np.sqrt(variance)))}{_note(deviations, at)}</td></tr>'
        for at, (label, mean, variance) in enumerate(zip(classes, term.mean, term.variance, strict=True))
    )
    return f"<table><tr><th>class</th><th>mean</th><th>deviation</th></tr>{rows}</table>"


def _note(ends: tuple[FloatArray, FloatArray] | None, at: int) -> str:
    if ends is None:
        return ""
    return f' <span class="muted">[{plain(float(ends[0][at]))}, {plain(float(ends[1][at]))}]</span>'


def _heat(weight: float, ends: tuple[float, float] | None) -> str:
    strength = min(abs(weight) / 2.0, 1.0)
    colour = f"rgba(31,95,168,{0.55 * strength:.2f})" if weight > 0 else f"rgba(179,38,30,{0.55 * strength:.2f})"
    if ends is not None and ends[0] <= 0 <= ends[1]:
        colour = "#eee"
    note = "" if ends is None else f' <span class="muted">{escape(bracket(*ends))}</span>'
    return f'<td class="num" style="background:{colour}">{weight:+.2f}{note}</td>'
