"""The model card: what the model is, what it was made from, and what it should not be used for.

The card begins with a head in YAML, by which model hubs list it: the documented fields of Hugging Face's model cards. Every
scalar is written as JSON, which YAML contains, so that no label or title changes the structure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from blindbayes.codebook import Categorical, Text
from blindbayes.codebook.features import number_name
from blindbayes.io.untrusted import markdown, shown
from blindbayes.statistics.evaluation import Binned, Evaluation
from blindbayes.statistics.parameters import FloatArray, Parameters


def model_card(
    parameters: Parameters,
    facts: Mapping[str, Any],
    approved: str | None = None,
    evaluation: Evaluation | None = None,
    shares: FloatArray | None = None,
) -> str:
    """Return the card in Markdown.

    `facts` are public facts of the run; `approved` is the hash of the agreed codebook; `evaluation` adds a section on results.
    `shares` are the class shares by the noisy counts of a private model.
    """
    codebook = parameters.codebook
    priors = _by_class(codebook.classes, [math.exp(value) for value in parameters.log_prior])
    classes = [f"- prior: {priors}"]
    if shares is not None:
        classes = [
            f"- class shares, by the noisy counts: {_by_class(codebook.classes, shares.tolist())}",
            f"- the score of a class starts at, as a probability: {priors}. It differs from the share: selected rules move it.",
        ]
    lines = [
        *card_head(parameters, facts, evaluation),
        "# Model card",
        "",
        f"Naive Bayes classifier of {markdown(codebook.target)} ({', '.join(map(markdown, codebook.classes))}), "
        f"{len(codebook.features)} features.",
        "",
        "## How it was made",
        "",
        *(f"- {name}: {markdown(value)}" for name, value in facts.items()),
        f"- codebook: {approved or codebook.sha256} ({codebook.provenance})",
        *classes,
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
            lines.append(f"| {name} | {kind} | {number_name(feature.low)} to {number_name(feature.high)}{unit} | {optional} |")
    if evaluation is not None:
        lines += ["", "## How good it is", "", *evaluation_lines(evaluation)]
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


def card_head(parameters: Parameters, facts: Mapping[str, Any], evaluation: Evaluation | None = None) -> list[str]:
    """Return the YAML head of the card. A licence is not stated: the release does not know it."""
    codebook = parameters.codebook
    texts = all(isinstance(feature, Text) for feature in codebook.features)
    task = "text-classification" if texts else "tabular-classification"
    tags = ["naive-bayes", "blindbayes", *(["differential-privacy"] if "epsilon" in facts else [])]
    metrics = [] if evaluation is None else _metrics(evaluation)
    lines = ["---", "library_name: blindbayes", f"pipeline_tag: {task}", "tags:", *(f"- {tag}" for tag in tags)]
    if metrics:
        title = _scalar(facts.get("title") or f"Naive Bayes classifier of {codebook.target}")
        lines += ["metrics:", *(f"- {name}" for name, _, _ in metrics)]
        lines += ["model-index:", f"- name: {title}", "  results:", "  - task:", f"      type: {task}"]
        lines += ["    dataset:", "      type: held-out-rows", f"      name: {title}", "      split: held out", "    metrics:"]
        for name, words, value in metrics:
            lines += [f"    - type: {name}", f"      name: {words}", f"      value: {value:.6f}"]
    return [*lines, "---", ""]


def _metrics(evaluation: Evaluation) -> list[tuple[str, str, float]]:
    """Return the figures that are defined: name at the hub, in words, value."""
    labels = evaluation.classes
    means = {
        "roc_auc": ("AUC, mean over classes", [evaluation.auc(label).value for label in labels]),
        "brier_score": ("Brier score, mean over classes", [evaluation.brier(label).value for label in labels]),
    }
    figures = [("accuracy", "Accuracy", float(evaluation.accuracy))]
    figures.append(("balanced_accuracy", "Balanced accuracy", float(evaluation.balanced_accuracy)))
    figures += [(name, words, float(sum(values) / len(values))) for name, (words, values) in means.items()]
    return [each for each in figures if math.isfinite(each[2]) and each[2] >= 0]


def _scalar(value: Any) -> str:
    """Return a text as a double-quoted scalar of YAML."""
    return json.dumps(shown(str(value)), ensure_ascii=False)


def evaluation_lines(evaluation: Evaluation) -> list[str]:
    """Return the figures of an evaluation in Markdown: what is exact, then a table by class, then the confusion matrix."""
    labels = [markdown(label) for label in evaluation.classes]
    lines = [
        evaluation.sentence,
        "",
        f"- held-out rows: {evaluation.rows:,}",
        f"- accuracy: {_figure(evaluation.accuracy)} (balanced: {_figure(evaluation.balanced_accuracy)}; always answering the "
        f"most frequent class: {_figure(max(evaluation.base_rate))})",
        "",
        "| class | base rate | recall | precision | AUC | Brier score | calibration error |",
        "|---|---|---|---|---|---|---|",
    ]
    for at, (label, name) in enumerate(zip(evaluation.classes, labels, strict=True)):
        exact = [_figure(each[at]) for each in (evaluation.base_rate, evaluation.recall, evaluation.precision)]
        binned = [evaluation.auc(label), evaluation.brier(label), evaluation.calibration_error(label)]
        lines.append(f"| {' | '.join([name, *exact, *map(_interval, binned)])} |")
    known = "Other figures are exact."
    if evaluation.intervals:
        listed = (f"{markdown(name)} {low:.4f} to {high:.4f}" for name, (low, high) in evaluation.intervals.items())
        known = f"All counts have privacy noise. Without it, in about 90 of 100 releases: {'; '.join(listed)}."
    lines += [
        "",
        f"In brackets: what can be, since only one of {evaluation.bins} bins of each score is known. {known}",
        "",
        f"| true class | {' | '.join(f'predicted {name}' for name in labels)} |",
        f"|---|{'---|' * len(labels)}",
        *(f"| {name} | {' | '.join(map(str, row))} |" for name, row in zip(labels, evaluation.confusion.tolist(), strict=True)),
    ]
    return lines


def candidate_lines(names: Sequence[str], evaluations: Sequence[Evaluation], best: str) -> list[str]:
    """Return the figures of a cross-validation in Markdown, a row per candidate."""
    lines = ["| candidate | accuracy | balanced | AUC, mean over classes | Brier score, mean |", "|---|---|---|---|---|"]
    for name, each in zip(names, evaluations, strict=True):
        interval = (each.intervals or {}).get("accuracy")
        noise = f" [{interval[0]:.4f}, {interval[1]:.4f}]" if interval else ""
        means = [sum(figure(label).value for label in each.classes) / len(each.classes) for figure in (each.auc, each.brier)]
        figures = [_figure(each.accuracy) + noise, _figure(each.balanced_accuracy), *map(_figure, means)]
        lines.append(f"| {' | '.join([markdown(name), *figures])} |")
    return [*lines, "", f"Highest accuracy, over {evaluations[0].rows:,} rows: {markdown(best)}."]


def _figure(value: float) -> str:
    return "not defined" if math.isnan(value) else f"{value:.4f}"


def _interval(figure: Binned) -> str:
    return f"{_figure(figure.value)} [{_figure(figure.low)}, {_figure(figure.high)}]" if figure.value >= 0 else "not defined"


def _by_class(labels: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{markdown(label)} {value:.3f}" for label, value in zip(labels, values, strict=True))
