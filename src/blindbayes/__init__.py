"""Naive Bayes on data that nobody may pool.

The public surface: `Codebook` (public facts about the columns), `NaiveBayes` (one table, with or without differential
privacy), `Study` (several parties), `load` (a model file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blindbayes.codebook import Categorical, Codebook, Numeric, Text

if TYPE_CHECKING:
    from blindbayes.data import count_new, count_table, encode, open_table
    from blindbayes.errors import BlindbayesError, ConfigError, DataError, PrivacyError, ProtocolError
    from blindbayes.estimators import NaiveBayes, load
    from blindbayes.ledger import Ledger
    from blindbayes.model.explain import Explanation
    from blindbayes.primitives.coins import Coins
    from blindbayes.privacy.forecast import private_forecast
    from blindbayes.privacy.statement import Deployment, PrivacyStatement
    from blindbayes.report.leakage import About, LeakReport
    from blindbayes.scheme.result import JointResult, Prediction, Result
    from blindbayes.simulation.columns import JointModel
    from blindbayes.simulation.joined import HiddenScores
    from blindbayes.study import ColumnStudy, JoinStudy, RowStudy, Study
    from blindbayes.study.fields import Model, Privacy, Thresholds
    from blindbayes.transport.memory import Vanish
    from blindbayes.wire.transcript import Keep

__version__ = "0.1.0"
_LAZY = {
    **dict.fromkeys(("BlindbayesError", "ConfigError", "DataError", "PrivacyError", "ProtocolError"), "blindbayes.errors"),
    **dict.fromkeys(("NaiveBayes", "load"), "blindbayes.estimators"),
    **dict.fromkeys(("count_new", "count_table", "encode", "open_table"), "blindbayes.data"),
    "Ledger": "blindbayes.ledger",
    "Coins": "blindbayes.primitives.coins",
    **dict.fromkeys(("Deployment", "PrivacyStatement"), "blindbayes.privacy.statement"),
    **dict.fromkeys(("About", "LeakReport"), "blindbayes.report.leakage"),
    "Explanation": "blindbayes.model.explain",
    "private_forecast": "blindbayes.privacy.forecast",
    **dict.fromkeys(("JointResult", "Prediction", "Result"), "blindbayes.scheme.result"),
    "JointModel": "blindbayes.simulation.columns",
    "HiddenScores": "blindbayes.simulation.joined",
    **dict.fromkeys(("ColumnStudy", "JoinStudy", "RowStudy", "Study"), "blindbayes.study"),
    **dict.fromkeys(("Model", "Privacy", "Thresholds"), "blindbayes.study.fields"),
    "Vanish": "blindbayes.transport.memory",
    "Keep": "blindbayes.wire.transcript",
}
__all__ = [
    "About",
    "BlindbayesError",
    "Categorical",
    "Codebook",
    "Coins",
    "ColumnStudy",
    "ConfigError",
    "DataError",
    "Deployment",
    "Explanation",
    "HiddenScores",
    "JoinStudy",
    "JointModel",
    "JointResult",
    "Keep",
    "LeakReport",
    "Ledger",
    "Model",
    "NaiveBayes",
    "Numeric",
    "Prediction",
    "Privacy",
    "PrivacyError",
    "PrivacyStatement",
    "ProtocolError",
    "Result",
    "RowStudy",
    "Study",
    "Text",
    "Thresholds",
    "Vanish",
    "__version__",
    "count_new",
    "count_table",
    "encode",
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
