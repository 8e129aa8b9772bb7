"""`BaseNaiveBayes`: prediction, explanation, files and copies of a fitted model, private or not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from blindbayes.codebook import Codebook
from blindbayes.data import encode
from blindbayes.data.encode import encode_labels
from blindbayes.data.sources import is_source, query_rows, require_columns
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_json_table
from blindbayes.naive_bayes.explain import Explanation, explain
from blindbayes.naive_bayes.inputs import by_label, labels_apart, native_labels, split_columns
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings, dump_model, parse_model
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import NoiseInterval
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, WordTable

if TYPE_CHECKING:
    from blindbayes.crypto.signatures import SigningKey
    from blindbayes.report.cover_sheet import Cover

ROWS_PER_BLOCK = 1 << 14
_MANY_CLASSES = 16


class BaseNaiveBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The common part of `NaiveBayes` and `PrivateNaiveBayes`: everything but `fit` and the constructor."""

    if TYPE_CHECKING:
        codebook: Codebook | None
        alpha: float
        priors: Any
        class_weight: Any
        extra_columns: str

    # -- the state of a fit ------------------------------------------------------------------------------------------

    def _fitted(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_") and not name.startswith("_")}

    def _forget(self) -> None:
        for name in self._fitted():
            delattr(self, name)

    @contextmanager
    def _restoring(self) -> Iterator[None]:
        """Restore the fitted attributes if the block raises."""
        before = self._fitted()
        try:
            yield
        except BaseException:
            self._forget()
            for name, value in before.items():
                setattr(self, name, value)
            raise

    def _adopt_codebook(self, codebook: Codebook, label_kind: str) -> None:
        self.codebook_ = codebook
        self.classes_ = native_labels(codebook.classes, label_kind)
        self.label_kind_ = "text" if self.classes_.dtype.kind == "U" else label_kind
        self.n_features_in_ = len(codebook.features)

    def _adopt_source(self, codebook: Codebook) -> None:
        self._adopt_codebook(codebook, getattr(self, "label_kind_", "text"))
        self.feature_names_in_ = np.array(codebook.names, dtype=object)

    def _adopt_columns(
        self, names: list[Any] | None, columns: dict[str, Any], codebook: Codebook, label_kind: str
    ) -> dict[str, Any]:
        """Return the columns that the codebook names, and adopt it in the first batch. Raises for unknown columns."""
        if names is not None:
            require_columns(names, codebook, labels=False, extra_columns=self.extra_columns)
            columns = {name: columns[name] for name in codebook.names}  # an identifier is not a feature
        if not hasattr(self, "codebook_"):
            self._adopt_codebook(codebook, label_kind)
            if names is not None and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(codebook.names if self.codebook else names, dtype=object)
        self._require_width(columns)
        return columns

    def _publish(self, parameters: Parameters, statistics: Statistics | None) -> Self:
        parameters = self.parameters_ = parameters.weighed(by_label(self.priors), by_label(self.class_weight))
        self.class_log_prior_ = parameters.log_prior
        if statistics is not None:
            self.statistics_ = statistics
            self.class_count_ = statistics.class_counts.astype(np.float64)
        return self

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the most probable class of each row; ties go to the class that the codebook lists first.

        X is a frame, an array, or what `fit` and `open_table` read: a path, a database URL, an opened table.
        """
        places = [best_class(scores) for scores in self._scores(X)]
        chosen: npt.NDArray[Any] = self.classes_[np.concatenate(places)]
        return chosen

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows that are classified correctly; without `y`, X holds the class column."""
        if y is not None:
            return float(super().score(X, y, sample_weight))
        codebook = self._parameters().codebook
        if is_source(X):
            X = query_rows(X, codebook, extra_columns=self.extra_columns, labelled=True)
        names, columns = split_columns(X, codebook)
        places = encode_labels(labels_apart(names, columns, None, codebook)[2], codebook)
        right = np.concatenate([best_class(scores) for scores in self._scores(X)]) == places
        return float(np.average(right, weights=sample_weight))

    def predict_joint_log_proba(self, X: Any) -> FloatArray:
        """Return ln P(class, row), shaped (rows, classes)."""
        return np.concatenate([np.ascontiguousarray(scores) for scores in self._scores(X)])

    def _scores(self, X: Any) -> Iterator[FloatArray]:
        """Yield joint log-probabilities in blocks of rows that fit the processor's cache."""
        parameters = self._parameters()
        columns = self._query_columns(X)
        rows = len(next(iter(columns.values())))
        for start in range(0, max(rows, 1), ROWS_PER_BLOCK):
            part = slice(start, start + ROWS_PER_BLOCK)
            block = encode({name: column[part] for name, column in columns.items()}, parameters.codebook, training=False)
            yield parameters.joint_log_likelihood(block)

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return ln P(class | row), shaped (rows, classes)."""
        scores = self.predict_joint_log_proba(X)
        top = scores.max(axis=1, keepdims=True)
        normalised: FloatArray = scores - (top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)))
        return normalised

    def predict_proba(self, X: Any) -> FloatArray:
        """Return P(class | row), shaped (rows, classes)."""
        return np.exp(self.predict_log_proba(X))

    def explain(self, X: Any) -> Explanation:
        """Return what the prior and each feature add to every class score, row by row, with intervals for privacy noise."""
        return self._explanation(X)

    def _explanation(self, X: Any, **private: Any) -> Explanation:
        parameters = self._parameters()
        return explain(parameters, encode(self._query_columns(X), parameters.codebook, training=False), **private)

    def _noise_interval(self) -> NoiseInterval | None:
        """Return models that the exact table may have given behind a private one; None without noise, or if unknown."""
        return None

    def with_priors(self, priors: Any = None, class_weight: Any = None) -> Self:
        """Return a copy of the fitted model with other priors or class weights; see the parameters of the class."""
        if priors is None and class_weight is None:
            raise ConfigError("with_priors needs priors, class_weight or both")
        copy: Self = type(self)(**self.get_params(deep=False))
        copy._restore(self._record())
        copy.priors, copy.class_weight = priors, class_weight
        return copy._publish(self._parameters(), getattr(self, "statistics_", None))

    def _parameters(self) -> Parameters:
        check_is_fitted(self, "parameters_")
        parameters: Parameters = self.parameters_
        return parameters

    def _query_columns(self, X: Any) -> dict[str, Any]:
        codebook = self._parameters().codebook
        if is_source(X):
            X = query_rows(X, codebook, extra_columns=self.extra_columns)
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

    # -- parameters under scikit-learn's names -------------------------------------------------------------------------

    @property
    def feature_log_prob_(self) -> dict[str, FloatArray]:
        """Logarithm of P(value | class) per categorical, binned or text feature, shaped (classes, values or words)."""
        terms = self._parameters().terms.items()
        return {name: term.log_prob for name, term in terms if isinstance(term, Histogram | WordTable)}

    @property
    def theta_(self) -> dict[str, FloatArray]:
        """Class means per Gaussian feature."""
        return {name: term.mean for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    @property
    def var_(self) -> dict[str, FloatArray]:
        """Class variances per Gaussian feature."""
        return {name: term.variance for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    # -- files and copies --------------------------------------------------------------------------------------------

    def _settings(self) -> ModelSettings:
        """Return the settings that the model file stores."""
        declared = self.priors is not None or self.class_weight is not None
        priors = np.exp(self._parameters().log_prior).tolist() if declared else None
        named, parent = hasattr(self, "feature_names_in_"), getattr(self, "parent_", "")
        return ModelSettings(alpha=float(self.alpha), named=named, priors=priors, parent=parent)

    def _record(self) -> ModelRecord:
        statistics, privacy = getattr(self, "statistics_", None), getattr(self, "privacy_", None)
        return ModelRecord(self._parameters(), statistics, self.label_kind_, self._settings(), privacy)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON model file. All other formats are exports of it."""
        text = dump_model(self._record())
        scratch = Path(path).with_name(Path(path).name + ".part")  # replaced at once: a model file is never half written
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
        """Write the model and its documents into a new folder: statement, card, explanation, plots, index page, checksums.

        `cover` is a title, or a `Cover` with title, owner and the officer's fields. `deployment` adds the record for the
        OpenDP Deployments Registry. `signers` maps names to the keys that sign the checksums.
        """
        from blindbayes.io.files import write_folder
        from blindbayes.naive_bayes.release import release_files
        from blindbayes.report.checksums import seal_files
        from blindbayes.report.cover_sheet import Cover

        if not isinstance(cover, Cover):
            cover = Cover(title=cover or default_title(self._parameters().codebook))
        return write_folder(
            folder, seal_files(release_files(self._record(), self._noise_interval(), cover, deployment), signers, cover)
        )

    @property
    def approved_codebook_(self) -> str:
        """SHA-256 of the codebook that was agreed on; a private release may count in other cells of it."""
        return self._parameters().codebook.sha256

    def _restore(self, record: ModelRecord) -> Self:
        codebook = record.parameters.codebook
        self._adopt_codebook(codebook, record.label_kind)
        if record.settings.named:
            self.feature_names_in_ = np.array(codebook.names, dtype=object)
        if record.settings.parent:
            self.parent_ = record.settings.parent
        if record.settings.priors is not None:
            self.priors, self.class_weight = record.settings.priors, None
        self._publish(record.parameters, record.statistics)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return builtins only, so that joblib and skops need to trust no class but this one."""
        state: dict[str, Any] = dict(self.get_params(deep=False))
        state["codebook"] = None if self.codebook is None else self.codebook.canonical().decode()
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
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = isinstance(self.codebook, Codebook) and bool(self.codebook.texts)
        return tags


def default_title(codebook: Codebook) -> str:
    """Return the title of a release that was given none."""
    return f"Naive Bayes classifier of {codebook.target}"


def best_class(scores: FloatArray) -> npt.NDArray[np.intp]:
    """Return the first column with the largest score of each row; numpy's argmax is slow on short rows."""
    best, chosen = scores[:, 0], np.zeros(len(scores), dtype=np.intp)
    if scores.shape[1] > _MANY_CLASSES:
        scores.argmax(axis=1, out=chosen)
        return chosen
    for label in range(1, scores.shape[1]):
        chosen = np.where(scores[:, label] > best, label, chosen)
        best = np.maximum(best, scores[:, label])
    return chosen
