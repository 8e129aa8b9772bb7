"""The task of an evaluation: one more secure sum of the study's protocol, over held-out rows.

Every site evaluates the same model on its held-out rows (`statistics.evaluation`), and only the sum of these vectors is opened,
to those who learn the sums of the study. It is an exact sum like that of training: the same checks, over all the study's sites.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Cost, Outcome
from blindbayes.protocols.registry import Total
from blindbayes.report.leakage import LeakReport, follows_from_sum
from blindbayes.report.model_card import evaluation_lines, model_card
from blindbayes.report.plots import evaluation_plot
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.parameters import Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import Leak, RunResult, leakage_of
from blindbayes.study.tasks.sums import SumTask, agreed_total
from blindbayes.study.tasks.traits import Support

CONCLUSION = (
    "The evaluation is exact: a cell of its confusion matrix or a score bin that counts one held-out person reveals that such "
    "a person exists, with its class and roughly its score."
)


@dataclass(frozen=True)
class EvaluationResult(RunResult):
    """The result of an evaluation at a site that learned the sum."""

    evaluation: Evaluation = field(repr=False)
    parameters: Parameters = field(repr=False)  # of the model that was evaluated
    leakage: Mapping[str, Leak]
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]  # whose rows are in the sum
    report: LeakReport = field(repr=False)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def figures(self) -> dict[str, Any]:
        """Accuracy, recall, precision, AUC, Brier score, calibration error, ...: see `Evaluation.figures`."""
        return self.evaluation.figures

    @property
    def table(self) -> str:
        """The figures as tables in Markdown."""
        return "\n".join(evaluation_lines(self.evaluation)) + "\n"

    @property
    def plot(self) -> str:
        """ROC and calibration curves, as SVG."""
        return evaluation_plot(self.evaluation)

    @property
    def known(self) -> dict[str, Any]:
        return {"included": list(self.included)}

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return the reports, the figures, the plot, and the model's card with a section on its results."""
        figures = json.dumps({**self.evaluation.to_dict(), **self.facts}, indent=2, allow_nan=False) + "\n"
        facts = {**self.facts, "evaluated at": ", ".join(self.included)}
        return {
            **super().files(),
            "evaluation.json": figures.encode(),
            "evaluation.md": f"# Evaluation\n\n{self.table}".encode(),
            "plots/evaluation.svg": self.plot.encode(),
            "model_card.md": model_card(self.parameters, facts, evaluation=self.evaluation).encode(),
        }


class EvaluationTask(SumTask):
    """The evaluation of this site's held-out rows goes into a sum, by the protocol of the study."""

    def __init__(self, agreement: Agreement, parameters: Parameters) -> None:
        """Plan the sum. Raises for a study that holds out no rows, or for a model of other columns."""
        super().__init__(agreement)
        study, book, own = self.study, self.study.codebook, parameters.codebook
        if (own.target, own.classes, own.names) != (book.target, book.classes, book.names):
            raise ConfigError("the model has another target, other classes or other features than the study's codebook")
        self.parameters, self.bins = parameters, study.estimation.score_bins
        length = Evaluation.size(len(book.classes), self.bins)
        # All contributors: a later exact sum over fewer sites would show the difference.
        self.setting = replace(
            self.setting,
            length=length,
            bound=book.max_rows,
            ranges=((-book.max_rows, book.max_rows, length),),
            quorum=len(agreement.contributors),
        )
        self.roles, self.learners = self.protocol.roster(self.setting), self.protocol.learners(self.setting)
        self.evaluation: Evaluation | None = None

    @cached_property
    def counted(self) -> str:
        """The hash of what the rows are counted for: codebook, model, bins and the part that is held out."""
        digest = hashlib.sha256(b"blindbayes evaluation")
        parts: list[Any] = [self.study.codebook.sha256, self.parameters.codebook.sha256, self.bins]
        digest.update(json.dumps([*parts, self.study.estimation.held_out]).encode())
        digest.update(self.parameters.log_prior.tobytes())
        for name, term in self.parameters.terms.items():
            arrays = [np.asarray(getattr(term, each)) for each in term.__dataclass_fields__]
            digest.update(json.dumps([name, *([each.dtype.str, each.shape] for each in arrays)]).encode())
            for each in arrays:
                digest.update(np.ascontiguousarray(each).tobytes())
        return digest.hexdigest()

    def cost(self, party: str) -> Charge | None:
        return None

    # -- one party, one run --------------------------------------------------------------------------------------------

    def read(self) -> None:
        if self.site.name not in self.agreement.contributors:
            return
        split = self.split(held_out=True)
        if split is None:
            raise RuntimeError("refused when the task was made")
        self.evaluation = self.site.evaluate(self.study.codebook, self.parameters, self.bins, split)
        self.site.require_rows(self.agreement, self.evaluation.rows)
        self.state = replace(self.site.state(self.evaluation), counted=self.counted)

    def role(self, name: str, run: Run, coins: Coins) -> Role[Total | None]:
        vector = None
        if name == self.site.name and self.evaluation is not None:
            vector = self.evaluation.words
        return self.protocol.role(run, self.setting, vector, coins.derive("role"))

    def max_bytes(self) -> int | None:
        return link_bytes.secure_sum(self.name, len(self.setting.contributors), lambda: self.setting.length)

    def result(self, outcome: Outcome) -> RunResult:  # type: ignore[override]  # neither Result nor ContributorResult
        if not (totals := self.totals(outcome)):
            return self._contributed(outcome, "This site contributed to the evaluation and did not learn it.")
        total, setting, sha256 = agreed_total(totals), self.setting, self.agreement.sha256
        try:
            evaluation = Evaluation.from_vector(self.study.codebook.classes, self.bins, total.words.view(np.int64))
        except DataError as cause:
            raise PeerProtocolError(
                "the total is the evaluation of no rows: a party sent a vector that is no evaluation", suspects=total.included
            ) from cause
        fraction, size = self.study.estimation.held_out, len(setting.contributors)
        lines = [
            f"Study {sha256}",
            f"Evaluation of a model on held-out rows (a fraction of {fraction:g}) of {', '.join(total.included)}.",
            f"Protocol {self.name}; {size} contributors, {len(total.included)} of them in the sum.",
            f"Opened: {setting.label}, of the confusion matrix and of score bins. Who learned it stands in the leak report.",
            CONCLUSION,
        ]
        follows = (*follows_from_sum(self.name, setting, len(total.included)), CONCLUSION)
        facts = {"study": sha256, "protocol": self.name, "opened": setting.label, "held out": fraction}
        return EvaluationResult(
            evaluation,
            self.parameters,
            leakage_of(outcome),
            outcome.cost,
            "\n\n".join(lines),
            total.included,
            self._report(outcome, follows),
            facts,
        )

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        training = super().disclosure
        return replace(training, outputs=training.outputs[1:], conclusions=(CONCLUSION,))

    def dry_run(self) -> tuple[dict[str, Any], list[str]]:
        return super(SumTask, self).dry_run()


def require_evaluation(study: Study) -> None:
    """Raise unless models of a study can be evaluated over its sites."""
    if Support.EVALUATION not in study.task_class.supports:
        raise ConfigError(f"{study.protocol} opens no sum to evaluate a model by: only studies over rows that open sums do")
    if not study.estimation.held_out:
        raise ConfigError(
            "this study holds out no rows: agree on a fraction, Estimation(held_out=0.2) or held_out = 0.2 under "
            "[estimation], and train with it, so that no person trains and evaluates the model"
        )
    if study.is_private:
        raise PrivacyError(
            "this study has an epsilon, and an evaluation opens exact counts. Evaluate the model with `score` on a "
            "table of your own, or in a study without epsilon over tables whose sites allow exact sums"
        )


def evaluation_task(agreement: Agreement, parameters: Parameters) -> EvaluationTask:
    """Return the task that evaluates a model under a study, by the study's protocol."""
    require_evaluation(agreement.study)
    made = type("EvaluationTask", (EvaluationTask, agreement.study.task_class), {"__module__": __name__})
    return cast("EvaluationTask", made(agreement, parameters))
