"""Previews of a study: what it says, what it would disclose, what it would cost this site."""

from __future__ import annotations

import bisect
from dataclasses import replace
from typing import Any

from blindbayes.agent.approvals.summary import approval_of, require_study
from blindbayes.agent.runs.context import FolderSite, contribution, request_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.disclosure.checks import KNOWN_SET, changed_data, one_set, require_all
from blindbayes.errors import ConfigError, LedgerError, PrivacyError
from blindbayes.net.identity import read_card
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.task import State


def check(study: StudyFile) -> dict[str, Any]:
    """Return what the study says, who signed it, and what would be opened to whom. Raises if it cannot run."""
    signed = study.require_signatures()
    study.task.require_runnable()
    return {
        "study": study.sha256,
        **({"roster": study.roster.sha256} if study.changes else {}),
        "codebook": study.book.sha256,
        "title": study.title,
        "protocol": study.protocol,
        **study.task.facts(),
        "signed": list(signed),
        "not_signed": [party.name for party in study.parties if party.name not in signed],
    }


def verdict(home: SiteFolder, study: StudyFile) -> list[str]:
    """Return why this site would refuse the study; empty if it would not."""
    try:
        require_study(home.config.policy, study)
        require_set(home, study)
    except PrivacyError as error:
        return [str(error)]
    return []


def require_set(home: SiteFolder, study: StudyFile) -> None:
    """Raise if the study is an exact sum over other sites than those that this site's table is bound to."""
    opens, own = study.task.disclosure, read_card(home.folder / "card.toml")
    party = next((each for each in study.parties if each.identity == own.identity.hex()), None)
    if opens.row_sum is None or opens.epsilon or party is None or party.name not in study.contributors:
        return
    if home.config.rows is not None:
        vector = contribution(study, State("", None, home.config.rows.name), opens.row_sum.quorum_size, exact=True)
        require_all(replace(request_of(study, party.name), vector=vector), home.records(study), KNOWN_SET)


def dry_run(home: SiteFolder, name: str, study: StudyFile) -> dict[str, Any]:
    """Return what would leave this site, and why it would be refused. Reads the rows, so run it in a thread."""
    problems = verdict(home, study)
    trial = study.task.at(FolderSite(home, name, study), "0" * 32).dry_run()
    lines = trial.lines
    omop = home.tables.omop_report(study)
    if omop is not None:
        lines = (*lines, f"OMOP: {omop['cohort']} of {omop['persons']} persons are in the cohort, one row each.")
        lines += tuple(f"OMOP: {problem}." for problem in omop["problems"])
    misfits = _misfits(home, name, study)
    if misfits:
        lines = (*lines, f"Rows here do not fit in {', '.join(misfits)}; with an epsilon the run goes on: {HOW_MISFITS_COUNT}.")
    return {
        "study": study.sha256,
        "title": study.title,
        "protocol": study.protocol,
        **trial.facts,
        "misfits": misfits,
        "refused_because": [*problems, *trial.refused_because],
        "cost": cost(home, study),
        "past": again(home, study),
        "approval": approval_of(study).to_dict(),
        "lines": list(lines),
        **({"omop": omop} if omop is not None else {}),
    }


HOW_MISFITS_COUNT = (
    "numbers out of bounds count at the nearest bound, other values as missing, and rows of an unknown class not at all"
)


def _misfits(home: SiteFolder, name: str, study: StudyFile) -> list[str]:
    """Return the columns with rows that do not fit and that a run with noise counts all the same; others are refused."""
    if not study.task.disclosure.epsilon or home.config.rows is None:
        return []
    return [each["name"] for each in home.tables.check(study, name)["columns"] if each["problem"]]


_MAX_RUNS = 1000  # runs that one form can approve


def cost(home: SiteFolder, study: StudyFile, *, runs: int = 1) -> dict[str, Any]:
    """Return the maximum cost of further runs of a study for this site's ledger, and the budget left after them."""
    opens = study.task.disclosure
    facts: dict[str, Any] = {"runs": runs, "epsilon": opens.epsilon, "delta": opens.delta, "covered": None, "warnings": []}
    try:
        before = home.ledger.balance()
        after = home.ledger.after(opens.epsilon, opens.delta, runs)
    except (ConfigError, LedgerError) as error:
        return facts | {"problem": str(error)}
    covered = _covered(home, opens.epsilon, opens.delta)
    return facts | {
        "budget": float(before.epsilon),
        "left": before.left,
        "left_after": after.left,
        "fits": after.fits,
        "covered": covered,
        "warnings": _beyond(home, study, runs, before.left, covered),
    }


def _covered(home: SiteFolder, epsilon: float, delta: float) -> int | None:
    """Return how many runs of this cost the remaining budget covers, at most `_MAX_RUNS`; None if they cost nothing."""
    if not epsilon and not delta:
        return None
    return bisect.bisect_left(range(1, _MAX_RUNS + 1), 1, key=lambda runs: not home.ledger.after(epsilon, delta, runs).fits)


def _beyond(home: SiteFolder, study: StudyFile, runs: int, left: float, covered: int | None) -> list[str]:
    """Return what the person who approves `runs` further runs should know of the budget first."""
    if covered is None:
        return []
    if runs > covered:
        return [
            f"beyond the budget: the epsilon {left:g} that is left covers {covered} run{'s' * (covered != 1)} of this study, "
            f"and you approve {runs}; a run beyond it is refused when it starts"
        ]
    others = [each for each in home.approvals.all() if each.sha256 != study.sha256]
    promised = sum(home.approvals.runs_left(each.sha256) * each.task.disclosure.epsilon for each in others)
    if promised and promised + runs * study.task.disclosure.epsilon > left:
        return [
            f"beyond the budget together with other studies: their approved runs may take epsilon {promised:g} of the {left:g} "
            "that is left; the last runs to start are refused"
        ]
    return []


def again(home: SiteFolder, study: StudyFile) -> list[str]:
    """Return sentences on what earlier runs mean for the next one, for the person who approves it."""
    starts, left = home.history.count_starts(study.sha256), home.approvals.runs_left(study.sha256)
    lines = [f"{starts} run(s) of this study computed here; {left} more approved."] if starts or left else []
    opens = study.task.disclosure
    if not opens.epsilon and opens.row_sum is not None:
        lines.append(one_set.sentence)
        if not home.config.policy.changed_data:
            lines.append(changed_data.sentence)
    if starts and opens.epsilon:
        lines.append(
            f"Each run is charged to this site's ledger, at most epsilon {opens.epsilon:g}. "
            "A run that adds to an earlier one may cost less."
        )
    return lines
