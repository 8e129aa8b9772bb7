"""`NaiveBayes`: Naive Bayes with scikit-learn's interface, from exact integer statistics."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec
import pyarrow as pa
from sklearn.utils.validation import check_consistent_length

from blindbayes.codebook import Codebook, Numeric
from blindbayes.data import count_table, encode
from blindbayes.data.counting import count_batches
from blindbayes.data.sources import is_source
from blindbayes.data.values import plain_text
from blindbayes.dp.release.cells import fine_codebook, is_cut
from blindbayes.errors import ConfigError, DataError
from blindbayes.naive_bayes.base import ROWS_PER_BLOCK, BaseNaiveBayes
from blindbayes.naive_bayes.inputs import caller, infer, labels_apart, plain_labels, require_alone, split_columns, whole_weights
from blindbayes.naive_bayes.model_file import ModelSettings
from blindbayes.statistics import Layout, Statistics, count_block
from blindbayes.statistics.histograms import histograms
from blindbayes.statistics.parameters import Gaussian, estimate, outweighed


class NaiveBayes(BaseNaiveBayes):
    """Naive Bayes for mixed categorical, numeric and text features, from exact integer statistics.

    The model holds exact counts of its table. For a model that may be published, see `PrivateNaiveBayes`.

    Parameters
    ----------
    codebook : Codebook, default=None
        Public facts about the columns. Without one, it is inferred from the training data.
    alpha : float, default=1.0
        Laplace smoothing of categorical, binned and text features.
    var_smoothing : float, default=1e-9
        Share of the largest variance that is added to every variance, as in scikit-learn's GaussianNB. Not used where the
        codebook declares a `variance_floor`.
    numeric : {"gaussian", "histogram"}, default="gaussian"
        Model of numbers that are not binned in the codebook: "gaussian" by mean and variance, "histogram" by about equally
        full cells. Cells fit numbers that are not bell-shaped and need a codebook.
    priors : mapping or sequence, default=None
        Class probabilities where the model will be used, by label or in the order of `classes_`, instead of the observed
        ones: for example 5% ill in deployment, although half of the training rows are.
    class_weight : mapping or "balanced", default=None
        Cost of an error in each class, relative to the others: multiplies the priors. "balanced" makes the classes equally
        probable.
    extra_columns : {"refuse", "ignore"}, default="refuse"
        What to do with columns of a frame or source that the codebook does not know.

    Attributes
    ----------
    codebook_ : Codebook
        The codebook in force.
    statistics_ : Statistics
        The exact integer statistics of the model.
    classes_, class_count_, class_log_prior_, n_features_in_, feature_names_in_
        As in scikit-learn.
    parameters_ : Parameters
        Log-probabilities, means and variances by feature.
    """

    def __init__(
        self,
        codebook: Codebook | None = None,
        *,
        alpha: float = 1.0,
        var_smoothing: float = 1e-9,
        numeric: str = "gaussian",
        priors: Mapping[Any, float] | Sequence[float] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        extra_columns: str = "refuse",
    ) -> None:
        self.codebook = codebook
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.numeric = numeric
        self.priors = priors
        self.class_weight = class_weight
        self.extra_columns = extra_columns

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on a frame or array and its labels, or on a path, database URL or frame that holds the class column.

        A row of `sample_weight` w, a non-negative integer, counts as w rows.
        """
        self._forget()
        with self._restoring():
            self._finish(self._statistics(X, y, sample_weight, classes=None))
        self._warn_of_smoothing()
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch of rows. Any split of the rows into batches, in any order, gives the same model.

        Without a codebook the first batch must name all `classes`, and fixes the categories and the grid of numbers.
        """
        before = getattr(self, "statistics_", None)
        if before is None and hasattr(self, "parameters_"):
            raise ConfigError("this model was made without exact statistics; a batch cannot be added to it")
        inferred = before is not None and self.codebook is None
        with self._restoring():
            if classes is None and not is_source(X) and self._known_codebook() is None:
                raise ConfigError("the first partial_fit must name all classes, or the estimator must have a codebook")
            try:
                statistics = self._statistics(X, y, sample_weight, classes=classes)
            except DataError as problem:
                if not inferred:
                    raise
                raise DataError(f"{problem}. The first batch fixed the codebook: pass one that covers all batches") from None
            return self._finish(statistics if before is None else (before + statistics).require_bounds())

    @classmethod
    def from_statistics(cls, statistics: Statistics, *, alpha: float = 1.0, var_smoothing: float = 1e-9) -> Self:
        """Return a model fitted from exact statistics, such as the sum of a protocol."""
        model = cls(statistics.codebook, alpha=alpha, var_smoothing=var_smoothing)
        model._adopt_codebook(statistics.codebook, "text")
        return model._finish(statistics)

    def _statistics(self, X: Any, y: Any, sample_weight: Any, *, classes: Any) -> Statistics:
        """Count the training data; adopt the codebook, or infer it."""
        codebook = self._known_codebook()
        if is_source(X):
            require_alone(y, sample_weight)
            if codebook is None:
                raise ConfigError("fitting from a path, URL or source needs a codebook; see Codebook.from_toml")
            statistics = count_table(X, codebook, extra_columns=self.extra_columns)
            self._adopt_source(codebook)
            return statistics
        columns, labels = self._training_columns(X, y, classes, codebook)
        weights, codebook = whole_weights(sample_weight, len(labels)), self.codebook_
        if weights is not None:
            return count_block(Layout(codebook), encode(columns, codebook, training=True, labels=labels), weights)
        parts = (slice(start, start + ROWS_PER_BLOCK) for start in range(0, len(labels), ROWS_PER_BLOCK))
        batches = ({codebook.target: labels[part], **{name: columns[name][part] for name in columns}} for part in parts)
        return count_batches(batches, codebook, False)

    def _training_columns(self, X: Any, y: Any, classes: Any, codebook: Codebook | None) -> tuple[dict[str, Any], pa.Array]:
        names, columns = split_columns(X, codebook)
        names, columns, y = labels_apart(names, columns, y, codebook)
        labels, label_kind = plain_labels(y)
        check_consistent_length(*[*columns.values()][:1], labels)
        if len(labels) == 0:
            raise DataError("0 sample(s): the table is empty; a model needs at least one row")
        if codebook is None:
            codebook = infer(columns, labels, classes)
        elif classes is not None and {plain_text(item) for item in plain_labels(classes)[0].to_pylist()} != {*codebook.classes}:
            raise ConfigError("classes differ from the codebook's, which fixes them")
        return self._adopt_columns(names, columns, codebook, label_kind), labels

    def _known_codebook(self) -> Codebook | None:
        """Return the codebook of the constructor or of earlier batches, or None if it is to be inferred."""
        if self.codebook is not None and not isinstance(self.codebook, Codebook):
            raise ConfigError("codebook must be a Codebook; read one with Codebook.from_toml")
        if self.numeric not in ("gaussian", "histogram"):
            raise ConfigError("numeric must be 'gaussian' or 'histogram'")
        declared = self.codebook
        if self.numeric == "histogram":
            if declared is None:
                raise ConfigError("numeric='histogram' cuts numbers between declared bounds: pass a codebook")
            declared = fine_codebook(declared)
        known: Codebook | None = getattr(self, "codebook_", None) or declared
        if declared is not None and known != declared:
            raise ConfigError("the codebook changed between batches; call fit to start anew")
        return known

    def _finish(self, statistics: Statistics) -> Self:
        parameters = estimate(statistics, alpha=self.alpha, var_smoothing=self.var_smoothing)
        return self._publish(histograms(statistics, self._spacings(), parameters, self.alpha), statistics)

    def _warn_of_smoothing(self) -> None:
        """Warn if the variance that is added, a share of the largest one, outweighs what a feature of small numbers says."""
        gaussian = [term for term in self.parameters_.terms.values() if isinstance(term, Gaussian)]
        largest = max((float(term.variance.max()) for term in gaussian), default=0.0)
        if all(float(term.variance.min()) > 2.0 * self.var_smoothing * largest for term in gaussian):
            return  # no fractions for the many tables without the problem
        if (extremes := outweighed(self.statistics_, self.var_smoothing)) is None:
            return
        widest, narrowest = extremes
        warnings.warn(
            f"var_smoothing adds a share of the largest variance, that of feature {widest!r}, to all: more than the whole "
            f"variance of {narrowest!r}, which hardly counts now. Rescale {widest!r}, cut it into cells (bins in the "
            "codebook), or pass var_smoothing=0",
            UserWarning,
            stacklevel=caller(),
        )

    def _spacings(self) -> dict[str, str]:
        """Return the declared spacing of each number that is modelled by cells."""
        if self.numeric != "histogram" or self.codebook is None:
            return {}
        return {each.name: each.spacing for each in self.codebook.features if isinstance(each, Numeric) and is_cut(each)}

    def _settings(self) -> ModelSettings:
        smoothing = float(self.var_smoothing)
        return msgspec.structs.replace(super()._settings(), var_smoothing=smoothing, numeric=self._spacings())
