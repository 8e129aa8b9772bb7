"""`NaiveBayes`: the scikit-learn face of the package."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from blindbayes.codebook import DEFAULT_MAX_ROWS, Codebook, Numeric
from blindbayes.data import count_table, encode
from blindbayes.data.infer import infer_feature, infer_labels
from blindbayes.data.persons import Persons, drawn_rows, require_rows_per_person
from blindbayes.data.sources import frame_columns, is_source, require_columns, to_arrow
from blindbayes.data.table import object_rows, read_block, take
from blindbayes.data.values import Untyped, plain_text, untyped
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.foreign import read_json_table
from blindbayes.ledger import Ledger
from blindbayes.model.explain import Explanation, NoiseInterval, explain
from blindbayes.model.file import MAX_BYTES, ModelRecord, dump_model, parse_model
from blindbayes.model.histograms import histograms
from blindbayes.model.parameters import FloatArray, Gaussian, Histogram, Parameters, estimate
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.cells import fine_codebook, is_cut
from blindbayes.privacy.exact_events import as_decimal
from blindbayes.privacy.fitting import plan_fit
from blindbayes.privacy.forecast import noisy_accuracy, score_price
from blindbayes.privacy.intervals import noise_interval
from blindbayes.privacy.statement import Deployment, PrivacyStatement
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block

if TYPE_CHECKING:
    from blindbayes.primitives.signatures import SigningKey
    from blindbayes.report import Cover

_TARGET = "class"
_MAX_WEIGHT = 2**31
_ROWS_AT_ONCE = 1 << 14
_EXACT_SCORE = (
    "an exact score is a function of private rows: under a ledger set score_epsilon, leave scoring and sample_weight out, or "
    "choose settings by `private_forecast` (Python) or `blindbayes plan` (command line)"
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


class NaiveBayes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Naive Bayes for mixed categorical, Gaussian and binned features, from exact integer statistics.

    Parameters
    ----------
    codebook : Codebook, default=None
        Public facts about the columns. Without one, it is inferred from the training data; that is for ordinary use and is
        refused together with `epsilon`.
    alpha : float, default=1.0
        Laplace smoothing of categorical and binned features.
    var_smoothing : float, default=1e-9
        Share of the largest variance that is added to every variance, as in scikit-learn's GaussianNB. Not used where the
        codebook declares a `variance_floor`.
    epsilon : float, default=None
        Privacy loss of the fit. None means no privacy.
    delta : float, default=0.0
        Second privacy parameter; 0 means pure differential privacy.
    mechanism : str, default="auto"
        "auto", "discrete_laplace", "knorm", "discrete_gaussian", "smooth" or "global".
    ledger : path, default=None
        File that records privacy spent; charged before anything is released.
    expected_rows : int, default=None
        With `epsilon`: the size of the table as publicly known or guessed, by default the codebook's `expected_rows`. It
        decides how fine the release is; `len(X)` is private and is never looked at.
    rows_per_person : int, default=None
        With `epsilon`: the most rows of one person that count. None protects a record; a number protects such a person. Where
        the codebook has an identifier and the table its columns, so many rows of each person are drawn at random, and none
        without an identifier; otherwise the caller declares it, and the statement says that it was not checked.
    allocation : pair of int, default=None
        With `mechanism` "smooth" or "global": weights of a numeric and of a categorical feature in the budget, by default
        (2, 1).
    gamma : float, default=None
        With `mechanism` "smooth": the exponent of the heavy-tailed noise, by default 2 (Cauchy).
    score_epsilon : float, default=None
        With `epsilon` and `ledger`: what each `score` costs. Without it `score` is refused there, since an exact score is a
        function of private rows.
    tuning : str, default=None
        With `epsilon`: how settings were chosen, for the statement. By default it says that this is assumed, not checked.

    numeric : str, default="gaussian"
        How numbers without bins are modelled: "gaussian" by mean and variance, "histogram" in about equally full cells, which
        fits numbers that are not bell-shaped and needs a codebook. Private fits always take cells.
    labels : str, default="auto"
        With `epsilon`: the type of `classes_`, "text", "integer", "real" or "boolean". "auto" takes that of the array; what
        objects a list or an object column holds is a fact about its rows, so there it takes integers (or truth values) if all
        of the codebook's classes read so: pass "text" if yours are digits in quotes.

    Attributes
    ----------
    codebook_ : Codebook
        The codebook in force.
    statistics_ : Statistics
        The integer statistics the model was made from: exact, or noisy under `epsilon`.
    classes_, class_count_, class_log_prior_, n_features_in_, feature_names_in_
        As in scikit-learn.
    parameters_ : Parameters
        Tables of log-probabilities, means and variances by feature.
    privacy_ : dict
        With `epsilon`: what was released and how, in public facts.
    statement_ : PrivacyStatement
        With `epsilon`: the promise, for the privacy officer.
    """

    def __init__(
        self,
        codebook: Codebook | None = None,
        *,
        alpha: float = 1.0,
        var_smoothing: float = 1e-9,
        epsilon: float | None = None,
        delta: float = 0.0,
        mechanism: str = "auto",
        ledger: str | os.PathLike[str] | None = None,
        expected_rows: int | None = None,
        rows_per_person: int | None = None,
        allocation: tuple[int, int] | None = None,
        gamma: float | None = None,
        score_epsilon: float | None = None,
        tuning: str | None = None,
        numeric: str = "gaussian",
        labels: str = "auto",
    ) -> None:
        self.codebook = codebook
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.epsilon = epsilon
        self.delta = delta
        self.mechanism = mechanism
        self.ledger = ledger
        self.expected_rows = expected_rows
        self.rows_per_person = rows_per_person
        self.allocation = allocation
        self.gamma = gamma
        self.score_epsilon = score_epsilon
        self.tuning = tuning
        self.numeric = numeric
        self.labels = labels

    # -- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit from a frame or array and its labels, or from a path, database URL or frame that holds the class column.

        The whole-number `sample_weight` counts a row that many times.
        """
        self._forget()
        with self._whole():
            if self.epsilon is not None:
                return self._fit_private(X, y, sample_weight, self.epsilon)
            return self._finish(self._statistics(X, y, sample_weight, classes=None))

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch. Exact: any split of the rows into batches, in any order, gives the same model.

        Without a codebook the first batch must name all `classes`, and fixes the categories and the grid.
        """
        if self.epsilon is not None:
            raise PrivacyError("partial_fit would release once per batch; fit once with epsilon, or run a study with deltas")
        before = getattr(self, "statistics_", None)
        if hasattr(self, "privacy_"):
            raise PrivacyError("this model was released with noise; rows added to it would be released without any")
        if before is None and hasattr(self, "parameters_"):
            raise ConfigError("this model was made without exact statistics; a batch cannot be added to it")
        with self._whole():
            statistics = self._statistics(X, y, sample_weight, classes=classes, batch=True)
            return self._finish(statistics if before is None else (before + statistics).require_bounds())

    @classmethod
    def from_statistics(cls, statistics: Statistics, *, alpha: float = 1.0, var_smoothing: float = 1e-9) -> Self:
        """A fitted model from statistics that a protocol summed."""
        model = cls(statistics.codebook, alpha=alpha, var_smoothing=var_smoothing)
        model._adopt_codebook(statistics.codebook, "text")
        return model._finish(statistics)

    def _fitted(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_") and not name.startswith("_")}

    def _forget(self) -> None:
        for name in self._fitted():
            delattr(self, name)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All or nothing: what fails inside leaves the estimator as it was."""
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
        self.label_kind_ = label_kind
        self.classes_ = _native_labels(codebook.classes, label_kind)
        self.n_features_in_ = len(codebook.features)

    def _finish(self, statistics: Statistics) -> Self:
        parameters = estimate(statistics, alpha=self.alpha, var_smoothing=self.var_smoothing)
        if self.numeric == "histogram" and self.codebook is not None:
            parameters = histograms(statistics, self._cut(), parameters, self.alpha)
        return self._publish(parameters, statistics)

    def _cut(self) -> dict[str, str]:
        """Numbers that are histograms of cells of their own, with the scale they were declared with."""
        if self.numeric != "histogram" or self.codebook is None or self.epsilon is not None:
            return {}
        return {each.name: each.spacing for each in self.codebook.features if isinstance(each, Numeric) and is_cut(each)}

    def _publish(self, parameters: Parameters, statistics: Statistics | None) -> Self:
        self.parameters_ = parameters
        self.class_log_prior_ = parameters.log_prior
        if statistics is not None:
            self.statistics_ = statistics
            self.class_count_ = statistics.class_counts.astype(np.float64)
        return self

    def _statistics(
        self, X: Any, y: Any, sample_weight: Any, *, classes: Any, batch: bool = False, counting: Codebook | None = None
    ) -> Statistics:
        """Exact statistics of the training data, with the codebook adopted or inferred on the way.

        `counting` is for a private fit: it counts with the cells of its plan, and no row is an error.
        """
        if is_source(X):
            if y is not None or sample_weight is not None:
                raise ConfigError("a path, URL or source holds its own class column: leave y and sample_weight out")
            codebook = counting or self._known_codebook()
            if codebook is None:
                raise ConfigError("fitting from a path, URL or source needs a codebook; see Codebook.from_toml")
            statistics = count_table(X, codebook, total=counting is not None, persons=self._persons(codebook))
            self._adopt_source(codebook)
            return statistics
        if batch and classes is None and self._known_codebook() is None:
            raise ConfigError("the first partial_fit must name all classes, or the estimator must have a codebook")
        if counting is not None:
            return count_block(Layout(counting), self._private_block(X, y, counting))
        block, weights = self._training_block(X, y, sample_weight, classes, self._known_codebook())
        return count_block(Layout(self.codebook_), block, weights)

    def _adopt_source(self, codebook: Codebook) -> None:
        self._adopt_codebook(codebook, getattr(self, "label_kind_", "text"))
        self.feature_names_in_ = np.array(codebook.names, dtype=object)

    def _known_codebook(self) -> Codebook | None:
        if self.codebook is not None and not isinstance(self.codebook, Codebook):
            raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
        if self.numeric not in ("gaussian", "histogram"):
            raise ConfigError("numeric is gaussian or histogram")
        if self.labels not in ("auto", "text", "integer", "real", "boolean"):
            raise ConfigError("labels is auto, text, integer, real or boolean")
        declared = self.codebook
        if self.numeric == "histogram" and self.epsilon is None:
            if declared is None:
                raise ConfigError("numeric='histogram' cuts numbers between declared bounds: pass a codebook")
            declared = fine_codebook(declared)
        known: Codebook | None = getattr(self, "codebook_", None) or declared
        if declared is not None and known != declared:
            raise ConfigError("the codebook changed between batches; call fit to start anew")
        return known

    def _training_block(
        self, X: Any, y: Any, sample_weight: Any, classes: Any, codebook: Codebook | None
    ) -> tuple[CodedRows, npt.NDArray[np.int64] | None]:
        names, columns = _split_columns(X, codebook)
        names, columns, y = _labels_apart(names, columns, y, codebook)
        labels, label_kind = _plain_labels(y)
        check_consistent_length(*columns.values(), labels)
        if len(labels) == 0:
            raise DataError("0 sample(s): the table is empty; a model needs at least one row")
        if codebook is None:
            codebook = _infer(columns, labels, classes, label_kind)
        elif classes is not None and {plain_text(item) for item in _plain_labels(classes)[0].to_pylist()} != {
            *codebook.classes
        }:
            raise ConfigError("classes differ from the codebook's, which fixes them")
        columns = self._adopt_columns(names, columns, codebook, label_kind)
        weights = _whole_weights(sample_weight, len(labels))
        return encode(columns, codebook, training=True, labels=labels), weights

    def _private_block(self, X: Any, y: Any, codebook: Codebook) -> CodedRows:
        """Codes of the training data of a private fit: every cell is read by itself, and no value is an error."""
        names, columns = _private_columns(X, codebook)
        inside = y is None and names is not None and codebook.target in names
        names, columns, y = _labels_apart(names, columns, y, codebook)
        labels, label_kind = _private_labels(y, codebook)
        if inside and str(getattr(X[codebook.target], "dtype", "")).lower() == "object":
            label_kind = _listed_kind(codebook)
        if self.labels != "auto":
            label_kind = self.labels
        check_consistent_length(*columns.values(), labels)
        if names is not None and self._is_bounded(names) and (persons := self._persons(codebook)) is not None:
            places = drawn_rows(columns, codebook, persons)
            columns = {name: take(column, places) for name, column in columns.items()}
            labels = take(labels, places)
        columns = self._adopt_columns(names, columns, codebook, label_kind)
        return encode(columns, codebook, training=True, labels=labels, total=True)

    @property
    def _unit_rows(self) -> int:
        """Rows of what epsilon protects."""
        if self.rows_per_person is None:
            return 1
        require_rows_per_person(self.rows_per_person)
        return self.rows_per_person

    def _is_bounded(self, names: Sequence[Any] | None) -> bool:
        """Whether a person's rows are bounded here; `names`: the columns of the table, None for a source's."""
        if self.rows_per_person is None or self.codebook is None or self.codebook.identifier is None:
            return False
        return names is None or {part.column for part in self.codebook.identifier.parts} <= set(names)

    def _persons(self, codebook: Codebook) -> Persons | None:
        """How many rows of a person count in a private fit; None: all of them."""
        if self.epsilon is None or codebook.identifier is None or self.rows_per_person is None:
            return None
        return Persons(self._unit_rows, Coins.system().bytes(32))

    def _adopt_columns(
        self, names: list[Any] | None, columns: dict[str, Any], codebook: Codebook, label_kind: str
    ) -> dict[str, Any]:
        """The columns of the codebook, which is adopted, or an error if there are others."""
        if names is not None:
            require_columns(names, codebook, labels=False)
            columns = {name: columns[name] for name in codebook.names}  # an identifier is no feature
        if not hasattr(self, "codebook_"):
            self._adopt_codebook(codebook, label_kind)
            if names is not None and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(codebook.names if self.codebook else names, dtype=object)
        self._require_width(columns)
        return columns

    def _fit_private(self, X: Any, y: Any, sample_weight: Any, epsilon: float) -> Self:
        """One joint release. The plan and its price come first, from public facts; then counting, the ledger, the noise."""
        if sample_weight is not None:
            raise PrivacyError("sample_weight multiplies what one row can change; drop it, or fit without epsilon")
        codebook = self._known_codebook()
        if codebook is None or codebook.provenance == "inferred":
            raise PrivacyError(
                f"column {_first_name(X)!r} has no declared domain: epsilon needs a codebook made from public knowledge "
                "(bounds, categories, class labels); write one and pass it as codebook="
            )
        release = plan_fit(
            codebook,
            epsilon=epsilon,
            delta=self.delta,
            mechanism=self.mechanism,
            rows=self.expected_rows,
            rows_per_person=self._unit_rows,
            allocation=self.allocation,
            gamma=self.gamma,
        )
        exact: Statistics | CodedRows
        if release.wants_rows:
            if is_source(X):
                exact = read_block(X, release.codebook, total=True, persons=self._persons(release.codebook))
                self._adopt_source(release.codebook)
            else:
                exact = self._private_block(X, y, release.codebook)
        else:
            exact = self._statistics(X, y, None, classes=None, counting=release.codebook)
        spent = None
        if self.ledger is not None:
            ledger = Ledger(self.ledger)
            ledger.charge(release, purpose="NaiveBayes.fit", codebook=codebook.sha256)
            spent = str(ledger.balance())
        parameters, noisy, record = release.release(exact, self.alpha, Coins.system())
        arrow = isinstance(X, pa.Table | pa.RecordBatch)
        names = None if is_source(X) else list(X.schema.names if arrow else getattr(X, "columns", ()))
        bounded = None if self.rows_per_person is None else self._is_bounded(names)
        self.privacy_ = {**release.facts(), "statement": release.statement(spent, self.tuning, bounded).to_dict()}
        if record is not None:
            self.privacy_ |= record.pop("facts", {})  # as the stages turned out
            self.privacy_["released"] = record
        return self._publish(parameters, noisy)

    @property
    def statement_(self) -> PrivacyStatement:
        """The promise of a private fit, for the privacy officer."""
        check_is_fitted(self, "privacy_")
        return PrivacyStatement(**self.privacy_["statement"])

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most probable class of each row; a tie goes to the class that the codebook lists first."""
        scores = self.predict_joint_log_proba(X)
        chosen: npt.NDArray[Any] = self.classes_[np.argmax(scores, axis=1)]
        return chosen

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy on the given rows. Under a ledger it is a release, like a fit: noisy, and paid for by `score_epsilon`.

        The noise is that of `private_forecast`: half of the budget on the right answers, half on the number of rows.
        """
        if self.epsilon is None or self.ledger is None:
            return float(super().score(X, y, sample_weight))
        if self.score_epsilon is None or sample_weight is not None:
            raise PrivacyError(_EXACT_SCORE)
        right = int((np.asarray(self.predict(X)) == np.asarray(y)).sum())
        price = score_price(self.score_epsilon, self._unit_rows)
        spend = Spend(as_decimal(price.epsilon))
        Ledger(self.ledger).charge(spend, purpose="NaiveBayes.score", unit=price.unit)
        return noisy_accuracy(right, len(np.asarray(y)), self.score_epsilon, self._unit_rows, Coins.system())

    def predict_joint_log_proba(self, X: Any) -> FloatArray:
        """ln P(class, row), shaped (rows, classes)."""
        if self.epsilon is not None and self.ledger is not None and _is_scored():
            raise PrivacyError(_EXACT_SCORE)
        parameters = self._parameters()
        columns = self._query_columns(X)
        rows = len(next(iter(columns.values())))
        if rows <= _ROWS_AT_ONCE:
            return parameters.joint_log_likelihood(encode(columns, parameters.codebook, training=False))
        scores = np.empty((rows, len(self.classes_)))
        for start in range(0, rows, _ROWS_AT_ONCE):  # what is in the cache is scored ten times as fast
            part = slice(start, start + _ROWS_AT_ONCE)
            block = encode({name: column[part] for name, column in columns.items()}, parameters.codebook, training=False)
            scores[part] = parameters.joint_log_likelihood(block)
        return scores

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
        return noise_interval(getattr(self, "privacy_", None), self._parameters(), self.alpha)

    def _parameters(self) -> Parameters:
        check_is_fitted(self, "parameters_")
        parameters: Parameters = self.parameters_
        return parameters

    def _query_columns(self, X: Any) -> dict[str, Any]:
        codebook = self._parameters().codebook
        names, columns = _split_columns(X, codebook)
        if names is not None:
            columns = {name: column for name, column in columns.items() if name != codebook.target}
            require_columns([*columns], codebook, labels=False)
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
        """ln P(value | class) by categorical or binned feature, shaped (classes, values)."""
        return {name: term.log_prob for name, term in self._parameters().terms.items() if isinstance(term, Histogram)}

    @property
    def theta_(self) -> dict[str, FloatArray]:
        """Mean per class by Gaussian feature."""
        return {name: term.mean for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    @property
    def var_(self) -> dict[str, FloatArray]:
        """Variance per class by Gaussian feature."""
        return {name: term.variance for name, term in self._parameters().terms.items() if isinstance(term, Gaussian)}

    # -- files and copies --------------------------------------------------------------------------------------------

    def _record(self) -> ModelRecord:
        settings: dict[str, Any] = {"alpha": float(self.alpha), "var_smoothing": float(self.var_smoothing)}
        names = getattr(self, "feature_names_in_", None)
        settings["named"] = names is not None
        if cut := self._cut():
            settings["numeric"] = cut
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
        from blindbayes.report import Cover, release_files, seal_files
        from blindbayes.storage.folder import write_folder

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
        return self._publish(record.parameters, record.statistics)

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
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def load(path: str | os.PathLike[str]) -> NaiveBayes:
    """Read a JSON model file. Nothing in it is executed; an unknown version or field is refused."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if raw.startswith(b"blindbayes share "):
            raise ConfigError("this is a share of a model, not a model: all its sites classify with `blindbayes study predict`")
        text = raw.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"model file {os.fspath(path)!r} does not exist; `blindbayes train` writes one") from None
    except (OSError, UnicodeDecodeError) as cause:
        raise ConfigError(f"model file {os.fspath(path)!r} cannot be read ({type(cause).__name__})") from None
    record = parse_model(text)
    settings = record.settings
    codebook, cut = record.parameters.codebook, settings.get("numeric", {})
    codebook = codebook.with_features(
        msgspec.structs.replace(each, bins=None, edges=(), spacing=cut[each.name])
        if isinstance(each, Numeric) and each.name in cut
        else each
        for each in codebook.features
    )
    if cut and fine_codebook(codebook) != record.parameters.codebook:
        raise ConfigError("the model file's cells are not those of this version")
    numeric = "histogram" if cut else "gaussian"
    model = NaiveBayes(codebook, alpha=settings["alpha"], var_smoothing=settings["var_smoothing"], numeric=numeric)
    return model._restore(record)


def _is_scored() -> bool:
    """Whether one of scikit-learn's scorers asks, other than by `score`, which pays."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == __name__ and frame.f_code.co_name == "score":
            return False
        if frame.f_globals.get("__name__") == "sklearn.metrics._scorer":
            return True
        frame = frame.f_back
    return False


def _first_name(X: Any) -> str:
    """A column to name in an error: the frame's first, or the array's."""
    names = getattr(X, "columns", None)
    return str(names[0]) if names is not None and len(names) and isinstance(names[0], str) else "x0"


def _labels_apart(
    names: list[Any] | None, columns: dict[str, Any], y: Any, codebook: Codebook | None
) -> tuple[list[Any] | None, dict[str, Any], Any]:
    """Features and labels, which stand in `y` or in the class column of a frame."""
    target = codebook.target if codebook else _TARGET
    if y is None and target in columns and names is not None:
        y = columns[target]
        columns = {name: column for name, column in columns.items() if name != target}
        names = [*columns]
    elif y is not None and codebook is not None and names is not None and target in columns:
        raise DataError(f"column {target!r} stands in X, and y was passed too; drop one")
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None; pass y, or a frame with the class column")
    return names, columns, y


def _private_columns(X: Any, codebook: Codebook) -> tuple[list[Any] | None, dict[str, Any]]:
    """Column names and columns of objects or of one type; no row has a say in how another is read."""
    if hasattr(X, "columns") or isinstance(X, pa.Table):
        if isinstance(X, pa.Table | pa.RecordBatch) or all(isinstance(name, str) for name in X.columns):
            columns = frame_columns(X)
            return [*columns], columns
        X = np.asarray(X)
    elif isinstance(X, Sequence):
        X = object_rows(X, len(codebook.names))
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
    if array.dtype.kind not in "biufUO":
        raise DataError("the array holds neither texts, numbers nor truth values; cast it before")
    names = codebook.names if array.shape[1] == len(codebook.names) else [f"x{at}" for at in range(array.shape[1])]
    return None, {name: array[:, at] for at, name in enumerate(names)}


def _private_labels(y: Any, codebook: Codebook) -> tuple[Any, str]:
    """Labels as they stand, and the type of `classes_`: that of an array of texts, truth values or whole numbers, which is
    public; else as the codebook's classes read, since what objects a list or a frame holds is a fact about its rows."""
    if isinstance(y, Untyped):
        return y, _listed_kind(codebook)
    if isinstance(y, pa.ChunkedArray | pa.Array):
        kind = y.type.value_type if pa.types.is_dictionary(y.type) else y.type
        names = {"text": pa.types.is_string, "boolean": pa.types.is_boolean, "integer": pa.types.is_integer}
        return y, next((name for name, holds in names.items() if holds(kind)), _listed_kind(codebook))
    if isinstance(y, Sequence):
        flat = np.empty(len(y), dtype=object)
        flat[:] = y
    else:
        flat = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
    kinds = {"U": "text", "b": "boolean", "i": "integer", "u": "integer"}
    if flat.dtype.kind not in "biufUO":
        raise DataError("the class column holds neither text, whole numbers nor truth values; cast it to text")
    labels = untyped(flat) if flat.dtype == object else flat
    return labels, kinds.get(flat.dtype.kind, _listed_kind(codebook))


def _listed_kind(codebook: Codebook) -> str:
    if set(codebook.classes) <= {"true", "false"}:
        return "boolean"
    return "integer" if all(_WHOLE.fullmatch(label) for label in codebook.classes) else "text"


def _split_columns(X: Any, codebook: Codebook | None) -> tuple[list[Any] | None, dict[str, Any]]:
    """Column names (None for an unnamed array) and one array per column."""
    if hasattr(X, "toarray") or hasattr(X, "tocsr"):
        raise TypeError("Sparse data was passed, but dense data is required. Use '.toarray()' to convert to a dense array.")
    if hasattr(X, "columns") or isinstance(X, pa.Table):
        if not isinstance(X, pa.Table | pa.RecordBatch) and not all(isinstance(name, str) for name in X.columns):
            return None, _array_columns(np.asarray(X), codebook)
        if codebook is not None:
            columns = frame_columns(X)
            return [*columns], columns
        table = to_arrow(X)
        return list(table.column_names), {name: table.column(name) for name in table.column_names}
    return None, _array_columns(X, codebook)


def _array_columns(X: Any, codebook: Codebook | None) -> dict[str, Any]:
    array = np.asarray(X) if not isinstance(X, np.ndarray) else X
    if array.dtype.kind == "U":
        array = array.astype(object)
    if array.dtype != object or not _holds_text(array):
        # Missing is fine, infinity is not; a numeric array in an object dtype becomes numbers again.
        _require_numbers(array)
        array = check_array(X, dtype="numeric", ensure_all_finite="allow-nan", ensure_min_samples=0)
    elif array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
    count_ = array.shape[1]
    names: Sequence[str] = [f"x{at}" for at in range(count_)]
    if codebook is not None and len(codebook.names) == count_:
        names = codebook.names
    return {name: array[:, at] for at, name in enumerate(names)}


def _require_numbers(array: npt.NDArray[Any]) -> None:
    """Refuse what is no number before NumPy does: its message quotes the value."""
    if array.dtype.kind not in "OS":
        return
    try:
        array.astype(np.float64)
    except (ValueError, OverflowError):
        pass
    except TypeError:  # scikit-learn words this one, by type and not by value
        return
    else:
        return
    raise DataError("the array holds something that is no number, or one too large for a float; cast it, or pass a frame")


def _holds_text(array: npt.NDArray[Any]) -> bool:
    return array.ndim == 2 and any(isinstance(value, str) for row in array for value in row)


def _plain_labels(y: Any) -> tuple[pa.Array, str]:
    """Labels as an Arrow array of text, whole numbers or truth values, and which of them the caller used."""
    if isinstance(y, pa.Array | pa.ChunkedArray):
        y = y.to_numpy(zero_copy_only=False) if isinstance(y, pa.Array) else y.to_numpy()
    elif getattr(getattr(y, "dtype", None), "kind", "") in ("i", "u", "b") and hasattr(y, "to_numpy"):
        y = y.to_numpy()  # scikit-learn makes floats of pandas' nullable integers
    flat = column_or_1d(y, warn=True)
    if flat.dtype == object:
        if any(value is None or type(value).__name__ == "NAType" or value != value for value in flat):
            raise DataError("the class column has rows without a label; drop them")
        if len(flat) and all(isinstance(value, bool | np.bool_) for value in flat):
            flat = flat.astype(bool)
        elif len(flat) and all(_is_whole(value) for value in flat):
            flat = flat.astype(np.int64)
    if len(flat):
        check_classification_targets(flat)
    kind = flat.dtype.kind
    if kind in "Mm":
        raise DataError("the class column holds dates or times; cast them to text")
    if (kind == "u" and (flat > np.uint64(2**63 - 1)).any()) or (kind == "f" and (np.abs(flat) >= 2.0**53).any()):
        raise DataError("the class column holds whole numbers too large to tell apart; cast them to text")
    if kind == "b":
        return pa.array(flat), "boolean"
    if kind in "iu":
        return pa.array(flat.astype(np.int64)), "integer"
    if kind == "f":
        return pa.array(flat.astype(np.int64)), "real"
    if not all(isinstance(value, str) for value in flat):
        raise DataError("the class column holds objects that are neither text, whole numbers nor truth values")
    return pa.array([str(value) for value in flat], pa.string()), "text"


def _is_whole(value: Any) -> bool:
    """A 64-bit integer. Booleans do not count as integers: one row must not change how the others are read."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 2**63


def _native_labels(classes: tuple[str, ...], kind: str) -> npt.NDArray[Any]:
    """Labels in the type that the caller trained with."""
    try:
        if kind == "integer":
            return np.array([int(label) for label in classes], dtype=np.int64)
        if kind == "real":
            return np.array([float(label) for label in classes], dtype=np.float64)
        if kind == "boolean" and set(classes) <= {"true", "false"}:
            return np.array([label == "true" for label in classes], dtype=bool)
    except ValueError:
        pass
    return np.array(classes, dtype=str)


def _infer(columns: Mapping[str, Any], labels: pa.Array, classes: Any, label_kind: str) -> Codebook:
    """An inferred codebook with room around the numbers seen, for later batches and queries."""
    listed = labels if classes is None else _plain_labels(np.unique(np.asarray(classes)))[0]
    features = tuple(infer_feature(str(name), column, room=True) for name, column in columns.items())
    target = _TARGET
    while target in {str(name).casefold() for name in columns}:
        target += "_"
    return Codebook(target, infer_labels(listed, target), features, max_rows=DEFAULT_MAX_ROWS, provenance="inferred")


def _whole_weights(sample_weight: Any, rows: int) -> npt.NDArray[np.int64] | None:
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(rows, float(weights))
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(rows,)}!")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights == np.floor(weights)).all()):
        raise DataError("sample_weight must be whole numbers that are not negative; multiply up to a common denominator")
    if len(weights) and weights.max() > _MAX_WEIGHT:
        raise DataError("sample_weight must be at most 2^31")
    if not weights.any():
        raise DataError("sample_weight is zero for every row; a model needs at least one row")
    return weights.astype(np.int64)
