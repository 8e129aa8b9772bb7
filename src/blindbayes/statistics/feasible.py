"""Check that an integer vector can be the statistics of a table.

For every table, counts are non-negative; a feature's counts per class add up to the class count (at most, where values may be
missing); the sum s and sum of squares q of n codes within +-C satisfy |s| <= n C, q <= n C^2, s^2 <= n q (Cauchy-Schwarz) and
have equal parity; n documents contain a word that counts once in at most n of them, and have at most n times their bound of
words together. The rules are necessary, not sufficient: statistics of a fabricated table pass.
"""

from __future__ import annotations

from blindbayes.codebook import Numeric, Text
from blindbayes.errors import DataError
from blindbayes.statistics import Statistics


def require_feasible(statistics: Statistics, *, complete: bool = True) -> Statistics:
    """Return the statistics, or raise `DataError` with feature and rule.

    With `complete=False`, for private studies, values of features that are not optional may be missing too.
    """
    class_counts = [int(value) for value in statistics.class_counts]
    if min(class_counts) < 0:
        raise DataError("class counts: a count is negative")
    for feature in statistics.codebook.features:
        where = f"feature {feature.name!r}"
        if feature.name in statistics.counts:
            table = statistics.counts[feature.name]
            for row, rows in zip(table, class_counts, strict=True):
                present = sum(int(value) for value in row)
                if min(int(value) for value in row) < 0:
                    raise DataError(f"{where}: a count is negative")
                if present > rows or (present < rows and complete and not feature.optional):
                    raise DataError(f"{where}: the counts of a class do not add up to its rows")
        elif isinstance(feature, Numeric):
            _require_moments(statistics, feature, class_counts)
        elif isinstance(feature, Text):
            table, documents = statistics.bags[feature.name], statistics.documents(feature.name)
            if (documents < 0).any() or (documents > statistics.class_counts).any():
                raise DataError(f"{where}: the number of documents of a class does not fit its rows")
            if (table < 0).any() or (feature.once and (table > documents[:, None]).any()):
                raise DataError(f"{where}: the count of a word does not fit the documents of its class")
            if (table.astype(object).sum(axis=1) > documents.astype(object) * feature.reach).any():
                raise DataError(f"{where}: more words than the documents of a class can have")
    return statistics


def _require_moments(statistics: Statistics, feature: Numeric, class_counts: list[int]) -> None:
    where = f"feature {feature.name!r}"
    low, high = feature.code_low, feature.code_high
    reach = max(abs(low), abs(high))
    squares = statistics.squares.get(feature.name)  # an added kind may have none
    for i, rows in enumerate(class_counts):
        present, total = int(statistics.n[feature.name][i]), int(statistics.sums[feature.name][i])
        if not 0 <= present <= rows or (present < rows and not feature.optional):
            raise DataError(f"{where}: the number of values of a class does not fit its rows")
        if not present * low <= total <= present * high:
            raise DataError(f"{where}: a sum lies outside the bounds")
        if squares is None:
            continue
        square = int(squares[i])
        if not 0 <= square <= present * reach**2 or total**2 > present * square or (total - square) % 2:
            raise DataError(f"{where}: a sum of squares does not fit its sum")
