"""Import modules at first use, and name the extra that installs a missing one.

Ibis, scikit-learn and SciPy take up to a second each to import, which few commands need. Optional libraries are imported by
`need`, or by `lazy`, which calls it: a missing one is a `ConfigError` of one line with the command that installs it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from blindbayes.errors import ConfigError

EXTRAS = {  # top-level module: extra of pyproject.toml
    "dp_accounting": "accounting",
    "duckdb": "sql",
    "grpc": "agent",
    "ibis": "sql",
    "jwt": "oidc",
    "matplotlib": "plots",
    "mlflow": "mlflow",
    "onnx": "onnx",
    "phonenumbers": "ids",
    "psycopg": "postgres",
    "pyreadstat": "spss",
    "pyspark": "spark",
    "python_calamine": "excel",
    "skops": "skops",
    "starlette": "agent",
    "uvicorn": "agent",
}


def missing_extra(problem: ImportError) -> ConfigError | None:
    """Return the error that names the extra of a missing library, or None if no extra brings it."""
    library = (problem.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    return ConfigError(f"{library} is not installed: pip install 'blindbayes[{EXTRAS[library]}]'")


def need(name: str) -> Any:
    """Import an optional library. Raises `ConfigError` with the command that installs it."""
    try:
        return import_module(name)
    except ImportError as problem:
        error = missing_extra(problem)
        if error is None:
            raise
        raise error from None


class _Lazy:
    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:
            self._module = need(self._name)
        return getattr(self._module, attribute)


def lazy(name: str) -> Any:
    """Stand for the module of that name; type checkers see `import` under `TYPE_CHECKING`."""
    return _Lazy(name)
