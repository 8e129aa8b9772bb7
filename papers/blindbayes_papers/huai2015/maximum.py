"""Studies that open the size of the largest table and nothing else: for noise that protects a whole party."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, cast

import msgspec

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Output, RowSum, SumForm
from blindbayes.dp.accounting.statement import Deployment
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import ContributorResult, about_run, leakage_of, report_run
from blindbayes.study.tasks.task import Computation, CountingTask
from blindbayes.study.tasks.traits import Support
from blindbayes_papers.huai2015 import private_maximum
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER


class PrivateMaximumParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_maximum."""

    bits: Annotated[int, "binary digits of the maximum"] = 32

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 63:
            raise ConfigError("bits lies between 1 and 63")


@dataclass(frozen=True)
class MaximumResult(ContributorResult):
    """The size of the largest table."""

    maximum: int = field(default=0)

    def files(self, deployment: Deployment | None = None) -> dict[str, bytes]:
        return {"maximum.json": (json.dumps({"party_rows": self.maximum}) + "\n").encode(), **super().files(deployment)}


class MaximumTask(CountingTask):
    """One bit per digit of the maximum leaves a site, under encryption."""

    kind = "maximum"
    name = "private_maximum"
    description = "the size of the largest table, to everybody, and nothing else. All must answer."
    params = PrivateMaximumParams
    partitions = ("rows",)
    restricted = True  # until a site's staff have read that it reveals a size
    supports = frozenset({Support.ROSTER_CHANGES})
    messages = ("one bit under encryption for each digit of the maximum",)

    @classmethod
    def check(cls, study: Study) -> None:
        if study.privacy.epsilon is not None or study.limits.quorum is not None:
            raise ConfigError("private_maximum opens an exact number of all parties; leave epsilon and quorum out")

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.names = agreement.contributors
        if len(self.names) < max(self.study.limits.min_parties, 2):
            raise PrivacyError(
                f"the study asks for at least {self.study.limits.min_parties} parties; {len(self.names)} take part"
            )
        self.bits = cast(PrivateMaximumParams, self.study.params).bits
        self.setting = SumSetup(self.names, 1, bound=1, options={"scheme": "ristretto"})  # of each digit's sum
        self.roles = self.learners = (*self.names, MINER)

    def cost(self, party: str) -> Charge | None:
        return None

    def read(self) -> None:
        if self.site.name in self.names:
            self.bring(self.count(self.study.codebook))

    def role(self, name: str, run: Run, coins: Coins) -> Role[int]:
        if name == MINER:
            return private_maximum.miner(run, self.names, self.bits, coins)
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=name)
        rows = int(self.statistics.class_counts.sum())
        return private_maximum.contributor(run, self.names, rows, self.bits, coins)

    def authorise_and_charge(self, name: str) -> None:
        """Authorise the run; no statistics are in it, and so no difference of sums."""
        if name == self.site.name:
            size = len(self.names)
            self.site.authorise_and_charge(Computation(self.agreement, self.run_id, None, self.state, size))

    def result(self, outcome: Outcome) -> MaximumResult:
        maxima = {number for number in outcome.outputs.values() if number is not None}
        if len(maxima) != 1:
            raise LocalProtocolError("the roles learned different maxima")
        maximum, size = maxima.pop(), len(self.names)
        follows = (f"The largest of {size} tables has {maximum} rows. Which site has it was not opened.",)
        report = report_run((self.name,), size, outcome, follows, about_run(self.agreement, self.run_id))
        text = f"Study {self.agreement.sha256}\n\nNo noise: the size of the largest table is exact. Nothing else was opened."
        known = {"party_rows": maximum}
        return MaximumResult(leakage_of(outcome), outcome.cost, text, report, known, maximum)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=(Output(private_maximum.LABEL, self.agreement.names),),
            learners=self.agreement.names,
            row_sum=RowSum(SumForm.EXACT, len(self.names)),
        )

    def facts(self) -> dict[str, Any]:
        return {
            "contributors": list(self.names),
            "hosts": dict(self.agreement.hosts),
            "opened": list(self.disclosure.opened),
            "learners": list(self.disclosure.learners),
        }

    def summary(self) -> list[str]:
        return [f"{self.agreement.title}: the size of the largest table of {', '.join(self.names)}, to all of them."]


TASK = MaximumTask
