"""The model file: JSON, versioned, nothing executable. Every field is checked when it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import ConfigError
from blindbayes.model.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.statistics import Statistics
from blindbayes.statistics.layout import is_histogram

FORMAT = "blindbayes.model/1"
MAX_BYTES = 256 * 1024 * 1024
_FIELDS = {"format", "codebook", "codebook_sha256", "label_kind", "settings", "statistics", "parameters", "privacy"}


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """What a model file holds. `statistics` is None where they were not released."""

    parameters: Parameters
    statistics: Statistics | None
    label_kind: str
    settings: Mapping[str, Any]
    privacy: Mapping[str, Any] | None


def dump_model(record: ModelRecord) -> str:
    """The text of a model file."""
    parameters = record.parameters
    document = {
        "format": FORMAT,
        "codebook": parameters.codebook.to_dict(),
        "codebook_sha256": parameters.codebook.sha256,
        "label_kind": record.label_kind,
        "settings": dict(record.settings),
        "statistics": None if record.statistics is None else record.statistics.by_name(),
        "parameters": {
            "log_prior": [_finite(value) for value in parameters.log_prior],
            "terms": {name: _dump_term(term) for name, term in parameters.terms.items()},
        },
        "privacy": None if record.privacy is None else dict(record.privacy),
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)


def parse_model(text: str) -> ModelRecord:
    """The inverse of `dump_model`; refuses an unknown version, field, hash or shape."""
    if len(text) > MAX_BYTES:
        raise ConfigError("the model file is over the size limit")
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError):
        raise ConfigError("the model file is not valid JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"the model file is not of format {FORMAT}")
    if set(document) != _FIELDS:
        raise ConfigError("the model file has unknown or missing fields")
    try:
        return _record(document)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise ConfigError("the model file does not fit its own codebook") from None


def _record(document: dict[str, Any]) -> ModelRecord:
    codebook = Codebook.from_dict(document["codebook"])
    if codebook.sha256 != document["codebook_sha256"]:
        raise ConfigError("the model file's codebook does not have the hash it states")
    if document["label_kind"] not in {"text", "integer", "real", "boolean"}:
        raise ConfigError("the model file names an unknown kind of label")
    classes = len(codebook.classes)
    section = document["parameters"]
    if set(section) != {"log_prior", "terms"} or set(section["terms"]) != set(codebook.names):
        raise ConfigError("the model file's parameters do not fit its codebook")
    log_prior = np.array([-math.inf if value is None else float(value) for value in section["log_prior"]])
    if log_prior.shape != (classes,):
        raise ConfigError("the model file's prior does not fit its codebook")
    terms: dict[str, Term] = {}
    for feature in codebook.features:
        fields = section["terms"][feature.name]
        if is_histogram(feature):
            table = np.array(fields["log_prob"], dtype=np.float64)
            if set(fields) != {"log_prob"} or table.shape != (classes, feature.size):
                raise ConfigError(f"feature {feature.name!r}: the model file's table has the wrong shape")
            terms[feature.name] = Histogram(table)
        elif isinstance(feature, Numeric):
            mean = np.array(fields["mean"], dtype=np.float64)
            variance = np.array([math.inf if value is None else float(value) for value in fields["variance"]])
            if (
                set(fields) != {"mean", "variance"}
                or mean.shape != (classes,)
                or variance.shape != (classes,)
                or (variance <= 0).any()
            ):
                raise ConfigError(f"feature {feature.name!r}: the model file's mean and variance do not fit")
            terms[feature.name] = Gaussian(mean, variance)
    statistics = None if document["statistics"] is None else Statistics.from_names(codebook, document["statistics"])
    parameters = Parameters(codebook, log_prior, terms)
    return ModelRecord(parameters, statistics, document["label_kind"], document["settings"], document["privacy"])


def _dump_term(term: Term) -> dict[str, Any]:
    if isinstance(term, Histogram):
        return {"log_prob": term.log_prob.tolist()}
    return {"mean": term.mean.tolist(), "variance": [_finite(value) for value in term.variance]}


def _finite(value: Any) -> float | None:
    """JSON has no infinity: null stands for the one infinity that is possible in its place."""
    return float(value) if math.isfinite(value) else None


def _refuse_constant(name: str) -> float:
    raise ConfigError("the model file holds a number that JSON does not have")
