"""The page of Vaidya, Kantarcioglu and Clifton 2008: its four tables with what was measured beside."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from blindbayes_papers import REFERENCES
from blindbayes_papers.pages import document, measured_with, table
from blindbayes_papers.vaidya2008.measure import Figure
from blindbayes_papers.vaidya2008.scalar_product.logarithm import key_bits as least_key_bits

if TYPE_CHECKING:
    from blindbayes_papers.vaidya2008.experiment import Row

TITLES = {
    1: ("Table 1: one probability (Protocol 3)", ("tuples", "degree"), "opened_ratio, per probability of a run of 102"),
    2: ("Table 2: a nominal attribute (Protocol 4)", ("tuples", "classes"), "class_sums and shared_model, set-up included"),
    3: ("Table 3: a numeric attribute (Protocol 5)", ("tuples", "classes"), "class_sums and shared_model, set-up included"),
    4: (
        "Table 4: classifying one instance",
        ("degree", "nominal and numeric attributes, each", "classes"),
        "shared_argmax, transfers ready",
    ),
}


def page(made: dict[int, list[Row]]) -> str:
    """The whole page."""
    parts = [
        "<h1>Vaidya, Kantarcioglu and Clifton 2008: its tables, measured</h1>",
        f"<p>{html.escape(REFERENCES['vaidya2008'])}</p>",
        "<p>The paper <em>estimates</em> its tables by counting operations (sections 4.5.2 and 5.5.2; Pentium Dual 830, "
        "3 GHz). Here its protocols were run, as <code>scalar_product</code> has them, and ours beside them, on one core. "
        "All figures are CPU seconds of all parties together; Paillier keys and their tables are ready. Keys "
        "of 512 and 1,024 bits are toys today; 3,072 "
        "bits stand for 128-bit security, at which ours always runs. Figures in <i>italics</i> were not run: they are "
        "extrapolated from measured growth (the note says from which sizes), or rest on such a figure.</p>",
        f"<p>Measured with {measured_with()}.</p>",
    ]
    for number, rows in made.items():
        parts.append(_table(number, rows))
    parts.append(_claims(made))
    parts.append(_remarks(made))
    return document("Vaidya et al. 2008", "\n".join(parts))


def _table(number: int, rows: Sequence[Row]) -> str:
    title, asked, ours = TITLES[number]
    head = ["key bits", *asked, "paper's estimate, s", "its protocol run, s"]
    if number == 2:
        head.append("multiplications alone, s")
    head += [f"ours, s ({ours})", "ratio", "note"]
    lines = []
    for row in rows:
        cells = [f"{row.key_bits:,}", *(f"{value:,}" for value in row.asked)]
        cells.append("" if row.paper is None else f"{row.paper:,.4g}")
        cells.append(_figure(row.theirs))
        if row.only_multiplications is not None:
            cells.append(f"<i>{_number(row.only_multiplications)}</i>")
        ratio = f"{row.ratio:,.0f}"
        cells += [_figure(row.ours), ratio if row.theirs.measured and row.ours.measured else f"<i>{ratio}</i>"]
        body = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f"<tr>{body}<td class=note>{html.escape(_note(row))}</td></tr>")
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    return f"<h2>{html.escape(title)}</h2><table class=numbers><tr>{heads}</tr>{''.join(lines)}</table>"


def _note(row: Row) -> str:
    notes = []
    if row.run_bits != row.key_bits:
        notes.append(f"the polynomial does not fit {row.key_bits} bits; run at {row.run_bits}")
    if not row.theirs.measured:
        notes.append(f"theirs {row.theirs.how}")
    if not row.ours.measured:
        notes.append(f"ours {row.ours.how}")
    return "; ".join(notes)


def _figure(figure: Figure) -> str:
    return _number(figure.seconds) if figure.measured else f"<i>{_number(figure.seconds)}</i>"


def _number(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def _claims(made: dict[int, list[Row]]) -> str:
    """Return what the paper claims in words, one a row."""

    def more(number: int, degree: int, key_bits: int) -> float | None:
        """Return how many per cent degree 20 costs above degree 10, the median over otherwise equal rows."""
        times = {row.asked: row.theirs.seconds for row in made[number] if row.key_bits == key_bits}
        ratios = []
        for asked, seconds in times.items():
            other = tuple(20 if at == degree else value for at, value in enumerate(asked))
            if asked[degree] == 10 and other in times:
                ratios.append(100 * (times[other] / seconds - 1))
        return sorted(ratios)[len(ratios) // 2] if ratios else None

    def growth(number: int, degree: int) -> str:
        bits = sorted({row.key_bits for row in made[number]})
        ratios = [(each, more(number, degree, each)) for each in bits]
        return ", ".join(f"{value:.0f}% at {each:,} bits" for each, value in ratios if value is not None)

    rows = [
        (
            "accuracy is cheap: relative error 1.8e-4 to 9.1e-8 (degree 10 to 20) for one probability (4.5.2)",
            "5% more time on average",
            growth(1, 1),
            "the estimate counts u exponentiations for each of two polynomials of degree u (4.5.2); their coefficients also "
            "grow, and with them the plaintexts and keys (see the remarks)",
        ),
        (
            "the same for a classification (5.2)",
            "about 10%",
            growth(4, 0),
            "for the same reason; transfers and circuits, which do not depend on the degree, dilute it",
        ),
        (
            "collusion (4.5.1, A.1)",
            "sums are private even if up to k - 1 of k parties collude (4.5.1); A.1 asks for an honest majority",
            "ring_sum: the exact law of what each coalition learns is in its specification and is tested. opened_ratio: two "
            "parties that the study names must not collude, whatever the number of the others. private_ratio: any number of "
            "parties compute shares of ln, safe while one of them is honest, which 4.5.1 leaves to future work",
            "the ring alone falls to two neighbours; only shares on several edge-disjoint rings tolerate more. The two "
            "sentences contradict each other",
        ),
        (
            "evaluation by e to the power of shares (5.2, Equations 8 and 9)",
            "party 1 computes e^share_1 and party 2 e^-share_2, of shares of ln (x - mu)^2 - ln sigma^2; the equations print "
            "(x - mu^2) for (x - mu)^2",
            "not built: opened_ratio divides in a circuit, and shared_argmax compares sums of logarithms in shares",
            "shares are uniform modulo a field, so their sum is the logarithm or the logarithm plus the field's size, and e to "
            "the power of a uniform number of 512 bits cannot be written down. The sign of share 2 is wrong too: the product "
            "is e^(share_1 - share_2). scalar_product adds the shares before it exponentiates",
        ),
        (
            "probabilities are opened, counts stay hidden (Protocol 3)",
            "nothing else is learned",
            "private_ratio: in shares that classify; opened_ratio: coarse, or with noise, in full only if asked for",
            "four probabilities of one class at 16 bits leave two candidates for the size of the class, and so for every count",
        ),
        (
            "ln of a count (Protocol 3)",
            "ln(0) is left open",
            "Laplace smoothing by alpha in every protocol",
            "an empty cell has no logarithm",
        ),
        (
            "variance (Algorithm 2, Algorithm 5 line 40)",
            "Algorithm 2 divides by n - 1, Algorithm 5 by n",
            "n, as scikit-learn has it; n - 1 on request in scalar_product",
            "so that joint and pooled models compare bit for bit; the paper contradicts itself",
        ),
        (
            "what is counted (Equation 5)",
            "P(C = c | A = a) = n_ac / n_a",
            "P(A = a | C = c) = n_ac / n_c, as Algorithm 1 computes it",
            "Naive Bayes multiplies the probabilities of values given the class; Equation 5 is the other conditional",
        ),
    ]
    return "<h2>The paper's claims</h2>" + table(["claim", "the paper", "here", "why"], rows)


def _remarks(made: dict[int, list[Row]]) -> str:
    strongest = {number: [row for row in rows if row.paper is None] for number, rows in made.items()}
    spans = [
        f"Table {number}: {min(row.ratio for row in rows):,.0f} to {max(row.ratio for row in rows):,.0f} times"
        for number, rows in strongest.items()
        if rows
    ]
    remarks = [
        f"A Taylor polynomial of degree 20 needs plaintexts of {least_key_bits(20)} bits (degree 10: {least_key_bits(10)}): "
        "the paper's rows with 512 bits and degree 20 (Tables 1 and 4) cannot be run as they stand.",
        "Table 2 of the paper counts the multiplications of the attribute holder alone (5.5.2, where Protocol 4 is once called "
        "Protocol 5); the class holder's encryptions of n factors per class, which its protocol needs, cost far more. Both are "
        "shown; the multiplications alone are the measured time of one times their number.",
        "Table 4 takes ceil(log |F|) = 6 for a field of 10^6 elements (5.5.2), a logarithm to the base 10; one transfer per "
        "bit needs base 2, as Table 1 has it (4.5.2). ln here works on 66 and 87 bits, since Const is 2^64 as the paper "
        "recommends (5.1.1). Its k/2 seconds for the last circuit are now part of a second.",
        "One row of Table 3 prints 10,000 tuples for 1,000; the row stands here corrected. Two rows of Table 4 (512 bits, "
        "degree 20, ten attributes of each kind) print 3.955 and 4.455 where the paper's formula gives 4.105 and 4.605.",
        "Oblivious transfers run on ristretto255 at every key size.",
        "Announcing probabilities (Protocol 3 as printed) opens the counts: four probabilities of one class at 16 bits leave "
        "two candidates for its size. private_ratio keeps them in shares; opened_ratio opens them coarse or noisy.",
    ]
    if spans:
        remarks.insert(
            0, "At 128-bit security the protocols that replace them need less CPU time by: " + "; ".join(spans) + "."
        )
    return "<h2>Remarks</h2><ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in remarks) + "</ul>"
