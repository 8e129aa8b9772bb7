"""What a site pays for a run, from its own ledger, once."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from blindbayes.ledger import Ledger
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.chance import written
from blindbayes.study.file import StudyFile


@dataclass(frozen=True, slots=True)
class Payments:
    """Charges of the site's ledger."""

    ledger: Ledger

    def charge(self, study: StudyFile, run_id: str) -> None:
        """Pay for a run, once, before anything of it is computed. Raises `PrivacyError` if the budget does not suffice."""
        plan = study.study.plan(study.setting)
        if plan is None or self.has_paid(run_id):
            return
        spend = Spend(written(plan.price.epsilon), written(plan.price.delta))
        unit = plan.price.unit
        self.ledger.charge(spend, purpose=f"study {study.title[:80]}", unit=unit, run=run_id, study=study.sha256)

    def charge_histograms(self, study: StudyFile, name: str, run_id: str) -> None:
        """Pay for this site's part of noisy_histograms, once."""
        if not self.has_paid(run_id):
            price = study.noisy.mechanisms[name].price
            spend = Spend(written(price.epsilon), Fraction(0))
            self.ledger.charge(spend, purpose=f"study {study.title[:80]}", unit=price.unit, run=run_id, study=study.sha256)

    def has_paid(self, run_id: str) -> bool:
        """Whether the ledger was charged for a run."""
        return any(entry.kind == "charge" and entry.fields.get("run") == run_id for entry in self.ledger.entries())
