"""Naive Bayes on data that nobody may pool.

The public surface: `Codebook` (public facts about the columns), `NaiveBayes` (one table, with or without differential
privacy), `Study` (several parties), `load` (a model file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blindbayes.codebook import Categorical, Codebook, Numeric

if TYPE_CHECKING:
    from blindbayes.estimators import NaiveBayes, load
    from blindbayes.scheme.result import Result
    from blindbayes.study import Study

__version__ = "0.1.0"
__all__ = ["Categorical", "Codebook", "NaiveBayes", "Numeric", "Result", "Study", "__version__", "load"]

_LAZY = {
    "NaiveBayes": "blindbayes.estimators",
    "load": "blindbayes.estimators",
    "Study": "blindbayes.study",
    "Result": "blindbayes.scheme.result",
}


def __getattr__(name: str) -> Any:
    """scikit-learn and Ibis take a second to import; a command that needs neither does not pay for them."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
