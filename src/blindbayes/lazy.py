"""Modules that are imported at first use: Ibis, scikit-learn and SciPy take a second each, which few commands need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


def lazy(name: str) -> Any:
    """Stands for the module of that name; type checkers see `import` under `TYPE_CHECKING`."""
    return _Lazy(name)
