"""The model file: versioned JSON, nothing executable. Every field is checked when it is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Numeric, Text
from blindbayes.codebook.features import LARGEST
from blindbayes.errors import ConfigError
from blindbayes.io import typed
from blindbayes.io.untrusted import MAX_MODEL_BYTES, read_json
from blindbayes.statistics import Statistics
from blindbayes.statistics.histograms import histograms
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term, WordTable, estimate

FORMAT = "blindbayes.naive_bayes/1"
LabelKind = Literal["text", "integer", "real", "boolean"]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of the estimator that the file stores."""

    alpha: float
    var_smoothing: float = msgspec.field(default=0.0)
    named: bool = False  # the training data had column names
    numeric: dict[str, Literal["linear", "log"]] = {}  # declared spacing of the numbers that are modelled by cells
    priors: list[float] | None = None  # class probabilities that were declared, or follow from class weights
    parent: str = ""  # SHA-256 of the model file that this model was recalibrated from

    def __post_init__(self) -> None:
        if not (0 < self.alpha < math.inf and 0 <= self.var_smoothing < math.inf):
            raise ConfigError("alpha must be positive and var_smoothing must be non-negative in the model file")
        if self.parent and not re.fullmatch("[0-9a-f]{64}", self.parent):
            raise ConfigError("the model file's parent is not a SHA-256")


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The content of a model file. `statistics` is None where they were not released."""

    parameters: Parameters
    statistics: Statistics | None
    label_kind: str
    settings: ModelSettings
    privacy: Mapping[str, Any] | None


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    log_prob: list[list[float]]


class _Moments(msgspec.Struct, forbid_unknown_fields=True):
    mean: list[float]
    variance: list[float | None]  # null: no class has a value


class _Parameters(msgspec.Struct, forbid_unknown_fields=True):
    log_prior: list[float | None]  # null: a class without rows
    terms: dict[str, dict[str, Any]]


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    codebook: dict[str, Any]
    codebook_sha256: str
    label_kind: LabelKind
    settings: dict[str, Any]
    statistics: dict[str, Any] | None
    parameters: _Parameters
    privacy: dict[str, Any] | None
    cells_sha256: str | None = None  # of `codebook`, if a private release counts in other cells than the approved one


def dump_model(record: ModelRecord) -> str:
    """Return the text of a model file."""
    parameters, settings = record.parameters, record.settings
    own = parameters.codebook.sha256
    approved = str(((record.privacy or {}).get("statement") or {}).get("codebook", own))
    stored = {"alpha": settings.alpha, "var_smoothing": settings.var_smoothing, "named": settings.named}
    document = {
        "format": FORMAT,
        "codebook": parameters.codebook.to_dict(),
        "codebook_sha256": approved,
        **({} if approved == own else {"cells_sha256": own}),
        "label_kind": record.label_kind,
        "settings": stored | msgspec.to_builtins(settings),
        "statistics": None if record.statistics is None else record.statistics.by_name(),
        "parameters": {
            "log_prior": [_finite(value) for value in parameters.log_prior],
            "terms": {name: _dump_term(term) for name, term in parameters.terms.items()},
        },
        "privacy": None if record.privacy is None else dict(record.privacy),
    }
    return json.dumps(document, ensure_ascii=False, indent=1, allow_nan=False)


def parse_model(text: str) -> ModelRecord:
    """Read the text of a model file. Raises `ConfigError` for an unknown version, field, hash or shape."""
    content = read_json(text, "the model file", max_bytes=MAX_MODEL_BYTES, hint="`blindbayes train` writes one")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigError(f"the model file is not of format {FORMAT}; `blindbayes train` writes one")
    try:
        document = typed.convert(content, _Document)
        return _record(document, typed.convert(document.settings, ModelSettings))
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError):  # msgspec's are ValueErrors
        raise ConfigError("the model file has unknown or missing fields, or does not fit its own codebook") from None


def _record(document: _Document, settings: ModelSettings) -> ModelRecord:
    if not {"var_smoothing", "named"} <= set(document.settings):
        raise ConfigError("the model file's settings are not those of this version")
    codebook = Codebook.from_dict(document.codebook)
    if codebook.sha256 != (document.cells_sha256 or document.codebook_sha256):
        raise ConfigError("the model file's codebook does not have the hash it states")
    statement = (document.privacy or {}).get("statement") or {}
    if document.cells_sha256 is not None and statement["codebook"] != document.codebook_sha256:
        raise ConfigError("the model file names another approved codebook than its privacy statement")
    stated = document.parameters
    if set(stated.terms) != set(codebook.names) or not set(settings.numeric) <= set(codebook.names):
        raise ConfigError("the model file's parameters do not fit its codebook")
    terms = {each.name: _term(each, stated.terms[each.name], len(codebook.classes)) for each in codebook.features}
    parameters = Parameters(codebook, _log_prior(stated.log_prior, len(codebook.classes)), terms)
    statistics = None if document.statistics is None else Statistics.from_names(codebook, document.statistics)
    if settings.priors is not None:  # the prior must be the one that the settings give
        declared = np.exp(parameters.weighed(_floats(settings.priors).tolist()).log_prior)
        if not np.allclose(declared, np.exp(parameters.log_prior), rtol=1e-9, atol=1e-300):
            raise ConfigError("the model file's prior is not that of its settings")
    if statistics is not None and document.privacy is None:
        made = estimate(statistics, alpha=settings.alpha, var_smoothing=settings.var_smoothing).weighed(settings.priors)
        _require_same(parameters, histograms(statistics, settings.numeric, made, settings.alpha))
    return ModelRecord(parameters, statistics, document.label_kind, settings, document.privacy)


def _log_prior(stated: Sequence[float | None], classes: int) -> npt.NDArray[np.float64]:
    log_prior = _floats(stated, null=-math.inf)
    finite = log_prior[np.isfinite(log_prior)]
    if log_prior.shape != (classes,) or not finite.size or not _are_logs(finite):
        raise ConfigError("the model file's prior does not fit its codebook")
    return log_prior


def _term(feature: Feature, stated: dict[str, Any], classes: int) -> Term:
    where = f"feature {feature.name!r}"
    if isinstance(feature, Numeric) and not feature.counted:
        moments = typed.convert(stated, _Moments)
        mean, variance = _floats(moments.mean), _floats(moments.variance, null=math.inf)
        if not (mean.shape == variance.shape == (classes,) and _are_moments(mean, variance, feature)):
            raise ConfigError(f"{where}: mean and variance in the model file do not fit the codebook")
        return Gaussian(mean, variance)
    table = np.array([_floats(row) for row in typed.convert(stated, _Table).log_prob])
    if table.shape != (classes, feature.size):
        raise ConfigError(f"{where}: log_prob in the model file has the wrong shape")
    if not _are_logs(-table if isinstance(feature, Text) and feature.model == "complement" else table):
        raise ConfigError(f"{where}: log_prob in the model file must be finite and at most 0")
    if not isinstance(feature, Text):
        return Histogram(table)
    if feature.once and (table >= 0).any():
        raise ConfigError(f"{where}: log_prob in the model file must be below 0")
    return WordTable(table, feature.once)


def _require_same(stated: Parameters, made: Parameters) -> None:
    """Require that a model without noise follows from its statistics; last bits differ between machines' logarithms."""
    pairs = [(stated.log_prior, made.log_prior)]
    for name, term in stated.terms.items():
        pairs += [(getattr(term, each.name), getattr(made.terms[name], each.name)) for each in fields(term)]
    if not all(np.allclose(left, right, rtol=1e-12, atol=1e-300) for left, right in pairs):
        raise ConfigError("the model file's parameters are not those of its statistics")


def _are_logs(table: npt.NDArray[np.float64]) -> bool:
    """Return whether these are logarithms of probabilities, up to rounding, whose sums stay finite."""
    return bool((table <= 1e-9).all() and (table >= -LARGEST).all())


def _are_moments(mean: npt.NDArray[np.float64], variance: npt.NDArray[np.float64], feature: Numeric) -> bool:
    """Return whether every number within the bounds has a finite score; all variances are infinite if no class has values."""
    if np.isinf(variance).any():
        return bool(np.isinf(variance).all() and (np.abs(mean) <= LARGEST).all())
    ends = np.array([[feature.grid_low], [feature.grid_high]]) / feature.scale
    with np.errstate(over="ignore"):
        return bool((variance > 0).all() and ((ends - mean) ** 2 <= LARGEST * variance).all())


def _floats(values: Sequence[float | None], *, null: float | None = None) -> npt.NDArray[np.float64]:
    """Return finite numbers as an array, with `null` in place of None."""
    array = np.array([null if value is None else value for value in values], dtype=np.float64)
    if np.isnan(array).any() or (np.isinf(array) & (array != null)).any():
        raise ValueError
    return array


def _dump_term(term: Term) -> dict[str, Any]:
    if isinstance(term, Histogram | WordTable):
        return {"log_prob": term.log_prob.tolist()}
    return {each.name: [_finite(value) for value in getattr(term, each.name)] for each in fields(term)}


def _finite(value: Any) -> float | None:
    # JSON has no infinity: null stands for the one infinity that is possible in its place.
    return float(value) if math.isfinite(value) else None
