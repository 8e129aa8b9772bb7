"""The model card: what the model is, what it was made from, and what it should not be used for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from blindbayes.codebook import Categorical, Text
from blindbayes.io.untrusted import markdown
from blindbayes.statistics.parameters import Parameters


def model_card(parameters: Parameters, facts: Mapping[str, Any], approved: str | None = None) -> str:
    """Return the card in Markdown. `facts` are public facts of the run; `approved` is the hash of the agreed codebook."""
    codebook = parameters.codebook
    priors = ", ".join(
        f"{markdown(label)} {math.exp(value):.3f}" for label, value in zip(codebook.classes, parameters.log_prior, strict=True)
    )
    lines = [
        "# Model card",
        "",
        f"Naive Bayes classifier of {markdown(codebook.target)} ({', '.join(map(markdown, codebook.classes))}), "
        f"{len(codebook.features)} features.",
        "",
        "## How it was made",
        "",
        *(f"- {name}: {markdown(value)}" for name, value in facts.items()),
        f"- codebook: {approved or codebook.sha256} ({codebook.provenance})",
        f"- prior: {priors}",
        "",
        "## Features",
        "",
        "| feature | kind | domain | may be missing |",
        "|---|---|---|---|",
    ]
    for feature in codebook.features:
        name = markdown(feature.name)
        optional = "yes" if feature.optional else "no"
        if isinstance(feature, Categorical):
            lines.append(f"| {name} | categorical | {feature.size} values | {optional} |")
        elif isinstance(feature, Text):
            what = f"{feature.size:,} {'words' if feature.words else 'buckets of hashed words'}"
            limit = f", at most {feature.max_words:,} per document" if feature.max_words else ""
            lines.append(f"| {name} | text, {feature.model} | {what}{limit} | {optional} |")
        else:
            kind = "numeric, binned" if feature.bins else "numeric, Gaussian"
            unit = f" {markdown(feature.unit)}" if feature.unit else ""
            lines.append(f"| {name} | {kind} | {feature.low:g} to {feature.high:g}{unit} | {optional} |")
    lines += [
        "",
        "## Limits",
        "",
        "- The model assumes that features are independent within a class; where they are not, its probabilities are too "
        "extreme. Use the ranking, or calibrate on data of your own.",
        "- A value outside the codebook counts as missing; a number outside its bounds is clamped; a word that is not listed "
        "does not count.",
        "- The model describes association, not causes, and reproduces any bias of its rows.",
    ]
    return "\n".join(lines) + "\n"
