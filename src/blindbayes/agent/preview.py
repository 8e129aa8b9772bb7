"""What a study says, what it would open, and what it would cost this site: facts for the command line, the API and pages."""

from __future__ import annotations

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
    """What the study says, who signed it, what would be opened and to whom. Raises if it cannot run."""
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
    """Why this site's policy would refuse the study; empty if it would not."""
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
    """What would leave this site, by kind of cell, and why it would be refused. Reads the rows; run it in a thread."""
    problems = verdict(home, study)
    found, lines = study.task.at(FolderSite(home, name, study), "0" * 32).dry_run()
    told = {"study": study.sha256, "title": study.title, "protocol": study.protocol, **found}
    return told | {
        "refused_because": problems + found["refused_because"],
        "cost": cost(home, study),
        "past": again(home, study),
        "approval": approval_of(study).to_dict(),
        "lines": lines,
    }


def cost(home: SiteFolder, study: StudyFile, *, runs: int = 1) -> dict[str, Any]:
    """What runs of a study would cost this site's ledger at the most, and what they would leave."""
    opens = study.task.disclosure
    told: dict[str, Any] = {"runs": runs, "epsilon": opens.epsilon, "delta": opens.delta}
    try:
        before = home.ledger.balance()
        after = home.ledger.after(opens.epsilon, opens.delta, runs)
    except (ConfigError, LedgerError) as error:
        return told | {"problem": str(error)}
    fits = after.spent_epsilon <= float(after.epsilon) and after.spent_delta <= float(after.delta)
    return told | {"budget": float(before.epsilon), "left": before.left, "left_after": after.left, "fits": fits}


def again(home: SiteFolder, study: StudyFile) -> list[str]:
    """What an earlier run means for the next one, in sentences: said before people approve it."""
    starts, left = len(home.history.starts(study.sha256)), home.approvals.runs_left(study.sha256)
    told = [f"{starts} run(s) of this study computed here; {left} more approved."] if starts or left else []
    opens = study.task.disclosure
    if not opens.epsilon and opens.row_sum is not None:
        told.append(one_set.sentence)
        if not home.config.policy.changed_data:
            told.append(changed_data.sentence)
    if starts and opens.epsilon:
        told.append(
            f"Each run is charged to this site's ledger, at most epsilon {opens.epsilon:g}; with --base it may be less."
        )
    return told
