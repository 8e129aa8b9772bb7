"""Modules that are imported at first use: Ibis, scikit-learn and SciPy take a second each, which few commands need."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, attribute)


def lazy(name: str) -> Any:
    """Stands for the module of that name; type checkers see `import` under `TYPE_CHECKING`."""
    return _Lazy(name)
