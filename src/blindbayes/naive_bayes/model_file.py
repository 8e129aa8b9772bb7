"""The model file: JSON, versioned, nothing executable. Every field is checked when it is read."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.codebook.features import LARGEST
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import MAX_MODEL_BYTES, read_json
from blindbayes.statistics import Statistics
from blindbayes.statistics.histograms import histograms
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term, Words, estimate

FORMAT = "blindbayes.naive_bayes/1"
_FIELDS = {"format", "codebook", "codebook_sha256", "label_kind", "settings", "statistics", "parameters", "privacy"}
_SETTINGS = {"alpha", "var_smoothing", "named"}


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
    document = read_json(text, "the model file", max_bytes=MAX_MODEL_BYTES, hint="`blindbayes train` writes one")
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ConfigError(f"the model file is not of format {FORMAT}; `blindbayes train` writes one")
    if set(document) != _FIELDS:
        raise ConfigError("the model file has unknown or missing fields")
    try:
        return _record(document)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):
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
    log_prior = _numbers(section["log_prior"], null=-math.inf)
    if log_prior.shape != (classes,) or not np.isfinite(log_prior).any() or not _are_logs(log_prior[np.isfinite(log_prior)]):
        raise ConfigError("the model file's prior does not fit its codebook")
    terms: dict[str, Term] = {}
    for feature in codebook.features:
        stated = section["terms"][feature.name]
        if feature.counted or isinstance(feature, Text):
            table = np.array([_numbers(row) for row in stated["log_prob"]])
            if set(stated) != {"log_prob"} or table.shape != (classes, feature.size):
                raise ConfigError(f"feature {feature.name!r}: the model file's table has the wrong shape")
            if not _are_logs(-table if isinstance(feature, Text) and feature.model == "complement" else table):
                raise ConfigError(f"feature {feature.name!r}: the model file holds what is no logarithm of a probability")
            if isinstance(feature, Text) and feature.once and (table >= 0).any():
                raise ConfigError(f"feature {feature.name!r}: the model file holds a probability that is not below one")
            terms[feature.name] = Words(table, feature.once) if isinstance(feature, Text) else Histogram(table)
        elif isinstance(feature, Numeric):
            mean = _numbers(stated["mean"])
            variance = _numbers(stated["variance"], null=math.inf)
            if (
                set(stated) != {"mean", "variance"}
                or mean.shape != (classes,)
                or variance.shape != (classes,)
                or not _are_moments(mean, variance, feature)
            ):
                raise ConfigError(f"feature {feature.name!r}: the model file's mean and variance do not fit")
            terms[feature.name] = Gaussian(mean, variance)
    statistics = None if document["statistics"] is None else Statistics.from_names(codebook, document["statistics"])
    parameters = Parameters(codebook, log_prior, terms)
    settings, privacy = document["settings"], document["privacy"]
    if (
        not isinstance(settings, dict)
        or {*settings} - {"numeric", "priors"} != _SETTINGS
        or not isinstance(settings["named"], bool)
    ):
        raise ConfigError("the model file's settings are not those of this version")
    cut = settings.get("numeric", {})  # numbers in cells of their own, and the scale that they were declared with
    if not isinstance(cut, dict) or not all(name in terms and scale in ("linear", "log") for name, scale in cut.items()):
        raise ConfigError("the model file's settings are not those of this version")
    alpha, smoothing = _numbers([settings["alpha"], settings["var_smoothing"]])
    if not (alpha > 0 and smoothing >= 0):
        raise ConfigError("the model file's smoothing is no smoothing")
    if "priors" in settings:  # those that the prior was made from: who reads the one sees what the other says
        own = np.exp(parameters.weighed(_numbers(settings["priors"]).tolist()).log_prior)
        if not np.allclose(own, np.exp(log_prior), rtol=1e-9, atol=1e-300):
            raise ConfigError("the model file's prior is not that of its settings")
    if not (privacy is None or isinstance(privacy, dict)):
        raise ConfigError("the model file's privacy statement is not a table")
    if statistics is not None and privacy is None:
        made = estimate(statistics, alpha=float(alpha), var_smoothing=float(smoothing)).weighed(settings.get("priors"))
        _require_same(parameters, histograms(statistics, cut, made, float(alpha)))
    return ModelRecord(parameters, statistics, document["label_kind"], settings, privacy)


def _require_same(stated: Parameters, made: Parameters) -> None:
    """A model without noise is a function of its statistics; a last bit may differ between machines' logarithms."""
    pairs = [(stated.log_prior, made.log_prior)]
    for name, term in stated.terms.items():
        pairs += [(getattr(term, each.name), getattr(made.terms[name], each.name)) for each in fields(term)]
    if not all(np.allclose(left, right, rtol=1e-12, atol=1e-300) for left, right in pairs):
        raise ConfigError("the model file's parameters are not those of its statistics")


def _are_logs(table: npt.NDArray[np.float64]) -> bool:
    """Of probabilities, up to rounding; and none so small that a sum of them is no number any more."""
    return bool((table <= 1e-9).all() and (table >= -LARGEST).all())


def _are_moments(mean: npt.NDArray[np.float64], variance: npt.NDArray[np.float64], feature: Numeric) -> bool:
    """Moments under which every number within the bounds has a score; null where no class has any."""
    if np.isinf(variance).any():
        return bool(np.isinf(variance).all() and (np.abs(mean) <= LARGEST).all())
    ends = np.array([[feature.grid_low], [feature.grid_high]]) / feature.scale
    with np.errstate(over="ignore"):
        return bool((variance > 0).all() and ((ends - mean) ** 2 <= LARGEST * variance).all())


def _numbers(values: Any, *, null: float | None = None) -> npt.NDArray[np.float64]:
    """A list of finite numbers; None stands for `null` where that is given."""
    if not isinstance(values, list):
        raise TypeError
    numbers = []
    for value in values:
        if value is None and null is not None:
            numbers.append(null)
        elif type(value) in (int, float) and math.isfinite(value):
            numbers.append(float(value))
        else:
            raise ValueError
    return np.array(numbers, dtype=np.float64)


def _dump_term(term: Term) -> dict[str, Any]:
    if isinstance(term, Histogram | Words):
        return {"log_prob": term.log_prob.tolist()}
    return {each.name: [_finite(value) for value in getattr(term, each.name)] for each in fields(term)}


def _finite(value: Any) -> float | None:
    """JSON has no infinity: null stands for the one infinity that is possible in its place."""
    return float(value) if math.isfinite(value) else None
