"""The checks of a run's outputs for `disclosure.json`, from the task's `Disclosure` and the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from blindbayes._lazy import lazy
from blindbayes.codebook import Numeric
from blindbayes.disclosure.checks import checks_for
from blindbayes.disclosure.policy import MAX_NOISE_EPSILON
from blindbayes.disclosure.value import Answers, Disclosure, Overlap, RowSum, SumForm
from blindbayes.protocols.deduplicated_sum.roles import LABEL
from blindbayes.report.output_check import (
    FREQUENCY,
    CheckedOutput,
    OutputCheck,
    OutputRule,
    check_counts,
    check_dominance,
    check_floor,
    risk_appetite,
    sums_of,
)
from blindbayes.statistics.floor import FlooredTable
from blindbayes.study.agreement import Agreement
from blindbayes.study.tasks.evaluation import EvaluationResult
from blindbayes.study.tasks.floored import FlooredResult
from blindbayes.study.tasks.result import Prediction, Result, RunResult
from blindbayes.study.tasks.task import StudyTask, Task

if TYPE_CHECKING:
    from blindbayes.statistics import recomputed
else:
    recomputed = lazy("blindbayes.statistics.recomputed")  # loads a solver, which only a floor needs

AGREED = "the study, which these parties agreed on, opens exact sums without min_cell"


def with_checks(task: Task, result: RunResult) -> RunResult:
    """Return the result with its `disclosure.json`."""
    opens: Disclosure = task.disclosure
    agreement = task.agreement if isinstance(task, StudyTask) else None
    row_sum = opens.row_sum
    outputs = tuple(_outputs(opens, result, agreement))
    parties = () if agreement is None else agreement.names
    safes = {
        "projects": "" if agreement is None else f"study {agreement.sha256} {agreement.title}".rstrip(),
        "people": f"agreed by {', '.join(parties)}" if parties else "the parties of the model",
        "settings": f"protocol {opens.protocol}: {opens.summary}",
        "data": "" if agreement is None else f"codebook {agreement.book.sha256}; rows stay at the sites",
        "outputs": "checked one by one",
    }
    floor = 0 if row_sum is None else row_sum.min_cell
    quorum = None if row_sum is None else row_sum.quorum_size
    return result.with_checks(
        OutputCheck(
            outputs=outputs,
            risk_appetite=risk_appetite(floor, quorum, opens.epsilon, opens.delta),
            rules={check.name: check.sentence for check in checks_for(opens)},
            five_safes=safes,
        )
    )


def _outputs(opens: Disclosure, result: RunResult, agreement: Agreement | None) -> Iterator[CheckedOutput]:
    statistics = result.statistics if isinstance(result, Result) else None
    table = result.table if isinstance(result, FlooredResult) else None
    evaluation = result.evaluation if isinstance(result, EvaluationResult | Prediction) else None
    if opens.row_sum is not None and opens.row_sum.form is not SumForm.SHARED:
        checks = [*_sum_checks(opens, opens.row_sum, agreement)]
        if opens.row_sum.form is SumForm.EXACT and table is None and statistics is not None:
            checks = [
                check_floor(statistics),
                *([dominance] if (dominance := check_dominance(sums_of(statistics))) else []),
                *checks,
            ]
        elif table is not None:
            checks = [*_floored_checks(table), *checks]
        elif opens.row_sum.form is SumForm.EXACT and evaluation is not None:
            checks = [check_counts(evaluation.vector), *checks]
        elif opens.row_sum.form is SumForm.EXACT:
            checks = [OutputRule("floor", "review", "exact counts that are not compared with a floor here"), *checks]
        failed = any(check.name == "floor" and check.result == "fail" for check in checks)
        granted = agreement.contributors if failed and agreement is not None else ()
        names = ", ".join(name for name in opens.opened if not name.startswith(LABEL))
        kind = "table and model" if evaluation is None else "evaluation"
        yield CheckedOutput(names, kind, "Frequencies", opens.learners, tuple(checks), AGREED if failed else "", granted)
    if opens.matcher:
        text = f"exact numbers, known to {opens.matcher} alone, which brings no rows; no epsilon covers them"
        rule = OutputRule("overlap", "review", text)
        yield CheckedOutput(f"{LABEL}: numbers of persons", "join", "Frequencies", (opens.matcher,), (rule,))
    if opens.answers is not None:
        checks = list(_answer_checks(opens, opens.answers))
        yield CheckedOutput("class of each instance", "classifier in shares", "", opens.answers.to, tuple(checks))
    if opens.overlap is not None:
        yield CheckedOutput("overlap of identifiers", "join", "Frequencies", (), (_overlap_check(opens.overlap),))
    if opens.row_sum is None and opens.answers is None and opens.overlap is None:
        yield CheckedOutput(", ".join(opens.opened), "statistics", "Frequencies", opens.learners, (_budget(opens),))


def _sum_checks(opens: Disclosure, row_sum: RowSum, agreement: Agreement | None) -> Iterator[OutputRule]:
    if row_sum.form is SumForm.NOISY:
        yield OutputRule("floor", "pass", "counts carry noise: what they reveal of a record is bounded by epsilon")
        yield _budget(opens)
        return
    if agreement is not None and agreement.identities:
        text = "the table of every site takes part in exact sums over these sites only"
        if row_sum.min_cell:
            text += ", of one codebook and one min_cell"
        yield OutputRule("differencing", "pass", text)
    else:
        yield OutputRule("differencing", "review", "a simulation keeps no record of earlier sums of the same rows")


def _floored_checks(table: FlooredTable) -> Iterator[OutputRule]:
    text = f"{table.suppressed} of {len(table.cells)} cells were suppressed before anything was opened"
    yield OutputRule("floor", "pass", f"{text}; the others are 0 or at least {table.floor}")
    bounds = list(recomputed.recompute(table))
    if determined := sum(each.is_determined for each in bounds):
        yield OutputRule("recomputation", "fail", f"{determined} suppressed cells follow from the opened ones")
    else:
        smallest = min((each.high - each.low + 1 for each in bounds), default=0)
        few = f"each suppressed cell may have at least {smallest} values" if bounds else "nothing is suppressed"
        yield OutputRule("recomputation", "pass", f"linear programming over all opened values: {few}")
    sums = [
        (feature, table.margins[at, name].values.get(0, 0) if (at, name) in table.margins else table.rows[at], total)
        for (at, name), (total, _) in table.moments.items()
        if isinstance(feature := table.layout.codebook.feature(name), Numeric)
    ]
    if (dominance := check_dominance(sums)) is not None:
        yield dominance


def _budget(opens: Disclosure) -> OutputRule:
    if opens.epsilon:
        text = (
            f"epsilon {opens.epsilon:g}, delta {opens.delta:g} per run, charged to the sites' ledgers before anything was sent"
        )
        return OutputRule("budget", "pass", text)
    return OutputRule("budget", "review", "there is no noise and no floor that this program checks")


def _answer_checks(opens: Disclosure, answers: Answers) -> Iterator[OutputRule]:
    if answers.queries is None:
        yield OutputRule("queries", "fail", "the number of answers is not limited, and enough answers reveal the model")
    else:
        yield OutputRule("queries", "pass", f"at most {answers.queries} answers, charged to every party's budget")
    if 0 < opens.epsilon <= MAX_NOISE_EPSILON:
        yield _budget(opens)
    elif (answers.min_cell or 0) >= FREQUENCY:
        yield OutputRule("floor", "pass", f"counters below {answers.min_cell} are set to 0 inside the circuit")
    elif answers.min_cell is not None:
        yield OutputRule(
            "floor", "review", f"neither noise of epsilon at most {MAX_NOISE_EPSILON:g} nor min_cell of at least 10"
        )


def _overlap_check(overlap: Overlap) -> OutputRule:
    if overlap.matches_to:
        return OutputRule("overlap", "review", f"{', '.join(overlap.matches_to)} learn which of their identifiers match")
    if overlap.min_overlap < FREQUENCY:
        return OutputRule("overlap", "review", f"fewer than {FREQUENCY} common identifiers may make a model")
    return OutputRule("overlap", "pass", f"no model of fewer than {overlap.min_overlap} common identifiers")
