"""The tasks of an evaluation: further secure sums of the study's protocol, over labelled rows of all its sites.

`EvaluationTask`: every site evaluates the same model on its held-out rows (`statistics.evaluation`), and only the sum of these
vectors is opened, to those who learn the sums of the study. `CrossValidationTask`: two sums in one run. The first opens the
statistics of each fold, from which every site computes the models of all candidates without that fold; the second opens their
evaluations on it, summed over sites and folds. Both are sums like that of training: exact, under the same checks and over all
the study's sites, or with the study's noise, and charged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data.split import Split
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Output
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.dp.distributed.noise_shares import PrivacyUnit
from blindbayes.dp.distributed.noisy_evaluation import NoisyEvaluation
from blindbayes.dp.distributed.noisy_sum import NoisySum, persons_words
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.errors import ConfigError, DataError, PeerProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.io.untrusted import markdown
from blindbayes.naive_bayes.model_file import dump_model
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Cost, Outcome
from blindbayes.protocols.registry import SumSetup, Total
from blindbayes.report.leakage import LeakReport, follows_from_sum
from blindbayes.report.model_card import candidate_lines, evaluation_lines, model_card
from blindbayes.report.plots import evaluation_plot
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.parameters import Parameters, estimate
from blindbayes.statistics.site_figures import SiteCells, SiteFigures
from blindbayes.study.agreement import Agreement
from blindbayes.study.fields import Candidate
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import Leak, RunResult, leakage_of
from blindbayes.study.tasks.sums import SumTask, agreed_total, describe_trust
from blindbayes.study.tasks.task import DryRun
from blindbayes.study.tasks.traits import Support

if TYPE_CHECKING:
    from blindbayes.naive_bayes import recalibration
    from blindbayes.naive_bayes.base import BaseNaiveBayes
else:
    recalibration = lazy("blindbayes.naive_bayes.recalibration")

CONCLUSION = (
    "The sum is one of confusion matrix and score bins of labelled rows: a cell of one person says that such a person "
    "exists at one of the sites, with this class and about this score."
)
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Counted:
    """The vector that a site counted for a run."""

    words: Words = field(repr=False)


@dataclass(frozen=True)
class _SumResult(RunResult):
    leakage: Mapping[str, Leak] = field(repr=False)
    cost: Cost = field(repr=False)
    statement: str = field(repr=False)
    included: tuple[str, ...]  # whose rows are in the sum
    report: LeakReport = field(repr=False)
    facts: Mapping[str, Json] = field(repr=False)

    @property
    def known(self) -> dict[str, Json]:
        return {"included": list(self.included)}


@dataclass(frozen=True)
class EvaluationResult(_SumResult):
    """The result of an evaluation at a site that learned the sum."""

    evaluation: Evaluation = field(repr=False)
    model: BaseNaiveBayes = field(repr=False)  # that was evaluated
    sites: SiteFigures | None = None  # what was opened about single sites; None: nothing

    @property
    def figures(self) -> dict[str, Json]:
        """Accuracy, recall, precision, AUC, Brier score, calibration error, ...: see `Evaluation.figures`."""
        return self.evaluation.figures

    @property
    def table(self) -> str:
        """The figures as tables in Markdown."""
        by_site = [] if self.sites is None else ["", *(f"- {markdown(line)}" for line in self.sites.lines)]
        return "\n".join([*evaluation_lines(self.evaluation), *by_site]) + "\n"

    @property
    def plot(self) -> str:
        """ROC and calibration curves, as SVG."""
        return evaluation_plot(self.evaluation)

    @cached_property
    def recalibrated(self) -> BaseNaiveBayes:
        """The model with scores fitted to the bins of this evaluation; its file names the model that was evaluated."""
        return recalibration.recalibrated(self.model, self.evaluation)

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return the reports, the figures, the plot, the recalibrated model, and the model's card with its results."""
        by_site = {} if self.sites is None else {"sites": self.sites.to_dict()}
        figures = json.dumps({**self.evaluation.to_dict(), **by_site, **self.facts}, indent=2, allow_nan=False) + "\n"
        facts = {**self.facts, "evaluated at": ", ".join(self.included)}
        if self.sites is not None:
            facts["by site"] = "; ".join(self.sites.lines)
        return {
            **super().files(),
            "evaluation.json": figures.encode(),
            "evaluation.md": f"# Evaluation\n\n{self.table}".encode(),
            "plots/evaluation.svg": self.plot.encode(),
            "recalibrated.json": dump_model(self.recalibrated._record()).encode(),
            "model_card.md": model_card(self.model._parameters(), facts, evaluation=self.evaluation).encode(),
        }


@dataclass(frozen=True)
class CrossValidationResult(_SumResult):
    """The result of a cross-validation: the evaluation of each candidate over all folds."""

    candidates: tuple[Candidate, ...]
    evaluations: tuple[Evaluation, ...] = field(repr=False)

    @property
    def best(self) -> Candidate:
        """The candidate with the highest accuracy; of equal ones the first."""
        return self.candidates[int(np.argmax([each.accuracy for each in self.evaluations]))]

    @property
    def table(self) -> str:
        """The candidates with their figures, as a table in Markdown."""
        names = [each.description for each in self.candidates]
        return "\n".join(candidate_lines(names, self.evaluations, self.best.description)) + "\n"

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        """Return the reports, and the figures of every candidate."""
        listed = [
            {"candidate": each.description, **msgspec.to_builtins(each), **own.to_dict()}
            for each, own in zip(self.candidates, self.evaluations, strict=True)
        ]
        figures = {"format": "blindbayes.cross-validation/1", **self.facts, "best": self.best.description, "candidates": listed}
        return {
            **super().files(),
            "cross_validation.json": (json.dumps(figures, indent=2, allow_nan=False) + "\n").encode(),
            "cross_validation.md": f"# Cross-validation\n\n{self.table}".encode(),
        }


class EvaluationTask(SumTask):
    """The evaluation of this site's held-out rows goes into a sum, by the protocol of the study."""

    def __init__(self, agreement: Agreement, model: BaseNaiveBayes) -> None:
        """Plan the sum. Raises for a model of other columns."""
        super().__init__(agreement)
        book, own = self.study.codebook, model._parameters().codebook
        if (own.target, own.classes, own.names) != (book.target, book.classes, book.names):
            raise ConfigError("the model has another target, other classes or other features than the study's codebook")
        self.evaluated, self.models = model, (model._parameters(),)
        self.by_site = self.site_cells
        if self.by_site.unsafe:
            raise PrivacyError(self.by_site.unsafe)
        self._plan(1, Fraction(1))

    def _plan(self, models: int, part: Fraction) -> None:
        """Set the sum of the evaluations of some models; with noise for a part of the study's epsilon."""
        study, book = self.study, self.study.codebook
        self.bins, self.noisy, self.compared = study.estimation.score_bins, None, models
        length = models * Evaluation.size(len(book.classes), self.bins)
        if self.plan is None:
            # All contributors: a later exact sum over fewer sites would show the difference.
            ranges = tuple((-bound, bound, count) for bound, count in self._cells(length) if count)
            quorum, length = len(self.agreement.contributors), length + self.by_site.size
            bound = max(high for _, high, _ in ranges)
            setting = replace(self.setting, length=length, bound=bound, ranges=ranges, quorum=quorum)
            self.setting = replace(setting, codebook=None)
        else:
            self.noisy = NoisyEvaluation.make(
                book,
                self.bins,
                models,
                epsilon=budget_floor(study.privacy.epsilon or 0.0) * part,
                delta=study.privacy.delta * float(part),
                honest=self.sum.honest,
                unit=unit_of(study),
                law=self.sum.law,
            )
            bound = self.noisy.bound(self.sum.shares_of(self.noisy.noise, self.agreement.contributors))
            self.setting = replace(self.setting, length=length, bound=bound)
        self.roles, self.learners = self.protocol.roster(self.setting), self.protocol.learners(self.setting)
        self.vector: Words | None = None

    def _cells(self, counts: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return (bound, number) of the evaluation's counts and of the cells for figures by site."""
        return (self.study.codebook.max_rows, counts), (self.by_site.bound, self.by_site.size)

    @cached_property
    def counted(self) -> str:
        """The hash of what the rows are counted for: codebook, models, bins and the part that is held out."""
        estimation = self.study.estimation
        digest = hashlib.sha256(b"blindbayes evaluation")
        facts = [self.study.codebook.sha256, self.bins, estimation.held_out, self.by_site.detail]
        digest.update(json.dumps(facts).encode())
        for model in self.models:
            digest.update(model.codebook.sha256.encode() + model.log_prior.tobytes())
            for name, term in model.terms.items():
                arrays = [np.asarray(getattr(term, each)) for each in term.__dataclass_fields__]
                digest.update(json.dumps([name, *([each.dtype.str, each.shape] for each in arrays)]).encode())
                for each in arrays:
                    digest.update(np.ascontiguousarray(each).tobytes())
        return digest.hexdigest()

    def cost(self, party: str) -> Charge | None:
        return None if self.noisy is None else Charge.from_cost(self.noisy.price)

    # -- one party, one run --------------------------------------------------------------------------------------------

    def read(self) -> None:
        if self.site.name not in self.agreement.contributors:
            return
        (own,) = self.evaluate(self.models, self.split(held_out=True))
        self.vector = np.concatenate([own.words, self.by_site.cells(self.site.name, own).view(np.uint64)])
        self._take(own.rows, Counted(self.vector))

    def evaluate(self, models: Sequence[Parameters], split: Split | None) -> list[Evaluation]:
        """Return the evaluations of models on one part of this site's rows, as the study reads them."""
        return self.site.evaluate(self.reading(self.study.codebook, split), models, self.bins)

    def _take(self, rows: int, counted: Counted) -> None:
        limit = self.study.privacy.party_rows
        if self.study.privacy.unit == "party" and limit is not None and rows > limit:
            raise PrivacyError("this party brings more rows than the study's party_rows, which the noise is made for")
        self.site.require_rows(self.agreement, rows)
        self.require_wide_bins(rows)
        self.state = replace(self.site.state(counted), counted=self.counted)

    def require_wide_bins(self, rows: int) -> None:
        """Raise if this site has fewer than one row for four score bins without noise, over all candidates."""
        if self.noisy is None and 4 * rows < self.bins * self.compared:
            raise PrivacyError(
                "this site has fewer than one row for four score bins of the study, over all candidates: single rows would "
                "show in them. Agree on fewer score_bins or candidates, on a larger held_out, or on an epsilon"
            )

    def role(self, name: str, run: Run, coins: Coins) -> Role[Total | None]:
        vector = self.vector if name == self.site.name else None
        if vector is not None:
            vector = self._with_noise(vector, coins)
        return self.protocol.role(run, self.setting, vector, coins.derive("role"))

    def _with_noise(self, words: Words, coins: Coins) -> Words:
        if self.noisy is None:
            return words
        fresh = coins.derive("contribution").derive("noise of an evaluation")
        noise = self.noisy.noise.at(self.sum.honest_of(self.site.name)).share(fresh)
        return words + noise.view(np.uint64)

    def max_bytes(self) -> int | None:
        return link_bytes.secure_sum(self.name, len(self.setting.contributors), lambda: self.setting.length)

    def result(self, outcome: Outcome) -> RunResult:  # type: ignore[override]  # neither Result nor ContributorResult
        if not (totals := self.totals(outcome)):
            return self._contributed(outcome, "This site contributed to the evaluation and did not learn it.")
        total = agreed_total(totals)
        (evaluation,), sites = self._open(total)
        return EvaluationResult(*self._run_facts(total, outcome), evaluation, self.evaluated, sites)

    def _open(self, total: Total) -> tuple[list[Evaluation], SiteFigures | None]:
        words, classes = total.words.view(np.int64), self.study.codebook.classes
        try:
            if self.noisy is not None:
                return self.noisy.open(words, self.sum.shares_of(self.noisy.noise, total.included)), None
            counts = len(words) - self.by_site.size
            parts = words[:counts].reshape(-1, Evaluation.size(len(classes), self.bins))
            return [Evaluation.from_vector(classes, self.bins, part) for part in parts], self.by_site.open(words[counts:])
        except DataError as cause:
            raise PeerProtocolError(
                "the total is the evaluation of no rows: a party sent a vector that is no evaluation", suspects=total.included
            ) from cause

    def _run_facts(
        self, total: Total, outcome: Outcome
    ) -> tuple[Mapping[str, Leak], Cost, str, tuple[str, ...], LeakReport, Mapping[str, Json]]:
        """Return the fields that every result shares, in their order."""
        setting, sha256, privacy = self.setting, self.agreement.sha256, self.study.privacy
        lines = [
            f"Study {sha256}",
            f"{self._what} of {', '.join(total.included)}.",
            f"Protocol {self.name}; {len(setting.contributors)} contributors, {len(total.included)} of them in the sum.",
            f"Opened: {setting.label}, of {self._opened_cells}. Who learned it stands in the leak report.",
            *self._conclusions,
        ]
        facts: dict[str, Json] = {"study": sha256, "protocol": self.name, "opened": setting.label, "evaluated on": self._what}
        if self.noisy is not None:
            persons = persons_words(privacy.rows_per_person, privacy.sites_per_person)
            trust = describe_trust(self.sum, self.noisy.noise)
            lines.append(self.noisy.statement(trust, self._composition, persons, privacy.tuning_note).text)
            facts |= {"epsilon": privacy.epsilon, "delta": privacy.delta}
        follows = (*follows_from_sum(self.name, setting, len(total.included)), *self._conclusions)
        report = self._report(outcome, follows)
        return leakage_of(outcome), outcome.cost, "\n\n".join(lines), total.included, report, facts

    @property
    def _conclusions(self) -> tuple[str, ...]:
        return (CONCLUSION, self.by_site.conclusion) if self.by_site.size else (CONCLUSION,)

    @property
    def _opened_cells(self) -> str:
        by_site = f"; and {self.by_site.opened}" if self.by_site.size else ""
        return f"the confusion matrix and of score bins{by_site}"

    _composition = "One release, beside that of training: their epsilons add up in the sites' ledgers."

    @property
    def _what(self) -> str:
        return f"A model on held-out rows (a fraction of {self.study.estimation.held_out:g})"

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        training = super().disclosure
        outputs = self._outputs(training.learners)
        return replace(training, outputs=outputs, conclusions=self._conclusions, site_figures=self.by_site.detail)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind the noise of the evaluation."""
        return () if self.noisy is None else (describe_trust(self.sum, self.noisy.noise),)

    def _outputs(self, learners: tuple[str, ...]) -> tuple[Output, ...]:
        return self.further_outputs(learners)[:1]

    def dry_run(self) -> DryRun:
        return super(SumTask, self).dry_run()


class CrossValidationTask(EvaluationTask):
    """Sums of every fold, then the evaluations of all candidates on the folds that did not train them, in one run."""

    @property
    def _opened_cells(self) -> str:
        return "the statistics of each fold; then of confusion matrices and score bins of each candidate"

    _composition = "Two releases of half the budget each: the statistics of the folds, and the evaluations of all candidates."

    def __init__(self, agreement: Agreement) -> None:
        """Plan both sums. Raises for a protocol that does not show every contributor the sum."""
        SumTask.__init__(self, agreement)
        self.by_site = SiteCells("none", agreement.contributors)
        study, privacy, estimation = self.study, self.study.privacy, self.study.estimation
        self.folds, self.candidates = estimation.folds, estimation.candidates or (Candidate(),)
        self.books = tuple(dict.fromkeys(candidate_book(study.codebook, each) for each in self.candidates))
        if self.plan is not None:
            half = NoisySum.make(
                study.codebook,
                epsilon=float(budget_floor(privacy.epsilon or 0.0) / 2),
                delta=privacy.delta / 2,
                honest=self.sum.honest,
                parties=len(agreement.contributors),
                rows=privacy.expected_rows,
                unit=unit_of(study),
                law=self.sum.training_law,
            )
            # A row is in one fold: it moves no more cells of all folds than of one.  [folds]
            self.plan = replace(half, noise=half.noise.repeated(self.folds))
            self.books = (half.codebook,)
            shares = self.sum.shares_of(self.plan.noise, agreement.contributors)
            length, bound = self.plan.length, self.plan.bound(shares)
        else:
            layouts = [Layout(book) for book in self.books]
            length = self.folds * sum(layout.word_count for layout in layouts)
            bound = 2**63 - 1 if any(layout.is_wide for layout in layouts) else max(max(each.bounds) for each in layouts)
        quorum = len(agreement.contributors)  # the second sum is over the sites of the first
        self.first = replace(self.setting, length=length, bound=bound, ranges=(), quorum=quorum, codebook=None)
        self._plan(len(self.candidates), Fraction(1, 2))
        self.setting = replace(self.setting, quorum=quorum)
        if set(self.agreement.contributors) - set(self.learners):
            raise ConfigError(
                f"by {self.name}, as agreed, not every site learns the sum: none can evaluate models of the folds"
            )

    @cached_property
    def counted(self) -> str:
        estimation = self.study.estimation
        facts = [*(book.sha256 for book in self.books), estimation.held_out, self.folds, msgspec.to_builtins(self.candidates)]
        return hashlib.sha256(b"blindbayes cross-validation" + json.dumps([*facts, self.bins]).encode()).hexdigest()

    def cost(self, party: str) -> Charge | None:
        if self.noisy is None or self.plan is None:
            return None
        return replace(Charge.from_cost(self.plan.price).plus(Charge.from_cost(self.noisy.price)), repeat=None, mechanism=None)

    def require_runnable(self) -> None:
        self.protocol.check(self.first)
        self.protocol.check(self.setting)

    def fold(self, index: int) -> Split:
        """Return one fold of this site's rows for training."""
        salt = hashlib.blake2b(b"folds", key=self.site.split_key[:64], digest_size=32).digest()
        return Split(1 / self.folds, True, salt, index, self.split(held_out=False))

    def read(self) -> None:
        if self.site.name not in self.agreement.contributors:
            return
        counted = [self.site.count(self.reading(book, self.fold(index))) for index in range(self.folds) for book in self.books]
        rows = sum(int(each.class_counts.sum()) for each in counted[:: len(self.books)])
        if self.plan is not None:
            self.vector = np.concatenate([self.plan.vector(each) for each in counted]).view(np.uint64)
        else:
            self.vector = np.concatenate([each.words for each in counted])
        self._take(rows, Counted(self.vector))

    def role(self, name: str, run: Run, coins: Coins) -> Role[Total | None]:
        """Return the role of both sums, one after the other."""
        vector = self.vector if name == self.site.name else None
        if vector is not None and self.plan is not None:
            noise = self.plan.noise.at(self.sum.honest_of(name)).share(coins.derive("contribution").derive("noise of folds"))
            vector = vector + noise.view(np.uint64)
        opened = yield from self.protocol.role(run, self.first, vector, coins.derive("role"))
        if vector is not None:
            vector = self._with_noise(self._validate(opened), coins)
        second = replace(run, run_id=f"{run.run_id}, evaluations")
        total = yield from self.protocol.role(second, self.setting, vector, coins.derive("second role"))
        if total is not None and opened is not None and opened.error is not None:
            return replace(total, error=opened.error)
        return total

    def _validate(self, total: Total | None) -> Words:
        """Return this site's evaluations of all candidates, each summed over the folds.

        Zeros if the first total is wrong: the run goes to its end, so that its sender does not learn that it was noticed.
        """
        zero = np.zeros(self.setting.length, dtype=np.uint64)
        if total is None or total.error is not None:
            return zero
        try:
            models = self.models_of(total)
        except DataError:
            return zero
        parts = [self.evaluate(own, self.fold(index)) for index, own in enumerate(models)]
        return cast("Words", np.sum([_words(part).view(np.int64) for part in parts], axis=0).view(np.uint64))

    def models_of(self, total: Total) -> list[list[Parameters]]:
        """Return the candidates' models, fold by fold: each from the statistics of all other folds."""
        study, plan = self.study, self.plan
        shares = 0 if plan is None else self.sum.shares_of(plan.noise, total.included)
        weight, smoothing = study.estimation.class_weight if study.weights else None, study.estimation.var_smoothing
        made = []
        for index in range(self.folds):
            models = []
            for each in self.candidates:
                alpha = study.estimation.alpha if each.alpha is None else each.alpha
                if plan is not None:
                    folds = total.words.view(np.int64).reshape(self.folds, -1)
                    rest = folds.sum(axis=0) - folds[index]
                    cell = study.limits.min_cell
                    model = plan.fit(rest, shares=(self.folds - 1) * shares, alpha=alpha, min_cell=cell)[0]
                    model = _with_features(model, each.features)
                else:
                    statistics = self._statistics(total, candidate_book(study.codebook, each), index)
                    model = estimate(statistics.only(each.features), alpha=alpha, var_smoothing=smoothing)
                models.append(model.weighed(None, weight))
            made.append(models)
        return made

    def _statistics(self, total: Total, book: Codebook, left_out: int) -> Statistics:
        """Return the statistics of all folds but one, counted with one of the codebooks."""
        layouts = [Layout(each) for each in self.books]
        folds = total.words.reshape(self.folds, -1)
        low = sum(layout.word_count for layout in layouts[: self.books.index(book)])
        own = layouts[self.books.index(book)]
        parts = [Statistics.from_words(own, fold[low : low + own.word_count]) for fold in folds]
        rest = [part for at, part in enumerate(parts) if at != left_out]
        return sum(rest[1:], rest[0])

    def max_bytes(self) -> int | None:
        def limit(setting: SumSetup) -> int | None:
            return link_bytes.secure_sum(self.name, len(setting.contributors), lambda: setting.length)

        both = limit(self.first), limit(self.setting)
        return None if both[0] is None or both[1] is None else both[0] + both[1]

    def result(self, outcome: Outcome) -> RunResult:  # type: ignore[override]
        if not (totals := self.totals(outcome)):
            return self._contributed(outcome, "This site contributed to the cross-validation and did not learn it.")
        total = agreed_total(totals)
        return CrossValidationResult(*self._run_facts(total, outcome), self.candidates, tuple(self._open(total)[0]))

    @property
    def _what(self) -> str:
        return f"{len(self.candidates)} candidate(s) by {self.folds}-fold cross-validation on rows for training"

    def _outputs(self, learners: tuple[str, ...]) -> tuple[Output, ...]:
        return self.further_outputs(learners)[-1:]


def unit_of(study: Study) -> PrivacyUnit:
    """Return the unit that the study's noise protects."""
    return PrivacyUnit.declared(study.privacy.unit, study.privacy.party_rows, study.privacy.person_rows)


def candidate_book(book: Codebook, candidate: Candidate) -> Codebook:
    """Return the codebook that a candidate counts with: the study's, with its own number of bins."""
    if candidate.bins is None:
        return book
    return book.with_features(
        msgspec.structs.replace(each, bins=candidate.bins) if isinstance(each, Numeric) else each for each in book.features
    )


def _with_features(model: Parameters, names: tuple[str, ...]) -> Parameters:
    if not names:
        return model
    book = model.codebook.with_features(each for each in model.codebook.features if each.name in names)
    return Parameters(book, model.log_prior, {name: model.terms[name] for name in book.names})


def _words(evaluations: Sequence[Evaluation]) -> Words:
    return np.concatenate([each.words for each in evaluations])


def require_evaluation(study: Study, *, folds: bool = False) -> None:
    """Raise unless models of a study can be evaluated, or validated in folds, over its sites."""
    if Support.EVALUATION not in study.task_class.supports:
        raise ConfigError(f"{study.protocol} opens no sum to evaluate a model by: only studies over rows that open sums do")
    if folds and not study.estimation.folds:
        raise ConfigError("this study has no folds: agree on a number, Estimation(folds=5) or folds = 5 under [estimation]")
    if not folds and not study.estimation.held_out:
        raise ConfigError(
            "this study holds out no rows: agree on a fraction, Estimation(held_out=0.2) or held_out = 0.2 under "
            "[estimation], and train with it, so that no person trains and evaluates the model"
        )


def evaluation_task(agreement: Agreement, model: BaseNaiveBayes | None) -> EvaluationTask:
    """Return the task that evaluates a model under a study, by the study's protocol; without one, that of its folds."""
    require_evaluation(agreement.study, folds=model is None)
    base = CrossValidationTask if model is None else EvaluationTask
    made: Any = type(base.__name__, (base, agreement.study.task_class), {"__module__": __name__})
    return cast("EvaluationTask", made(agreement) if model is None else made(agreement, model))
