"""What whoever watches a site should know as numbers: budget, disk, durations, what waits for people."""

from __future__ import annotations

import calendar
import shutil
import time

from blindbayes.agent.agent import Agent
from blindbayes.errors import BlindbayesError


def numbers(agent: Agent) -> dict[str, float]:
    """By name; the unit is the name's last word. No value of a row, and nothing that is not in the site's own log."""
    home = agent.home
    found: dict[str, float] = {
        "disk_free_bytes": shutil.disk_usage(home.folder).free,
        "audit_log_bytes": home.audit.path.stat().st_size,
        "proposed_studies": len(agent.proposed_studies),
        "waiting_approvals": len(home.decisions.waiting()),
        "unsettled_runs": len(home.history.unsettled()),
        "behind_backup": float(home.history.behind() is not None),
        "older_logs_seen": len(home.audit.of("event", "older log")),
        "run_seconds": agent.counters["run_milliseconds"] / 1000,
    }
    if backups := home.audit.of("event", "backed up"):
        made = calendar.timegm(time.strptime(backups[-1]["time"], "%Y-%m-%dT%H:%M:%SZ"))
        found["backup_age_seconds"] = max(0.0, time.time() - made)
    try:
        balance = home.ledger.balance()
        found |= {"budget_epsilon": float(balance.epsilon), "budget_left_epsilon": balance.left}
    except BlindbayesError:  # a ledger that cannot be read is what `/readyz` says
        pass
    return found
