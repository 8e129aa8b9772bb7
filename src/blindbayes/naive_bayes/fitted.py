"""What a fitted `NaiveBayes` can be asked: classes, probabilities, explanations; its files and copies."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data import encode
from blindbayes.data.sources import require_columns
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.dp.noise.exact_events import as_decimal
from blindbayes.dp.release.forecast import noisy_accuracy, score_price
from blindbayes.dp.release.intervals import noise_interval
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io.untrusted import read_json_table
from blindbayes.naive_bayes.explain import Explanation, explain
from blindbayes.naive_bayes.model_file import ModelRecord, dump_model, parse_model
from blindbayes.statistics.intervals import NoiseInterval
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, Words

if TYPE_CHECKING:
    from blindbayes.crypto.signatures import SigningKey
    from blindbayes.report.cover_sheet import Cover

from blindbayes.naive_bayes.inputs import split_columns

_ROWS_AT_ONCE = 1 << 14
_MANY_CLASSES = 16
_EXACT_SCORE = (
    "an exact score is a function of private rows: under a ledger set score_epsilon, leave scoring and sample_weight out, or "
    "choose settings by `private_forecast` (Python) or `blindbayes plan` (command line)"
)


class FittedModel:
    """The part of `NaiveBayes` that works after `fit`."""

    if TYPE_CHECKING:  # what `fit` leaves, and scikit-learn brings
        classes_: npt.NDArray[Any]
        parameters_: Parameters
        privacy_: dict[str, Any]
        label_kind_: str
        n_features_in_: int
        codebook: Codebook | None
        alpha: float
        weight_step: float | None
        var_smoothing: float
        epsilon: float | None
        ledger: str | os.PathLike[str] | None
        score_epsilon: float | None
        priors: Any
        class_weight: Any
        extra_columns: str
        get_params: Any

        @property
        def _unit_rows(self) -> int: ...

        _cut: Any
        _private_block: Any
        _adopt_codebook: Any
        _publish: Any

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row; a tie goes to the class that the codebook lists first."""
        places = [best_class(scores) for scores in self._scores(X)]
        chosen: npt.NDArray[Any] = self.classes_[np.concatenate(places)]
        return chosen

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the given rows. Under a ledger it is a release, like a fit: noisy, and paid for by `score_epsilon`.

        The noise is that of `private_forecast`: half of the budget on the right answers, half on the number of rows. Rows are
        read as a private fit reads them: each by itself, none is an error, and of a person as many count.
        """
        if self.epsilon is None or self.ledger is None:
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        if self.score_epsilon is None or sample_weight is not None:
            raise PrivacyError(_EXACT_SCORE)
        parameters = self._parameters()
        block = self._private_block(X, y, parameters.codebook)
        right = int((parameters.joint_log_likelihood(block).argmax(axis=1) == block.labels).sum())
        price = score_price(self.score_epsilon, self._unit_rows)
        spend = Spend(as_decimal(price.epsilon))
        Ledger(self.ledger).charge(spend, purpose="NaiveBayes.score", unit=price.unit)
        return noisy_accuracy(right, block.rows, self.score_epsilon, self._unit_rows, Coins.system())

    def predict_joint_log_proba(self, X: Any) -> FloatArray:
        """ln P(class, row), shaped (rows, classes)."""
        return np.concatenate([np.ascontiguousarray(scores) for scores in self._scores(X)])

    def _scores(self, X: Any) -> Iterator[FloatArray]:
        """Joint log-probabilities in blocks of rows that stay in the processor's cache."""
        if self.epsilon is not None and self.ledger is not None and _is_scored():
            raise PrivacyError(_EXACT_SCORE)
        parameters = self._parameters()
        columns = self._query_columns(X)
        rows = len(next(iter(columns.values())))
        for start in range(0, max(rows, 1), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            block = encode({name: column[part] for name, column in columns.items()}, parameters.codebook, training=False)
            yield parameters.joint_log_likelihood(block)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """ln P(class | row), shaped (rows, classes)."""
        scores = self.predict_joint_log_proba(X)
        top = scores.max(axis=1, keepdims=True)
        normalised: FloatArray = scores - (top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))
        return normalised

    def predict_proba(self, X: Any) -> FloatArray:
        """P(class | row), shaped (rows, classes)."""
        return np.exp(self.predict_log_proba(X))

    def explain(self, X: Any) -> Explanation:
        """What the prior and each feature add to the score of each class, row by row; its `interval` says what noise did."""
        parameters = self._parameters()
        block = encode(self._query_columns(X), parameters.codebook, training=False)
        return explain(parameters, block, self._noise_interval if hasattr(self, "privacy_") else None)

    def _noise_interval(self) -> NoiseInterval | None:
        """The models that the exact table may have given, behind a private one; None where nothing is known of its noise."""
        found = noise_interval(getattr(self, "privacy_", None), self._parameters(), self.alpha)
        if found is None or (self.priors is None and self.class_weight is None):
            return found
        known = np.broadcast_to(self._parameters().log_prior, found.log_prior.shape)  # declared, not counted
        return replace(found, log_prior=known)

    def with_priors(self, priors: Any = None, class_weight: Any = None) -> Self:
        """A copy of the fitted model for other priors, or with the classes of this one weighed; see the class's parameters."""
        if priors is None and class_weight is None:
            raise ConfigError("say which: priors, or class_weight, or both")
        made: Self = type(self)(**self.get_params(deep=False))
        made._restore(self._record())
        made.priors, made.class_weight = priors, class_weight
        made._publish(self._parameters(), getattr(self, "statistics_", None))
        return made

    def _parameters(self) -> Parameters:
        check_is_fitted(self, "parameters_")
        parameters: Parameters = self.parameters_
        return parameters

    def _query_columns(self, X: Any) -> dict[str, Any]:
        codebook = self._parameters().codebook
        names, columns = split_columns(X, codebook)
        if names is not None:
            columns = {name: column for name, column in columns.items() if name != codebook.target}
            require_columns([*columns], codebook, labels=False, extra_columns=self.extra_columns)
            columns = {name: columns[name] for name in codebook.names}
        self._require_width(columns)
        return columns

    def _require_width(self, columns: Mapping[str, Any]) -> None:
        if len(columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(columns)} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )

    # -- what scikit-learn's own Naive Bayes calls its parameters ------------------------------------------------------

    @property
    def feature_log_prob_(self) -> dict[str, FloatArray]:
        """ln P(value | class) by categorical or binned feature, and by text what its words add: (classes, values or words)."""
        terms = self._parameters().terms.items()
        return {name: term.log_prob for name, term in terms if isinstance(term, Histogram | Words)}

    @property
    def theta_(self) -> dict[str, FloatArray]:
        """Mean per class by Gaussian feature."""
        return {name: term.mean for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    @property
    def var_(self) -> dict[str, FloatArray]:
        """Variance per class by Gaussian feature."""
        return {name: term.variance for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    @property
    def _steps(self) -> int:
        """How many steps of the weights' grid a row of weight 1 counts."""
        if self.weight_step is None:
            return 1
        steps = round(1 / self.weight_step) if 1e-6 <= self.weight_step <= 1 else 0
        if not (steps and math.isclose(steps * self.weight_step, 1.0, rel_tol=1e-9)):
            raise ConfigError("weight_step is one over a whole number, at most a million: 0.5, 0.01")
        return steps

    @property
    def _alpha(self) -> float:
        """Smoothing in the units that the statistics count in."""
        return self.alpha if self.weight_step is None else self.alpha * self._steps

    # -- files and copies --------------------------------------------------------------------------------------------

    def _record(self) -> ModelRecord:
        settings: dict[str, Any] = {"alpha": float(self._alpha), "var_smoothing": float(self.var_smoothing)}
        names = getattr(self, "feature_names_in_", None)
        settings["named"] = names is not None
        if self.weight_step is not None:
            settings["weight_step"] = float(self.weight_step)
        if cut := self._cut():
            settings["numeric"] = cut
        if self.priors is not None or self.class_weight is not None:
            settings["priors"] = np.exp(self._parameters().log_prior).tolist()
        return ModelRecord(
            self._parameters(), getattr(self, "statistics_", None), self.label_kind_, settings, getattr(self, "privacy_", None)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON model file, the format of record."""
        text = dump_model(self._record())
        scratch = Path(path).with_name(Path(path).name + ".part")  # a model file is never left half written
        try:
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(path)
        except OSError as cause:
            scratch.unlink(missing_ok=True)
            raise ConfigError(f"model file {os.fspath(path)!r} cannot be written ({type(cause).__name__})") from None

    def release(
        self,
        folder: str | os.PathLike[str],
        *,
        cover: Cover | str | None = None,
        deployment: Deployment | None = None,
        signers: Mapping[str, SigningKey] | None = None,
    ) -> Path:
        """Write the model with its papers into a new folder: statement, card, explanation, plots, index page, checksums.

        `cover` is a title, or title, owner and the officer's fields; a deployment adds the record of the OpenDP Deployments
        Registry; `signers` maps names to the keys that sign the checksums.
        """
        from blindbayes.io.files import write_folder
        from blindbayes.naive_bayes.release import release_files
        from blindbayes.report.checksums import seal_files
        from blindbayes.report.cover_sheet import Cover

        if not isinstance(cover, Cover):
            cover = Cover(title=cover or f"Naive Bayes classifier of {self._parameters().codebook.target}")
        return write_folder(
            folder, seal_files(release_files(self._record(), self._noise_interval(), cover, deployment), signers, cover)
        )

    @property
    def approved_codebook_(self) -> str:
        """The hash of the codebook that people agreed on. A private release may be counted in other cells of it."""
        privacy = getattr(self, "privacy_", {})
        return str(privacy.get("statement", {}).get("codebook", self._parameters().codebook.sha256))

    def _restore(self, record: ModelRecord) -> Self:
        codebook = record.parameters.codebook
        self._adopt_codebook(codebook, record.label_kind)
        if record.settings.get("named"):
            self.feature_names_in_ = np.array(codebook.names, dtype=object)
        if record.privacy is not None:
            self.privacy_ = dict(record.privacy)
        if "priors" in record.settings:
            self.priors, self.class_weight = record.settings["priors"], None
        self._publish(record.parameters, record.statistics)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Plain builtins only, so that joblib and skops need to trust no class but this one."""
        state: dict[str, Any] = dict(self.get_params(deep=False))
        state["codebook"] = None if self.codebook is None else self.codebook.canonical().decode()
        state["ledger"] = None if self.ledger is None else os.fspath(self.ledger)
        state["model"] = dump_model(self._record()) if hasattr(self, "parameters_") else None
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:

        params = {key: value for key, value in state.items() if key != "model"}
        if params["codebook"] is not None:
            params["codebook"] = Codebook.from_dict(read_json_table(params["codebook"], "the codebook"))
        self.__init__(**params)  # type: ignore[misc]
        if state["model"] is not None:
            self._restore(parse_model(state["model"]))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = isinstance(self.codebook, Codebook) and bool(self.codebook.texts)
        return tags


def best_class(scores: FloatArray) -> npt.NDArray[np.intp]:
    """Return the column of the largest score of each row, the first of equal ones; numpy's argmax is slow on short rows."""
    best, chosen = scores[:, 0], np.zeros(len(scores), dtype=np.intp)
    if scores.shape[1] > _MANY_CLASSES:
        scores.argmax(axis=1, out=chosen)
        return chosen
    for at in range(1, scores.shape[1]):
        chosen = np.where(scores[:, at] > best, at, chosen)
        best = np.maximum(best, scores[:, at])
    return chosen


def _is_scored() -> bool:
    """Whether one of scikit-learn's scorers asks."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "sklearn.metrics._scorer":
            return True
        frame = frame.f_back
    return False
