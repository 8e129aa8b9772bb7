"""`NaiveBayes`: the scikit-learn face of the package."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table, encode
from blindbayes.data.contribution_bound import ContributionBound, require_rows_per_person, sample_rows
from blindbayes.data.counting import count_batches
from blindbayes.data.frames import eager
from blindbayes.data.sources import is_source, require_columns
from blindbayes.data.table import read_block, take
from blindbayes.data.values import plain_text
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.dp.noise.mechanisms import Priced
from blindbayes.dp.release.cells import fine_codebook, is_cut
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.dp.release.staged import MOST_READ
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.io.untrusted import MAX_MODEL_BYTES
from blindbayes.naive_bayes.fitted import FittedModel
from blindbayes.naive_bayes.inputs import (
    by_label,
    first_name,
    infer,
    is_loose,
    labels_apart,
    listed_kind,
    native_labels,
    plain_labels,
    private_columns,
    private_labels,
    split_columns,
    whole_weights,
)
from blindbayes.naive_bayes.model_file import parse_model
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.histograms import histograms
from blindbayes.statistics.parameters import Parameters, estimate

__all__ = ["NaiveBayes", "load"]

_TARGET = "class"
_MAX_WEIGHT = 2**31
_ROWS_AT_ONCE = 1 << 14
_EXACT_SCORE = (
    "an exact score is a function of private rows: under a ledger set score_epsilon, leave scoring and sample_weight out, or "
    "choose settings by `private_forecast` (Python) or `blindbayes plan` (command line)"
)
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


class NaiveBayes(FittedModel, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
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
    ledger : path, default=None
        File that records privacy spent; charged before anything is released.
    expected_rows : int, default=None
        With `epsilon`: the size of the table as publicly known or guessed, by default the codebook's `expected_rows`. It
        decides how fine the release is; `len(X)` is private and is never looked at.
    rows_per_person : int, default=None
        With `epsilon`: the most rows of one person that count. None protects a record; a number protects such a person. Where
        the codebook has an identifier and the table its columns, so many rows of each person are drawn at random, and none
        without an identifier; otherwise the caller declares it, and the statement says that it was not checked.
    score_epsilon : float, default=None
        With `epsilon` and `ledger`: what each `score` costs. Without it `score` is refused there, since an exact score is a
        function of private rows.
    tuning : str, default=None
        With `epsilon`: how settings were chosen, for the statement. By default it says that this is assumed, not checked.

    numeric : str, default="gaussian"
        How numbers without bins are modelled: "gaussian" by mean and variance, "histogram" in about equally full cells, which
        fits numbers that are not bell-shaped and needs a codebook. Private fits always take cells.
    extra_columns : str, default="refuse"
        What happens to columns of a frame or source that the codebook does not know: "refuse" or "ignore".
    priors : mapping or sequence, default=None
        Public probabilities of the classes where the model will be used, by label or in the order of `classes_`, in place of
        the counted ones: 5% ill in deployment, although half of the rows are.
    class_weight : mapping or "balanced", default=None
        How much more an error in one class costs than in another: multiplies the priors. "balanced" makes all classes alike.

    weight_step : float, default=None
        The grid of `sample_weight`: each is rounded to a multiple of it, and the statistics, whole numbers, count in such
        steps. One over a whole number, such as 0.01. None: weights are whole numbers.

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
        ledger: str | os.PathLike[str] | None = None,
        expected_rows: int | None = None,
        rows_per_person: int | None = None,
        score_epsilon: float | None = None,
        tuning: str | None = None,
        numeric: str = "gaussian",
        priors: Mapping[Any, float] | Sequence[float] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        extra_columns: str = "refuse",
        weight_step: float | None = None,
    ) -> None:
        self.codebook = codebook
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.epsilon = epsilon
        self.delta = delta
        self.ledger = ledger
        self.expected_rows = expected_rows
        self.rows_per_person = rows_per_person
        self.score_epsilon = score_epsilon
        self.tuning = tuning
        self.numeric = numeric
        self.priors = priors
        self.class_weight = class_weight
        self.extra_columns = extra_columns
        self.weight_step = weight_step

    # -- fitting -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit from a frame or array and its labels, or from a path, database URL or frame that holds the class column.

        The whole-number `sample_weight` counts a row that many times; see `weight_step` for others.
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
        self.classes_ = native_labels(codebook.classes, label_kind)
        self.label_kind_ = "text" if self.classes_.dtype.kind == "U" else label_kind
        self.n_features_in_ = len(codebook.features)

    def _finish(self, statistics: Statistics) -> Self:
        parameters = estimate(statistics, alpha=self._alpha, var_smoothing=self.var_smoothing)
        if self.numeric == "histogram" and self.codebook is not None:
            parameters = histograms(statistics, self._cut(), parameters, self._alpha)
        return self._publish(parameters, statistics)

    def _cut(self) -> dict[str, str]:
        """Numbers that are histograms of cells of their own, with the scale they were declared with."""
        if self.numeric != "histogram" or self.codebook is None or self.epsilon is not None:
            return {}
        return {each.name: each.spacing for each in self.codebook.features if isinstance(each, Numeric) and is_cut(each)}

    def _publish(self, parameters: Parameters, statistics: Statistics | None) -> Self:
        parameters = self.parameters_ = parameters.weighed(by_label(self.priors), by_label(self.class_weight))
        self.class_log_prior_ = parameters.log_prior
        if statistics is not None:
            self.statistics_ = statistics
            self.class_count_ = statistics.class_counts.astype(np.float64) / self._steps
        return self

    def _statistics(
        self, X: Any, y: Any, sample_weight: Any, *, classes: Any, batch: bool = False, counting: Codebook | None = None
    ) -> Statistics:
        """Exact statistics of the training data, with the codebook adopted or inferred on the way.

        `counting` is for a private fit: it counts with the cells of its plan, and no row is an error.
        """
        if is_source(X):
            self._require_alone(y, sample_weight)
            codebook = counting or self._known_codebook()
            if codebook is None:
                raise ConfigError("fitting from a path, URL or source needs a codebook; see Codebook.from_toml")
            statistics = count_table(
                X,
                codebook,
                lenient=counting is not None,
                extra_columns=self.extra_columns,
                bound=self._contribution_bound(codebook),
            )
            self._adopt_source(codebook)
            return statistics
        if batch and classes is None and self._known_codebook() is None:
            raise ConfigError("the first partial_fit must name all classes, or the estimator must have a codebook")
        columns, labels = self._training_columns(X, y, classes, self._known_codebook())
        weights, codebook = whole_weights(sample_weight, len(labels), self._steps), self.codebook_
        if weights is not None:
            return count_block(Layout(codebook), encode(columns, codebook, training=True, labels=labels), weights)
        parts = (slice(start, start + _ROWS_AT_ONCE) for start in range(0, len(labels), _ROWS_AT_ONCE))
        batches = ({codebook.target: labels[part], **{name: columns[name][part] for name in columns}} for part in parts)
        return count_batches(batches, codebook, False)

    def _require_alone(self, y: Any, sample_weight: Any) -> None:
        if y is not None or sample_weight is not None or self.weight_step is not None:
            raise ConfigError(
                "a path, URL or source holds its own class column and has no weights: leave y, sample_weight and "
                "weight_step out"
            )

    def _adopt_source(self, codebook: Codebook) -> None:
        self._adopt_codebook(codebook, getattr(self, "label_kind_", "text"))
        self.feature_names_in_ = np.array(codebook.names, dtype=object)

    def _known_codebook(self) -> Codebook | None:
        if self.codebook is not None and not isinstance(self.codebook, Codebook):
            raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
        if self.numeric not in ("gaussian", "histogram"):
            raise ConfigError("numeric is gaussian or histogram")
        declared = self.codebook
        if self.numeric == "histogram" and self.epsilon is None:
            if declared is None:
                raise ConfigError("numeric='histogram' cuts numbers between declared bounds: pass a codebook")
            declared = fine_codebook(declared)
        known: Codebook | None = getattr(self, "codebook_", None) or declared
        if declared is not None and known != declared:
            raise ConfigError("the codebook changed between batches; call fit to start anew")
        return known

    def _training_columns(self, X: Any, y: Any, classes: Any, codebook: Codebook | None) -> tuple[dict[str, Any], pa.Array]:
        """The features and labels of the training data, with the codebook adopted or inferred."""
        names, columns = split_columns(X, codebook)
        names, columns, y = labels_apart(names, columns, y, codebook)
        labels, label_kind = plain_labels(y)
        check_consistent_length(*columns.values(), labels)
        if len(labels) == 0:
            raise DataError("0 sample(s): the table is empty; a model needs at least one row")
        if codebook is None:
            codebook = infer(columns, labels, classes)
        elif classes is not None and {plain_text(item) for item in plain_labels(classes)[0].to_pylist()} != {*codebook.classes}:
            raise ConfigError("classes differ from the codebook's, which fixes them")
        return self._adopt_columns(names, columns, codebook, label_kind), labels

    def _private_block(self, X: Any, y: Any, codebook: Codebook) -> CodedRows:
        """Codes of the rows of a private fit, or of its score: every cell is read by itself, and no value is an error."""
        X = eager(X)
        names, columns = private_columns(X, codebook)
        inside = y is None and names is not None and codebook.target in names
        names, columns, y = labels_apart(names, columns, y, codebook)
        labels, label_kind = private_labels(y, codebook)
        if inside and is_loose(X[codebook.target]):
            label_kind = listed_kind(codebook)
        check_consistent_length(*columns.values(), labels)
        if names is not None and self._is_bounded(names) and (bound := self._contribution_bound(codebook)) is not None:
            places = sample_rows(X, codebook, bound)
            columns = {name: take(column, places) for name, column in columns.items()}
            labels = take(labels, places)
        columns = self._adopt_columns(names, columns, codebook, label_kind)
        return encode(columns, codebook, training=True, labels=labels, lenient=True)

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

    def _contribution_bound(self, codebook: Codebook) -> ContributionBound | None:
        """How many rows of a person count in a private fit; None: all of them."""
        if self.epsilon is None or codebook.identifier is None or self.rows_per_person is None:
            return None
        return ContributionBound(self._unit_rows, Coins.system().bytes(32))

    def _adopt_columns(
        self, names: list[Any] | None, columns: dict[str, Any], codebook: Codebook, label_kind: str
    ) -> dict[str, Any]:
        """The columns of the codebook, which is adopted, or an error if there are others."""
        if names is not None:
            require_columns(names, codebook, labels=False, extra_columns=self.extra_columns)
            columns = {name: columns[name] for name in codebook.names}  # an identifier is no feature
        if not hasattr(self, "codebook_"):
            self._adopt_codebook(codebook, label_kind)
            if names is not None and all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(codebook.names if self.codebook else names, dtype=object)
        self._require_width(columns)
        return columns

    def _fit_private(self, X: Any, y: Any, sample_weight: Any, epsilon: float) -> Self:
        """Make one joint release: the plan and its price from public facts, then counting, the ledger, the noise."""
        codebook = self._public_codebook(X, sample_weight)
        release = plan_fit(
            codebook,
            epsilon=epsilon,
            delta=self.delta,
            rows=self.expected_rows,
            rows_per_person=self._unit_rows,
            # A large source is counted where it lies, and its rows are not seen again; with weights or priors right answers
            # do not say which model is meant.
            chooses=self.class_weight is None and self.priors is None,
            most_read=MOST_READ if is_source(X) else None,
        )
        rows = None
        read = partial(
            read_block,
            X,
            release.codebook,
            lenient=True,
            extra_columns=self.extra_columns,
            bound=self._contribution_bound(release.codebook) if is_source(X) else None,
        )
        once = self.expected_rows or codebook.expected_rows
        if not is_source(X):
            rows = self._private_block(X, y, release.codebook)
        elif release.chooses and once:  # else noise decides whether they are read again
            self._require_alone(y, None)
            rows = read()
            self._adopt_source(release.codebook)
        if rows is None:
            exact = self._statistics(X, y, None, classes=None, counting=release.codebook)
        else:
            exact = count_block(Layout(release.codebook), rows)
        spent = self._charge(release, codebook)
        later = read if release.chooses and rows is None else rows
        parameters, noisy, record = release.release(exact, self.alpha, Coins.system(), later)
        self.privacy_ = {**release.facts(), "statement": release.statement(spent, self.tuning, self._bounded(X)).to_dict()}
        self.privacy_ |= record.pop("facts", {})  # as the stages turned out
        self.privacy_["released"] = record
        return self._publish(parameters, noisy)

    def _public_codebook(self, X: Any, sample_weight: Any) -> Codebook:
        """Return the declared codebook of a private fit. Raises `PrivacyError` if it was inferred, or if rows have weights."""
        if sample_weight is not None or self.weight_step is not None:
            raise PrivacyError("sample_weight multiplies what one row can change; drop it, or fit without epsilon")
        codebook = self._known_codebook()
        if codebook is None or codebook.provenance == "inferred":
            raise PrivacyError(
                f"column {first_name(X)!r} has no declared domain: epsilon needs a codebook made from public knowledge "
                "(bounds, categories, class labels); write one and pass it as codebook="
            )
        return codebook

    def _charge(self, release: Priced, codebook: Codebook) -> str | None:
        """Charge the ledger, if there is one; return its balance in words."""
        if self.ledger is None:
            return None
        ledger = Ledger(self.ledger)
        ledger.charge(release, purpose="NaiveBayes.fit", codebook=codebook.sha256)
        return str(ledger.balance())

    def _bounded(self, X: Any) -> bool | None:
        """Whether the rows of a person are counted up to a limit; None if the unit is a record."""
        if self.rows_per_person is None:
            return None
        arrow = isinstance(X, pa.Table | pa.RecordBatch)
        names = None if is_source(X) else list(X.schema.names if arrow else getattr(eager(X), "columns", ()))
        return self._is_bounded(names)

    @property
    def statement_(self) -> PrivacyStatement:
        """The promise of a private fit, for the privacy officer."""
        check_is_fitted(self, "privacy_")
        return PrivacyStatement.from_dict(self.privacy_.get("statement"))


def load(path: str | os.PathLike[str]) -> NaiveBayes:
    """Read a JSON model file. Nothing in it is executed; an unknown version or field is refused."""
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
    record = parse_model(text)
    if record.privacy is not None and "statement" in record.privacy:
        PrivacyStatement.from_dict(record.privacy["statement"])
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
    model = NaiveBayes(codebook, var_smoothing=settings["var_smoothing"], numeric=numeric)
    model.weight_step = settings.get("weight_step")
    model.alpha = settings["alpha"] / model._steps
    return model._restore(record)
