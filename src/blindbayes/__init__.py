"""Naive Bayes on data that must not be pooled.

The public surface: `Codebook` (public facts about the columns), `NaiveBayes` (one table), `PrivateNaiveBayes` (one
table, with differential privacy), `RowStudy`, `ColumnStudy` and `JoinStudy` (several parties), `load` (a model file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blindbayes.codebook import Categorical, Codebook, Numeric, Text

if TYPE_CHECKING:
    from blindbayes.data import count_table, open_table
    from blindbayes.dp.accounting.ledger import Ledger
    from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
    from blindbayes.dp.release.forecast import private_forecast
    from blindbayes.errors import BlindbayesError, ConfigError, DataError, PrivacyError, ProtocolError
    from blindbayes.naive_bayes.estimator import NaiveBayes
    from blindbayes.naive_bayes.explain import Explanation
    from blindbayes.naive_bayes.load import load
    from blindbayes.naive_bayes.private import PrivateNaiveBayes
    from blindbayes.report.leakage import LeakReport
    from blindbayes.study import ColumnStudy, JoinStudy, RowStudy
    from blindbayes.study.fields import Estimation, Limits, Privacy
    from blindbayes.study.simulation.models import JointModel
    from blindbayes.study.tasks.result import JointResult, Prediction, Result

__version__ = "0.1.0"
_LAZY = {
    **dict.fromkeys(("BlindbayesError", "ConfigError", "DataError", "PrivacyError", "ProtocolError"), "blindbayes.errors"),
    "NaiveBayes": "blindbayes.naive_bayes.estimator",
    "PrivateNaiveBayes": "blindbayes.naive_bayes.private",
    "load": "blindbayes.naive_bayes.load",
    **dict.fromkeys(("count_table", "open_table"), "blindbayes.data"),
    "Ledger": "blindbayes.dp.accounting.ledger",
    **dict.fromkeys(("Deployment", "PrivacyStatement"), "blindbayes.dp.accounting.statement"),
    "LeakReport": "blindbayes.report.leakage",
    "Explanation": "blindbayes.naive_bayes.explain",
    "private_forecast": "blindbayes.dp.release.forecast",
    **dict.fromkeys(("JointResult", "Prediction", "Result"), "blindbayes.study.tasks.result"),
    "JointModel": "blindbayes.study.simulation.models",
    **dict.fromkeys(("ColumnStudy", "JoinStudy", "RowStudy"), "blindbayes.study"),
    **dict.fromkeys(("Estimation", "Limits", "Privacy"), "blindbayes.study.fields"),
}
__all__ = [
    "BlindbayesError",
    "Categorical",
    "Codebook",
    "ColumnStudy",
    "ConfigError",
    "DataError",
    "Deployment",
    "Estimation",
    "Explanation",
    "JoinStudy",
    "JointModel",
    "JointResult",
    "LeakReport",
    "Ledger",
    "Limits",
    "NaiveBayes",
    "Numeric",
    "Prediction",
    "Privacy",
    "PrivacyError",
    "PrivacyStatement",
    "PrivateNaiveBayes",
    "ProtocolError",
    "Result",
    "RowStudy",
    "Text",
    "__version__",
    "count_table",
    "load",
    "open_table",
    "private_forecast",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """scikit-learn and Ibis take a second to import; a command that needs neither does not pay for them."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
