"""Studies: what several parties agree on, and its file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindbayes.study.study import ColumnStudy, JoinStudy, RowStudy, Study

__all__ = ["ColumnStudy", "JoinStudy", "RowStudy", "Study"]


def __getattr__(name: str) -> Any:  # the protocols import parts of this package
    if name in __all__:
        return getattr(import_module("blindbayes.study.study"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
