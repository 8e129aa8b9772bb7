"""Status that an agent reports about itself."""

from __future__ import annotations

import calendar
import shutil
import time
from typing import TYPE_CHECKING, Any

from blindbayes.errors import BlindbayesError
from blindbayes.net.versions import VERSIONS

if TYPE_CHECKING:
    from blindbayes.agent.agent import Agent


def numbers(agent: Agent) -> dict[str, float]:
    """Return metrics by name; the last part of a name is the unit. No value comes from a row."""
    home = agent.home
    metrics: dict[str, float] = {
        "disk_free_bytes": shutil.disk_usage(home.folder).free,
        "audit_log_bytes": home.audit.path.stat().st_size,
        "proposed_studies": len(agent.proposed_studies),
        "waiting_approvals": len(home.decisions.waiting()),
        "unsettled_runs": len(home.history.unsettled()),
        "behind_backup": float(home.history.behind() is not None),
        "older_logs_seen": len(home.audit.where("event", "older log")),
        "run_seconds": agent.counters["run_milliseconds"] / 1000,
    }
    if backups := home.audit.where("event", "backed up"):
        made = calendar.timegm(time.strptime(backups[-1]["time"], "%Y-%m-%dT%H:%M:%SZ"))
        metrics["backup_age_seconds"] = max(0.0, time.time() - made)
    try:
        balance = home.ledger.balance()
        metrics |= {"budget_epsilon": float(balance.epsilon), "budget_left_epsilon": balance.left}
    except BlindbayesError:  # `/readyz` reports a ledger that cannot be read
        pass
    return metrics


_KEEP_SHOWN = 16


def show_site(agent: Agent) -> dict[str, Any]:
    home, router = agent.home, agent.router
    return {
        "site": agent.name,
        "fingerprint": agent.identity.card.words,
        "peers": {name: router.courier.is_up(name) for name in sorted(home.peers())},
        "versions": {agent.name: dict(VERSIONS)} | {name: dict(versions) for name, versions in sorted(router.versions.items())},
        "approved": [
            {"study": study.sha256, "title": study.title, "roster": study.roster.sha256} for study in home.approvals.all()
        ],
        "proposed": [{"study": sha256, "by": site} for sha256, site in agent.proposed_studies.items()],
        "waiting_approvals": home.decisions.waiting(),
        "refused": home.audit.where("event", "refused")[-_KEEP_SHOWN:],
        "pending_predictions": list(agent.pending_predictions.values()),
        "runs": [run.show() for run in agent.runs.values()],
        "audit_head": home.audit.head,
        "ledger_head": str(home.ledger.head),
    }
