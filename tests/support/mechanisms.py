"""Private fits by a named mechanism: people leave the choice to the plan."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from blindbayes import PrivateNaiveBayes
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.naive_bayes import private


def fit_by(mechanism: str | None, model: PrivateNaiveBayes, *data: Any) -> PrivateNaiveBayes:
    """Fit with noise of this mechanism, as tables and without rules; None fits as people do."""
    if mechanism is None:
        return model.fit(*data)
    with mock.patch.object(private, "plan_fit", partial(plan_fit, mechanism=mechanism)):
        return model.fit(*data)
