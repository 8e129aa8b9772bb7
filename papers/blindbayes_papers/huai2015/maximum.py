"""Studies that open the size of the largest table and nothing else: for noise that protects a whole party."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Exposure
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts, Scheme
from blindbayes.study.study import Study
from blindbayes.study.tasks.job import CountingJob, Site, refused_reading
from blindbayes.study.tasks.result import Learned, about_run, leakage_of, report_run
from blindbayes_papers.huai2015 import private_maximum
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER


class PrivateMaximumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_maximum."""

    bits: int = 32  # binary digits of the maximum

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 63:
            raise ConfigError("bits lies between 1 and 63")


@dataclass(frozen=True)
class Maximum:
    """What is public: who takes part, and how many digits are opened."""

    names: tuple[str, ...]
    bits: int

    @property
    def setting(self) -> SumSetup:
        """Of each digit's sum."""
        return SumSetup(self.names, 1, bound=1, options={"scheme": "ristretto"})


@dataclass(frozen=True)
class MaximumResult(Learned):
    """The size of the largest table."""

    maximum: int = field(default=0)

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        return {"maximum.json": (json.dumps({"party_rows": self.maximum}) + "\n").encode(), **super().files(deployment)}


class MaximumScheme(Scheme):
    """See `study.schemes.Scheme`."""

    name = "private_maximum"
    params = PrivateMaximumParams
    facts = Facts(
        partitions=("rows",),
        line="the size of the largest table, to everybody, and nothing else. All must answer.",
        allowed=False,  # until a site's people have read that it tells a size
        offered=False,
        living=True,
        leaves=("one bit under encryption for each digit of the maximum",),
    )

    def check(self, study: Study) -> None:
        """It is exact, and all take part."""
        if study.privacy.epsilon is not None or study.limits.quorum is not None:
            raise ConfigError("private_maximum opens an exact number of all parties; leave epsilon and quorum out")

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        """The contributors and the miner."""
        return (*agreement.contributors, MINER)

    def learners(self, agreement: Agreement) -> tuple[str, ...]:
        return self.seats(agreement)

    def agree(self, agreement: Agreement) -> Maximum:
        """Raises `PrivacyError` for fewer parties than the study asks for."""
        study, names = agreement.study, agreement.contributors
        if len(names) < max(study.limits.min_parties, 2):
            raise PrivacyError(f"the study asks for at least {study.limits.min_parties} parties; {len(names)} take part")
        bits: int = study.params.bits  # type: ignore[attr-defined]
        return Maximum(names, bits)

    def job(self, agreement: Agreement, site: Site, run_id: str) -> MaximumJob:
        return MaximumJob(agreement, site, run_id)

    def price(self, public: Maximum) -> Charge | None:
        """Nothing that a ledger can express."""
        return None

    def result(self, agreement: Agreement, outcome: Outcome, *, run: str = "", **_: Any) -> MaximumResult:
        """The maximum that the roles of this site learned."""
        found = {number for number in outcome.outputs.values() if number is not None}
        if len(found) != 1:
            raise LocalProtocolError("the roles learned different maxima")
        maximum, size = found.pop(), len(agreement.contributors)
        follows = (f"The largest of {size} tables has {maximum} rows. Whose it is was not told.",)
        report = report_run((self.name,), size, outcome, follows, about_run(agreement, run))
        text = f"Study {agreement.sha256}\n\nNo noise: the size of the largest table is exact. Nothing else was opened."
        known = {"party_rows": maximum}
        return MaximumResult(leakage_of(outcome), outcome.cost, text, report, known, maximum)

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """An exact number of all sites."""
        return Exposure(exact=True, quorum_size=len(agreement.contributors))

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        return {
            "contributors": list(agreement.contributors),
            "hosts": dict(agreement.hosts),
            "opened": [private_maximum.LABEL],
            "learners": list(agreement.names),
        }

    def told(self, agreement: Agreement) -> list[str]:
        return [f"{agreement.title}: the size of the largest table of {', '.join(agreement.contributors)}, to all of them."]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        problems = refused_reading(self.job(agreement, site, "0" * 32))
        facts = {"leaves_as": self.facts.leaves[0], "opened": private_maximum.LABEL, "opened_to": list(agreement.names)}
        return {**facts, "refused_because": problems}, [self.facts.leaves[0], "Nothing has left."]


class MaximumJob(CountingJob):
    """See `job.Job`."""

    kind = "maximum"

    def read(self) -> None:
        if self.site.name in self.agreement.contributors:
            self.bring(self.count(self.agreement.study.codebook))

    def role(self, seat: str, run: Run, coins: Coins) -> Role[int]:
        public: Maximum = self.agreement.public
        if seat == MINER:
            return private_maximum.miner(run, public.names, public.bits, coins)
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=seat)
        rows = int(self.statistics.class_counts.sum())
        return private_maximum.contributor(run, public.names, rows, public.bits, coins)

    def authorise_and_charge(self, seat: str) -> None:
        """Approval and rate; no statistics are in it, so that no difference of sums is either."""
        if seat == self.site.name:
            size = len(self.agreement.contributors)
            self.site.authorise_and_charge(self.agreement, self.run_id, None, state=self.state, quorum_size=size)


SCHEME = MaximumScheme()
