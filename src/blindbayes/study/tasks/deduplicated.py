"""The task of `sites_per_person = "matched"`: a noisy sum in which a person who is at several sites counts at one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from typing import cast

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.persons import PersonRows
from blindbayes.disclosure.value import Disclosure, Output
from blindbayes.dp.distributed.noisy_sum import NoisySum, SumNoise
from blindbayes.errors import ConfigError, LocalProtocolError, PrivacyError
from blindbayes.protocols import link_bytes
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.deduplicated_sum.roles import LABEL, DeduplicatedSetup, Persons, Places, role
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import Total, U64Array
from blindbayes.protocols.secure_sum.keys import SERVER
from blindbayes.report.leakage import LeakReport
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import about_run, report_run
from blindbayes.study.tasks.sums import SumTask
from blindbayes.study.tasks.traits import Support

PROTOCOL = "deduplicated_sum"


class DeduplicatedSumTask(SumTask):
    """A noisy sum in which the server, at a party without rows, has each person counted at one of their sites."""

    messages = (
        "one keyed pseudonym per person, to the party without rows that compares them",
        "what each person adds to the sum, under pads of oblivious transfers",
        "one vector under masks, as SPEC.md of masked_sum says",
    )

    @classmethod
    def default_quorum(cls, parties: int) -> int | None:
        return None  # every site: a person's rows at a site that is lost would be lost with it

    @classmethod
    def check(cls, study: Study) -> None:
        name = 'sites_per_person = "matched"'
        if cls.name != "masked_sum":
            raise ConfigError(f"{name} runs by masked_sum only; choose it, or give a number of sites")
        if study.codebook.texts:
            raise ConfigError(f"{name} is for categories and numbers; leave texts out, or give a number of sites")
        if study.estimation.held_out or study.estimation.folds:
            raise ConfigError(
                f"an evaluation matches nobody: with {name} leave held_out and folds out, or give a number of sites"
            )

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.setup = DeduplicatedSetup(self.setting, self.counting.max_rows)
        if agreement.host(SERVER) in agreement.contributors:
            raise ConfigError(
                'sites_per_person = "matched" needs a party that brings no rows: it hosts the server and compares pseudonyms, '
                "which would tell a site who is at another. Add one (contributes = false; --without-rows on the command line), "
                "or give a number of sites"
            )
        self._persons: PersonRows | None = None

    @property
    def noisy(self) -> NoisySum:
        """The plan of the noise, which every study with persons has."""
        if self.plan is None:
            raise LocalProtocolError("a sum over persons is noisy")
        return self.plan

    def max_bytes(self) -> int | None:
        masked = link_bytes.secure_sum(self.name, len(self.setting.contributors), lambda: self.setting.length)
        return None if masked is None else masked + self.setup.max_link_bytes

    def count(self, codebook: Codebook) -> Statistics:
        self._persons = self.site.persons(self.reading(codebook, None))
        return self._persons.statistics

    def read(self) -> None:
        base, is_missing = self.site.previous_total(self.counting)
        if base is not None or is_missing:
            raise PrivacyError("who is at several sites is matched anew in every run: a study with matched persons has no base")
        super().read()

    def digest(self, name: str) -> bytes:
        """Return the digest of who has which rows: two persons who exchange rows leave the statistics as they were."""
        return super().digest(name) + (b"" if self._persons is None else self._persons.digest(self.site.key))

    def role(self, name: str, run: Run, coins: Coins) -> Role[Total | None]:
        persons, noise = None, None
        if name == self.site.name and self._persons is not None:
            persons = Persons(self._persons.identifiers, self.words)
            nothing = Statistics.zero(self.counting)
            noise = self.sum.contribution(nothing, coins.derive("contribution"), None, self.site.name)
        return role(run, self.setup, persons, noise, coins.derive("role"))

    def words(self, places: Places) -> U64Array:
        """Return what these persons of this site add to the sum."""
        if self._persons is None:
            raise LocalProtocolError("a party has read its rows", party=self.site.name)
        rows, owners = self._persons.rows_of(places)
        added: U64Array = self.noisy.vectors(rows, owners, len(places)).view(np.uint64)
        return added

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        plain, host = super().disclosure, self.agreement.host(SERVER)
        return replace(
            plain,
            outputs=(
                *plain.outputs,
                Output(f"{LABEL}: how many persons are at each site, and at which sites together", (host,)),
            ),
            deviation=(*plain.deviation, *self.deviations),
            conclusions=(*plain.conclusions, *self.deviations),
            risks=(*plain.risks, self.risk),
            matcher=host,
        )

    def trust_in(self, noise: SumNoise) -> str:
        return (
            f"{super().trust_in(noise)} That a person at several sites loses epsilon once relies on "
            f"{self.agreement.host(SERVER)}, which compares keyed pseudonyms and has each person counted at one site: if it "
            "deviates, a person at k sites loses up to k times epsilon."
        )

    @property
    def risk(self) -> str:
        """The knowledge of the party that matches, alone and with a site, in a sentence."""
        host = self.agreement.host(SERVER)
        return (
            f"{host} learns how many people each site has and how many are at which sites together, exactly. If it pools what "
            "it saw with any one site, the two learn of everybody whose identifier they can guess at which sites they are."
        )

    @property
    def deviations(self) -> tuple[str, ...]:
        """The gain of parties that deviate, beyond the masked sum, one sentence each."""
        return (
            self.risk,
            "A site that changes its software can enlarge one person's part in the sum, and so learn whether another site has "
            "that person.",
        )

    def _report(self, outcome: Outcome, follows: tuple[str, ...]) -> LeakReport:
        about = about_run(self.agreement, self.run_id)
        names = (self.name, PROTOCOL)
        return report_run(names, len(self.agreement.contributors), outcome, (*follows, *self.deviations), about)


@cache
def deduplicated_class(plain: type[SumTask]) -> type[SumTask]:
    """Return the task class of a protocol's sums with matched persons."""
    line = "masks that cancel. Every site learns the sum; a party without rows compares pseudonyms; no site may drop out."
    supports = plain.supports - {Support.DROPOUT, Support.SLOW_COURIER, Support.INCREMENTS}
    members = {"__module__": __name__, "description": line, "supports": supports}
    made = type("DeduplicatedSumTask", (DeduplicatedSumTask, plain), members)
    return cast("type[SumTask]", made)
