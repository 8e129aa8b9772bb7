"""scalar_product as a way to run a study: the paper's own route, for rows and for columns, in one process only."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from blindbayes.study.study import Study
from blindbayes_papers.vaidya2008.params import FACTS, ScalarProductParams


class ScalarProduct:
    """See `study.schemes.Scheme`: one for rows, one for columns."""

    name, params, facts = "scalar_product", ScalarProductParams, FACTS

    def variant(self, study: Study) -> Any:
        """By partition."""
        return import_module(f"blindbayes_papers.vaidya2008.{study.partition}").SCHEME


SCHEME = ScalarProduct()
