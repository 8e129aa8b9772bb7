"""The files of a release, as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
from blindbayes.io.untrusted import markdown
from blindbayes.naive_bayes.model_file import ModelRecord, dump_model
from blindbayes.report.cover_sheet import Cover
from blindbayes.report.leakage import LeakReport
from blindbayes.report.model_card import model_card
from blindbayes.report.output_check import (
    DISCLOSURE,
    CheckedOutput,
    OutputCheck,
    OutputRule,
    check_dominance,
    check_floor,
    risk_appetite,
    sums_of,
)
from blindbayes.report.page import leak_page, model_page
from blindbayes.report.plots import evidence_plot, gaussian_plot, noisy_shares, priors_plot
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import NoiseInterval
from blindbayes.statistics.parameters import Parameters
from blindbayes.wire.transcript import Cost

NO_PROMISE = """# Statement

## What is promised

Nothing about single people: this model is not differentially private. It holds exact counts of the table it was made from.
Small counts may reveal whether a person was among the rows; treat it as the table itself is treated.
"""


def run_files(report: LeakReport, cost: Cost, statement: str) -> dict[str, bytes]:
    """Return the files of every run: the leak report, its cost and the statement."""
    return {
        "leakage.json": _json(report.to_dict()),
        "leakage.html": leak_page(report).encode(),
        "cost.json": _json(asdict(cost)),
        "statement.md": (statement.rstrip("\n") + "\n").encode(),
    }


def release_files(
    record: ModelRecord, noise_interval: NoiseInterval | None, cover: Cover, deployment: Deployment | None = None
) -> dict[str, bytes]:
    """Return the release of a model that one organisation fitted on its own table, private or not."""
    promise = None
    known: dict[str, Any] = {**cover.facts}
    statement = NO_PROMISE
    if record.privacy is not None:
        promise = PrivacyStatement.from_dict(record.privacy.get("statement"))
        known |= {"mechanism": promise.mechanism, "epsilon": promise.epsilon, "delta": promise.delta}
        statement = promise.text
    head, _, rest = statement.partition("\n\n")
    facts = "\n".join(f"- {name}: {markdown(value)}" for name, value in cover.facts.items())
    return {
        "model.json": dump_model(record).encode(),
        "statement.md": f"{head}\n\n{facts}\n\n{rest}".encode(),
        "cover.json": _json({**cover.facts, "officer": dict(cover.officer)}),
        DISCLOSURE: _checked(record, promise, cover).text,
        **model_files(record.parameters, known, promise, deployment, noise_interval, record.statistics),
    }


def _checked(record: ModelRecord, promise: PrivacyStatement | None, cover: Cover) -> OutputCheck:
    """Return the checks of a model that one organisation releases."""
    statistics = record.statistics
    if promise is not None:
        text = f"epsilon {promise.epsilon:g}, delta {promise.delta:g}, charged before the noise was drawn"
        checks = [OutputRule("budget", "pass", text)]
    elif statistics is None:
        checks = [OutputRule("floor", "review", "the model holds no counts that could be checked")]
    else:
        checks = [check_floor(statistics)]
        if (dominance := check_dominance(sums_of(statistics))) is not None:
            checks.append(dominance)
        checks.append(OutputRule("differencing", "review", "earlier releases of the same table are not compared"))
    output = CheckedOutput("model", "table and model", "Frequencies", (), tuple(checks))
    epsilon, delta = (0.0, 0.0) if promise is None else (promise.epsilon, promise.delta)
    safes = {
        "projects": "release of one table",
        "people": ", ".join(str(value) for value in cover.officer.values()),
        "settings": "one organisation's own machine",
        "data": f"codebook {record.parameters.codebook.sha256}",
        "outputs": "the model and its documents",
    }
    return OutputCheck(outputs=(output,), risk_appetite=risk_appetite(0, None, epsilon, delta), rules={}, five_safes=safes)


def model_files(
    parameters: Parameters,
    facts: Mapping[str, Any],
    promise: PrivacyStatement | None,
    deployment: Deployment | None,
    noise_interval: NoiseInterval | None = None,
    statistics: Statistics | None = None,
) -> dict[str, bytes]:
    """Return the files of an open model: its card, its explanation, plots and the guarantee for machines."""
    approved = None if promise is None else promise.codebook
    shares = noisy_shares(noise_interval, statistics)
    files = {
        "model_card.md": model_card(parameters, facts, approved, shares=shares).encode(),
        "explain.html": model_page(
            parameters, noise_interval=noise_interval, statistics=statistics, approved=approved
        ).encode(),
        "plots/priors.svg": priors_plot(parameters, noise_interval, statistics).encode(),
        "plots/evidence.svg": evidence_plot(parameters, noise_interval, statistics).encode(),
    }
    if (bars := gaussian_plot(parameters, noise_interval)) is not None:
        files["plots/numbers.svg"] = bars.encode()
    if promise is None:
        files["statement.json"] = _json({"format": "blindbayes.facts/1", **facts})
    else:
        files["statement.json"] = promise.to_json().encode()
        if deployment is not None:
            files["statement.yaml"] = promise.to_yaml(deployment).encode()
    return files


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
