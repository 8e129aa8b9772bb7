"""Naive Bayes on data that must not be pooled.

The public surface: `Codebook` (public facts about the columns), `NaiveBayes` (one table), `PrivateNaiveBayes` (one
table, with differential privacy), `RowStudy`, `ColumnStudy` and `JoinStudy` (several parties), `load` (a model file). For
engineers of differential privacy: mechanisms, `plan_fit`, `Account` and `Ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blindbayes.codebook import Categorical, Codebook, Numeric, Text

if TYPE_CHECKING:
    from blindbayes.crypto.coins import Coins
    from blindbayes.data import Dialect, count_table, open_table
    from blindbayes.data.omop import open_omop
    from blindbayes.dp.accounting.accountant import Account, Spend
    from blindbayes.dp.accounting.ledger import Ledger
    from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
    from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
    from blindbayes.dp.noise.centred_gaussian import CentredGaussian
    from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart
    from blindbayes.dp.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, PrivacyCost
    from blindbayes.dp.release.forecast import private_forecast
    from blindbayes.dp.release.private_fit import plan_fit
    from blindbayes.errors import BlindbayesError, ConfigError, DataError, PrivacyError, ProtocolError
    from blindbayes.naive_bayes.estimator import NaiveBayes
    from blindbayes.naive_bayes.explain import Explanation
    from blindbayes.naive_bayes.export.mlflow_pyfunc import log_to_mlflow, save_to_mlflow
    from blindbayes.naive_bayes.load import load
    from blindbayes.naive_bayes.private import PrivateNaiveBayes
    from blindbayes.naive_bayes.synthetic import Synthesizer
    from blindbayes.report.leakage import LeakReport
    from blindbayes.study import ColumnStudy, JoinStudy, RowStudy
    from blindbayes.study.fields import Candidate, Estimation, Limits, Privacy
    from blindbayes.study.simulation.models import JointModel
    from blindbayes.study.tasks.result import JointResult, Prediction, Result

__version__ = "0.1.0"
_LAZY = {
    **dict.fromkeys(("BlindbayesError", "ConfigError", "DataError", "PrivacyError", "ProtocolError"), "blindbayes.errors"),
    "NaiveBayes": "blindbayes.naive_bayes.estimator",
    "PrivateNaiveBayes": "blindbayes.naive_bayes.private",
    "load": "blindbayes.naive_bayes.load",
    **dict.fromkeys(("Dialect", "count_table", "open_table"), "blindbayes.data"),
    "open_omop": "blindbayes.data.omop",
    "Ledger": "blindbayes.dp.accounting.ledger",
    **dict.fromkeys(("Deployment", "PrivacyStatement"), "blindbayes.dp.accounting.statement"),
    **dict.fromkeys(("Account", "Spend"), "blindbayes.dp.accounting.accountant"),
    **dict.fromkeys(("Sensitivity", "SensitivityBlock"), "blindbayes.dp.accounting.sensitivity"),
    **dict.fromkeys(("DiscreteGaussian", "DiscreteLaplace", "PrivacyCost"), "blindbayes.dp.noise.mechanisms"),
    **dict.fromkeys(("Classwise", "ReleasePart"), "blindbayes.dp.noise.knorm_histograms"),
    "CentredGaussian": "blindbayes.dp.noise.centred_gaussian",
    "Coins": "blindbayes.crypto.coins",
    "plan_fit": "blindbayes.dp.release.private_fit",
    "LeakReport": "blindbayes.report.leakage",
    "Explanation": "blindbayes.naive_bayes.explain",
    **dict.fromkeys(("log_to_mlflow", "save_to_mlflow"), "blindbayes.naive_bayes.export.mlflow_pyfunc"),
    "Synthesizer": "blindbayes.naive_bayes.synthetic",
    "private_forecast": "blindbayes.dp.release.forecast",
    **dict.fromkeys(("JointResult", "Prediction", "Result"), "blindbayes.study.tasks.result"),
    "JointModel": "blindbayes.study.simulation.models",
    **dict.fromkeys(("ColumnStudy", "JoinStudy", "RowStudy"), "blindbayes.study"),
    **dict.fromkeys(("Candidate", "Estimation", "Limits", "Privacy"), "blindbayes.study.fields"),
}
__all__ = [
    "Account",
    "BlindbayesError",
    "Candidate",
    "Categorical",
    "CentredGaussian",
    "Classwise",
    "Codebook",
    "Coins",
    "ColumnStudy",
    "ConfigError",
    "DataError",
    "Deployment",
    "Dialect",
    "DiscreteGaussian",
    "DiscreteLaplace",
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
    "PrivacyCost",
    "PrivacyError",
    "PrivacyStatement",
    "PrivateNaiveBayes",
    "ProtocolError",
    "ReleasePart",
    "Result",
    "RowStudy",
    "Sensitivity",
    "SensitivityBlock",
    "Spend",
    "Synthesizer",
    "Text",
    "__version__",
    "count_table",
    "load",
    "log_to_mlflow",
    "open_omop",
    "open_table",
    "plan_fit",
    "private_forecast",
    "save_to_mlflow",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """scikit-learn and Ibis take a second to import; a command that needs neither does not pay for them."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
