"""Model files to estimators."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import msgspec

from blindbayes.codebook import Numeric
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.dp.release.cells import fine_codebook
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import MAX_MODEL_BYTES
from blindbayes.naive_bayes.estimator import NaiveBayes
from blindbayes.naive_bayes.model_file import ModelRecord, parse_model
from blindbayes.naive_bayes.private import PrivateNaiveBayes

__all__ = ["NaiveBayes", "PrivateNaiveBayes", "from_record", "load"]


def load(path: str | os.PathLike[str], *, extra_columns: str = "refuse") -> NaiveBayes | PrivateNaiveBayes:
    """Read a JSON model file: a `PrivateNaiveBayes` if it was released with noise, else a `NaiveBayes`.

    A model file does not store how a table is read: `extra_columns` is that of the estimator that is returned.
    Nothing in the file is executed; an unknown version or field is refused.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_MODEL_BYTES + 1)
        if raw.startswith(b"blindbayes share "):
            raise ConfigError("this is a share of a model, not a model: all its sites classify with `blindbayes study predict`")
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"model file {os.fspath(path)!r} does not exist; `blindbayes train` writes one") from None
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"model file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None
    try:
        model = from_record(parse_model(text))
    except ConfigError as problem:
        raise ConfigError(f"{os.fspath(path)!r}: {problem}") from None
    model.extra_columns = extra_columns
    return model


def from_record(record: ModelRecord) -> NaiveBayes | PrivateNaiveBayes:
    """Return the fitted estimator that a model file describes."""
    settings, codebook = record.settings, record.parameters.codebook
    if record.privacy is not None:
        epsilon, delta = (_amount(record.privacy.get(name)) for name in ("epsilon", "delta"))
        if "statement" in record.privacy:
            statement = PrivacyStatement.from_dict(record.privacy["statement"])
            epsilon, delta = statement.epsilon, statement.delta
        private = PrivateNaiveBayes(codebook, epsilon=epsilon, delta=delta, alpha=settings.alpha)
        return private._restore(record)
    spacings = settings.numeric
    declared = codebook.with_features(
        msgspec.structs.replace(each, bins=None, edges=(), spacing=spacings[each.name])
        if isinstance(each, Numeric) and each.name in spacings
        else each
        for each in codebook.features
    )
    if spacings and fine_codebook(declared) != codebook:
        raise ConfigError("the model file's cells are not those of this version")
    numeric = "histogram" if spacings else "gaussian"
    model = NaiveBayes(declared, alpha=settings.alpha, var_smoothing=settings.var_smoothing, numeric=numeric)
    return model._restore(record)


def _amount(stated: Any) -> float:
    """Return an epsilon or delta that the file states, or 0: such a model predicts, but cannot be fitted again."""
    return float(stated) if type(stated) in (int, float) and 0 < stated < math.inf else 0.0
