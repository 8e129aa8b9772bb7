"""What a site pays for a run, from its own ledger, once."""

from __future__ import annotations

from dataclasses import dataclass

from blindbayes.dp.accounting.ledger import EXACT, Ledger
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.job import Charge


@dataclass(frozen=True, slots=True)
class Payments:
    """Charges of the site's ledger."""

    ledger: Ledger

    def pay(self, charge: Charge, study: StudyFile, run_id: str, holds: str = "") -> None:
        """Pay for a run, once, before anything of it is computed. Raises `PrivacyError` if the budget does not suffice."""
        if not self.has_paid(run_id):
            charge.pay(self.ledger, f"study {study.title[:80]}{holds}", run=run_id, study=study.sha256)

    def count(self, study: str) -> int:
        """How often the ledger was charged for a study."""
        return sum(entry.kind == "charge" and entry.fields.get("study") == study for entry in self.ledger.entries())

    def note_exact(self, study: StudyFile, run_id: str) -> None:
        """Record that a run opens an exact sum, which costs no epsilon: the heads that peers keep then cover it."""
        if not self.has_paid(run_id, EXACT):
            self.ledger.note(EXACT, purpose=f"study {study.title[:80]}", run=run_id, study=study.sha256)

    def has_paid(self, run_id: str, kind: str = "charge") -> bool:
        """Whether the ledger has an entry of a kind for a run."""
        return any(entry.kind == kind and entry.fields.get("run") == run_id for entry in self.ledger.entries())
