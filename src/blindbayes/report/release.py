"""Every file of a release, as bytes: what `Result.save` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from blindbayes.model.explain import NoiseInterval
from blindbayes.model.file import dump_model
from blindbayes.model.parameters import Parameters
from blindbayes.privacy.statement import Deployment, PrivacyStatement
from blindbayes.report.card import model_card
from blindbayes.report.leakage import LeakReport
from blindbayes.report.page import leak_page, model_page
from blindbayes.report.plots import evidence_plot, gaussian_plot, priors_plot
from blindbayes.wire.transcript import Cost

if TYPE_CHECKING:
    from blindbayes.estimators import NaiveBayes


def run_files(report: LeakReport, cost: Cost, statement: str) -> dict[str, bytes]:
    """What every run leaves: the leak report, its cost, the statement in words."""
    return {
        "leakage.json": _json(report.to_dict()),
        "leakage.html": leak_page(report).encode(),
        "cost.json": _json(asdict(cost)),
        "statement.md": (statement.rstrip("\n") + "\n").encode(),
    }


def release_files(
    model: NaiveBayes, facts: Mapping[str, Any] | None = None, deployment: Deployment | None = None
) -> dict[str, bytes]:
    """The release of a model that one organisation fitted with differential privacy, on its own table."""
    promise = model.statement_
    known = {"mechanism": promise.mechanism, "epsilon": promise.epsilon, "delta": promise.delta, **(facts or {})}
    record = model._record()
    return {
        "model.json": dump_model(record).encode(),
        "statement.md": promise.text.encode(),
        **model_files(record.parameters, known, promise, deployment, model._noise_interval()),
    }


def model_files(
    parameters: Parameters,
    facts: Mapping[str, Any],
    promise: PrivacyStatement | None,
    deployment: Deployment | None,
    noise_interval: NoiseInterval | None = None,
) -> dict[str, bytes]:
    """What a model in the open adds: its card, its explanation, plots, and the promise in forms for machines."""
    files = {
        "model_card.md": model_card(parameters, facts).encode(),
        "explain.html": model_page(parameters, noise_interval=noise_interval).encode(),
        "plots/priors.svg": priors_plot(parameters).encode(),
        "plots/evidence.svg": evidence_plot(parameters, noise_interval).encode(),
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
