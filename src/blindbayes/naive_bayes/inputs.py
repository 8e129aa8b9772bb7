"""Conversion of what scikit-learn passes to an estimator into columns and labels of a codebook."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from blindbayes.codebook import DEFAULT_MAX_ROWS, Categorical, Codebook, Text
from blindbayes.data.bag_of_words import read_matrix
from blindbayes.data.frames import eager, frame_columns, series_column, to_arrow
from blindbayes.data.infer import infer_feature, infer_labels, looks_personal
from blindbayes.data.table import object_rows
from blindbayes.data.values import Untyped, plain_text, untyped
from blindbayes.errors import ConfigError, DataError

_TARGET = "class"
_MAX_WEIGHT = 2**31
_ROWS_AT_ONCE = 1 << 14
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def first_name(X: Any) -> str:
    """Return a column to name in an error: the first of the frame or array."""
    names = getattr(X, "columns", None)
    return str(names[0]) if names is not None and len(names) and isinstance(names[0], str) else "x0"


def labels_apart(
    names: list[Any] | None, columns: dict[str, Any], y: Any, codebook: Codebook | None
) -> tuple[list[Any] | None, dict[str, Any], Any]:
    """Separate features and labels, which are in `y` or in the class column of a frame."""
    target = codebook.target if codebook else _TARGET
    if y is None and target in columns and names is not None:
        y = columns[target]
        columns = {name: column for name, column in columns.items() if name != target}
        names = [*columns]
    elif y is not None and codebook is not None and names is not None and target in columns:
        raise DataError(f"column {target!r} stands in X, and y was passed too; drop one")
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None; pass y"
            + (
                f", or a frame with the class column {target!r}"
                if codebook
                else "; with a codebook its class column may stand in X"
            )
        )
    return names, columns, y


def private_columns(X: Any, codebook: Codebook) -> tuple[list[Any] | None, dict[str, Any]]:
    """Return column names and columns, read so that no row affects how another is read."""
    if (bags := matrix_columns(X, codebook, lenient=True)) is not None:
        return None, bags
    if hasattr(X, "columns") or isinstance(X, pa.Table):
        columns = frame_columns(X)
        if isinstance(X, pa.Table | pa.RecordBatch) or all(isinstance(name, str) for name in X.columns):
            return [*columns], columns
        return None, dict(zip(_names(codebook, len(columns)), columns.values(), strict=True))  # such as pandas numbers them
    if isinstance(X, Sequence):
        X = object_rows(X, len(codebook.names))
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
    if array.dtype.kind not in "biufUO":
        raise DataError("the array holds neither texts, numbers nor truth values; cast it before")
    return None, {name: array[:, at] for at, name in enumerate(_names(codebook, array.shape[1]))}


def _names(codebook: Codebook | None, width: int) -> Sequence[str]:
    """Return names for unnamed columns: the codebook's, if it has as many."""
    if codebook is not None and len(codebook.names) == width:
        return codebook.names
    return [f"x{at}" for at in range(width)]


def private_labels(y: Any, codebook: Codebook) -> tuple[Any, str]:
    """Return the labels unchanged, and the type of `classes_`.

    That is text for an array of texts, whose type is public; otherwise the type that the codebook's classes read as, since the
    objects in a list or a frame, and whether its integers have gaps, are facts about rows.
    """
    if isinstance(y, pa.ChunkedArray | pa.Array):
        kind = y.type.value_type if pa.types.is_dictionary(y.type) else y.type
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        return y, "text" if any(holds(kind) for holds in texts) else listed_kind(codebook)
    if isinstance(y, Untyped):
        return y, listed_kind(codebook)
    if hasattr(y, "to_numpy") and not hasattr(y, "columns"):
        labels, typed = private_labels(series_column(y), codebook)
        return labels, listed_kind(codebook) if is_loose(y) else typed
    if isinstance(y, Sequence):
        flat = np.empty(len(y), dtype=object)
        flat[:] = y
    else:
        flat = column_or_1d(y.to_numpy() if hasattr(y, "to_numpy") else y, warn=True)
    if flat.dtype.kind not in "biufUO":
        raise DataError("the class column holds neither text, whole numbers nor truth values; cast it to text")
    return untyped(flat) if flat.dtype == object else flat, "text" if flat.dtype.kind == "U" else listed_kind(codebook)


def is_loose(series: Any) -> bool:
    """Return True for a column of objects or of pandas categories, whose type depends on the rows."""
    return str(getattr(series, "dtype", "")).lower() in ("object", "category")


def listed_kind(codebook: Codebook) -> str:
    """Return the type that the codebook's labels read as, for `classes_`."""
    if set(codebook.classes) <= {"true", "false"}:
        return "boolean"
    return "integer" if all(_WHOLE.fullmatch(label) for label in codebook.classes) else "text"


def split_columns(X: Any, codebook: Codebook | None) -> tuple[list[Any] | None, dict[str, Any]]:
    """Return column names (None for an unnamed array) and one array per column."""
    X = eager(X)
    if (isinstance(X, Mapping) and not hasattr(X, "tocsr")) or (hasattr(X, "to_numpy") and getattr(X, "ndim", 2) == 1):
        raise DataError(
            "Expected 2D array, got 1D array instead: one row is a frame of one row, such as frame.iloc[[0]] of pandas or "
            "frame[:1]. Reshape your data."
        )
    if (bags := matrix_columns(X, codebook)) is not None:
        return None, bags
    if hasattr(X, "columns") or isinstance(X, pa.Table):
        if not isinstance(X, pa.Table | pa.RecordBatch) and not all(isinstance(name, str) for name in X.columns):
            return None, array_columns(np.asarray(X), codebook)
        if codebook is not None:
            columns = frame_columns(X)
            return [*columns], columns
        table = to_arrow(X)
        return list(table.column_names), {name: table.column(name) for name in table.column_names}
    return None, array_columns(X, codebook)


def matrix_columns(X: Any, codebook: Codebook | None, *, lenient: bool = False) -> dict[str, Any] | None:
    """Return the bags of words of a matrix with a column per word, if the codebook has one text feature; else None."""
    sparse, feature = hasattr(X, "tocsr"), None
    if codebook is not None and len(codebook.features) == 1:
        feature = codebook.features[0]
    if isinstance(feature, Text) and (sparse or _is_word_matrix(X, feature)):
        return {feature.name: read_matrix(X, feature, lenient=lenient)}
    if sparse:
        raise TypeError(
            "Sparse data was passed, but dense data is required. A sparse matrix is the one feature, of kind text, of a "
            "codebook: Codebook('class', labels, (Text('words', vectorizer.get_feature_names_out()),)). Or use '.toarray()'."
        )
    return None


def _is_word_matrix(X: Any, feature: Text) -> bool:
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf" and X.shape[1] == feature.size


def array_columns(X: Any, codebook: Codebook | None) -> dict[str, Any]:
    """Return the columns of an array or a list of rows, under the codebook's names if it has as many."""
    array = np.asarray(X) if not isinstance(X, np.ndarray) else X
    if array.dtype.kind == "U":
        array = array.astype(object)
    if array.dtype != object or not holds_text(array):
        # Missing is fine, infinity is not; a numeric array in an object dtype becomes numbers again.
        require_numbers(array)
        array = check_array(X, dtype="numeric", ensure_all_finite="allow-nan", ensure_min_samples=0)
    elif array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data.")
    return {name: array[:, at] for at, name in enumerate(_names(codebook, array.shape[1]))}


def require_numbers(array: npt.NDArray[Any]) -> None:
    """Refuse values that are not numbers before NumPy does: its message quotes the value."""
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


def holds_text(array: npt.NDArray[Any]) -> bool:
    return array.ndim == 2 and any(isinstance(value, str) for row in array for value in row)


def plain_labels(y: Any) -> tuple[pa.Array, str]:
    """Return labels as an Arrow array of text, integers or booleans, and which of them the caller used."""
    if (texts := _text_labels(y)) is not None:
        return texts, "text"
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
        elif len(flat) and all(is_whole(value) for value in flat):
            flat = flat.astype(np.int64)
    kind = flat.dtype.kind
    if len(flat) and kind not in "iub":  # whole numbers are labels, however many
        _require_classes(flat)
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


def _require_classes(labels: npt.NDArray[Any]) -> None:
    """Refuse labels that are no classes, such as bytes and fractions."""
    if bytes in set(map(type, labels.tolist())):
        raise DataError("the class column holds bytes; decode them to text")
    check_classification_targets(labels)


def _text_labels(y: Any) -> pa.Array | None:
    """Return labels that are all texts as an Arrow array; None for others, and if one is missing."""
    if isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype.kind in "UO":
        y = pa.array(y.tolist(), pa.string()) if {*map(type, y.tolist())} == {str} else None
    elif isinstance(y, list):
        y = pa.array(y, pa.string()) if {*map(type, y)} == {str} else None
    elif getattr(y, "ndim", 0) == 1 and str(getattr(y, "dtype", "")) in ("str", "string", "category"):
        y = series_column(y)
    if isinstance(y, pa.ChunkedArray):
        y = y.combine_chunks()
    if isinstance(y, pa.Array) and pa.types.is_dictionary(y.type):
        y = y.cast(y.type.value_type)
    is_text = isinstance(y, pa.Array) and (pa.types.is_string(y.type) or pa.types.is_large_string(y.type))
    return y if is_text and len(y) and y.null_count == 0 else None


def is_whole(value: Any) -> bool:
    """Return True for a 64-bit integer. Booleans do not count: one row must not change how the others are read."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) < 2**63


def native_labels(classes: tuple[str, ...], kind: str) -> npt.NDArray[Any]:
    """Return labels in the type that the caller trained with, or as text if that is impossible or merges two."""
    try:
        if kind == "integer" and all(str(int(label)) == label for label in classes):
            return np.array([int(label) for label in classes], dtype=np.int64)
        if kind == "real" and np.isfinite(numbers := np.array([float(label) for label in classes])).all():
            return numbers if len({*numbers.tolist()}) == len(classes) else np.array(classes, dtype=str)
        if kind == "boolean" and set(classes) <= {"true", "false"}:
            return np.array([label == "true" for label in classes], dtype=bool)
    except (ValueError, OverflowError):
        pass
    return np.array(classes, dtype=str)


def caller() -> int:
    """Return the `stacklevel` of a warning, issued where this is called, that names the line outside of estimators."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("blindbayes", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level


def infer(columns: Mapping[str, Any], labels: pa.Array, classes: Any) -> Codebook:
    """Infer a codebook with a margin around the numbers seen, for later batches and queries."""
    listed = labels if classes is None else plain_labels(np.unique(np.asarray(classes)))[0]
    features = tuple(infer_feature(str(name), column, margin=True) for name, column in columns.items())
    for column, feature in zip(columns.values(), features, strict=True):
        # A number leaves no list of its values in the model; a text does.
        if isinstance(feature, Categorical) and (why := looks_personal(column, feature.name)):
            text = f"column {feature.name!r}: {why}; all of them will stand in the model: drop the column, or pass a codebook"
            warnings.warn(text, UserWarning, stacklevel=caller())
    target = _TARGET
    while target in {str(name).casefold() for name in columns}:
        target += "_"
    return Codebook(target, infer_labels(listed, target), features, max_rows=DEFAULT_MAX_ROWS, provenance="inferred")


def require_alone(y: Any, sample_weight: Any) -> None:
    """Raise `ConfigError` if labels or weights are passed beside a source, which holds its own class column."""
    if y is not None or sample_weight is not None:
        raise ConfigError("a path, URL or source holds its own class column and has no weights: leave y and sample_weight out")


def whole_weights(sample_weight: Any, rows: int) -> npt.NDArray[np.int64] | None:
    """Return `sample_weight` as integers, one per row. Raises `DataError` for fractions and negative numbers."""
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(rows, float(weights))
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(rows,)}!")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and (weights == np.floor(weights)).all()):
        raise DataError(
            "sample_weight must be non-negative whole numbers; for fractions multiply the weights, and alpha, by 100 and round"
        )
    if len(weights) and weights.max() > _MAX_WEIGHT:
        raise DataError("sample_weight must be at most 2^31")
    if not weights.any():
        raise DataError("sample_weight is zero for every row; a model needs at least one row")
    return weights.astype(np.int64)


def by_label(given: Any) -> Any:
    """Write the keys of a mapping by label as the codebook does; return anything else unchanged."""
    return {plain_text(label): value for label, value in given.items()} if isinstance(given, Mapping) else given
