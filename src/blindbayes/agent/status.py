"""What an agent reports about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blindbayes.net.versions import VERSIONS

if TYPE_CHECKING:
    from blindbayes.agent.agent import Agent

_KEEP_SHOWN = 16


def show_site(agent: Agent) -> dict[str, Any]:
    """The state of the site."""
    home, board = agent.home, agent.board
    return {
        "site": agent.name,
        "fingerprint": agent.identity.card.words,
        "peers": {name: board.courier.is_up(name) for name in sorted(home.peers())},
        "versions": {agent.name: dict(VERSIONS)} | {name: dict(told) for name, told in sorted(board.versions.items())},
        "approved": [
            {"study": study.sha256, "title": study.title, "roster": study.roster.sha256} for study in home.approvals.all()
        ],
        "proposed": [{"study": sha256, "by": site} for sha256, site in agent.proposed_studies.items()],
        "waiting_approvals": home.decisions.waiting(),
        "refused": home.audit.of("event", "refused")[-_KEEP_SHOWN:],
        "pending_predictions": list(agent.pending_predictions.values()),
        "runs": [run.show() for run in agent.runs.values()],
        "audit_head": home.audit.head,
        "ledger_head": str(home.ledger.head),
    }
