"""A model of rows that several parties hold, without the counts behind it: private_ratio.

Nothing is opened: two of the parties hold shares of the model, and a classification is a run of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Exposure
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup, train
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts, Scheme
from blindbayes.study.study import Study
from blindbayes.study.tasks.job import CountingJob, Site, refused_reading
from blindbayes.study.tasks.result import JointResult, Learned, Result, about_run, leakage_of, report_run
from blindbayes.study.tasks.sum_plan import require_party_rows


class PrivateRatioParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_ratio."""

    queries: int | None = None  # how many instances may be classified, ever; None: no limit

    def __post_init__(self) -> None:
        if self.queries is not None and self.queries < 1:
            raise ConfigError("the option queries is the number of instances that may be classified")


@dataclass(frozen=True)
class Ratio:
    """What is public about one run: the model that stays in shares."""

    study: Study
    names: tuple[str, ...]
    rows: SharedRowsSetup

    @property
    def setting(self) -> SumSetup:
        """For the rule on exact sums: answers depend on everybody's counts."""
        return SumSetup(self.names, 1)

    @property
    def computing(self) -> tuple[str, str]:
        """The two parties that compute, who must not collude."""
        return self.names[0], self.names[-1]


class RatioScheme(Scheme):
    """See `study.schemes.Scheme`."""

    name = "private_ratio"
    params: type[msgspec.Struct] = PrivateRatioParams
    facts = Facts(
        partitions=("rows",),
        line="a model without counts, in shares of two sites that classify together. All must answer.",
        shares=True,
        leaves=("shares of this site's counts, one to each of the two sites that compute",),
    )

    def check(self, study: Study) -> None:
        """Exact counts of all parties, in shares."""
        if study.limits.quorum is not None:
            raise ConfigError("private_ratio needs every party; leave quorum unset")
        if study.privacy.epsilon is not None:
            raise PrivacyError("private_ratio keeps exact counts in shares and adds no noise; leave epsilon out, or sum")

    def agree(self, agreement: Agreement) -> Ratio:
        """Who computes; whether scores fit, and have a least variance, is known now."""
        study, names = agreement.study, agreement.contributors
        self.require_parties(study, names)
        rows = SharedRowsSetup(study.codebook, names, study.estimation.alpha)
        rows.plan  # noqa: B018 - refuses what does not fit
        return Ratio(study, names, rows)

    def require_parties(self, study: Study, names: tuple[str, ...]) -> None:
        """Refuse fewer parties than the study asks for, or than compute."""
        if len(names) < study.limits.min_parties:
            raise PrivacyError(f"the study asks for at least {study.limits.min_parties} parties; {len(names)} take part")
        if len(names) < 2:
            raise ConfigError(f"{self.name} needs at least two parties")

    def job(self, agreement: Agreement, site: Site, run_id: str) -> RatioJob:
        return RatioJob(agreement, site, run_id)

    def price(self, public: Ratio) -> Charge | None:
        """Nothing that a ledger can express."""
        return None

    def result(
        self, agreement: Agreement, outcome: Outcome, *, run: str = "", model: Any = None, **_: Any
    ) -> Result | JointResult | Learned:
        """The report of a model in shares."""
        public: Ratio = agreement.public
        leakage, (first, second) = leakage_of(outcome), public.computing
        follows = (
            self.follows(agreement),
            f"{first} and {second} together have the sums of all counts; they must not collude.",
        )
        protocols = ("transfer", self.name, "shared_model", "joined_sums")
        report = report_run(protocols, len(public.names), outcome, follows, about_run(agreement, run))
        statement = self.statement(agreement)
        if model is None:
            return Learned(leakage, outcome.cost, statement, report, {"included": list(public.names)})
        return JointResult(model, leakage, outcome.cost, statement, public.names, report)

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Classifications, whose answers tell the sum."""
        queries = agreement.study.options.get("queries")
        return Exposure(shares=True, queries=queries, quorum_size=len(agreement.contributors))

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        return {
            "contributors": list(agreement.contributors),
            "compute": list(agreement.public.computing),
            "opened": ["nothing"],
            "learners": [],
            "model": "exists only as shares of the two that compute",
            "opened_per_classified_instance": ["class, to the site whose instance it is"],
            "queries": agreement.study.options.get("queries", "not limited: sites refuse such a study by policy"),
        }

    def told(self, agreement: Agreement) -> list[str]:
        first, second = agreement.public.computing
        return [
            f"{agreement.title}: rows of {', '.join(agreement.contributors)}, by {self.name}.",
            f"  {self.follows(agreement)}",
            f"  {first} and {second} compute. Together they could read every site's counts: they must not collude.",
        ]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        said, problems = self.shown(agreement), refused_reading(self.job(agreement, site, "0" * 32))
        facts = {"leaves_as": self.facts.leaves[0], "opened": said["opened"], "opened_to": said["learners"]}
        follows = self.follows(agreement)
        return {**facts, "refused_because": problems}, [self.facts.leaves[0], follows, "Nothing has left."]

    def follows(self, agreement: Agreement) -> str:
        """Return what the run reveals, in a sentence or two."""
        first, second = agreement.public.computing
        queries = agreement.study.options.get("queries")
        limit = f"At most {queries} instances may be classified" if queries else "The number of queries is not limited"
        return (
            f"Nothing is opened: the model stays in shares of {first} and {second}. A classification, for which every site's "
            f"people ask, opens the class to the site whose instance it is. {limit}; repeated queries let the "
            "model be read off, and so the sum of all counts: some 25 answers tell one number of it."
        )

    def statement(self, agreement: Agreement) -> str:
        """Return what the run promises, for the privacy officer."""
        first, second = agreement.public.computing
        lines = [
            f"Study {agreement.sha256}",
            f"Codebook {agreement.study.codebook.sha256}",
            f"Protocol {self.name}; {first} and {second} compute, and must not collude: together they have the sums.",
            self.follows(agreement),
        ]
        return "\n\n".join([*lines, *self.statement_lines(agreement)])

    def statement_lines(self, agreement: Agreement) -> list[str]:
        """Return what the statement says of the scores."""
        plan = agreement.public.rows.plan
        return [
            f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of pooled classification "
            f"wherever the two best scores differ by more than {plan.tie_bound:.3g}."
        ]


class RatioJob(CountingJob):
    """See `job.Job`."""

    def read(self) -> None:
        """Count this site's rows. Nobody can look whether a total is too large, so each site brings its part at most."""
        public: Ratio = self.agreement.public
        if self.site.name in public.names:
            own, most = self.count(public.study.codebook), public.study.codebook.max_rows // len(public.names)
            if int(own.class_counts.sum()) > most:
                raise DataError(
                    f"with {len(public.names)} parties a site brings at most max_rows / {len(public.names)} = {most} rows: "
                    "nobody sees the total, so that each must see to it that it fits; declare a larger max_rows"
                )
            require_party_rows(public.study, own)
            self.bring(own)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        public: Ratio = self.agreement.public
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=seat)
        return train(run, public.rows, public.rows.vector(self.statistics), coins.derive("role"))

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, one table one set; once per run. A model in shares counts as an exact sum."""
        size = len(self.agreement.public.names)
        self.site.authorise_and_charge(self.agreement, self.run_id, None, state=self.state, quorum_size=size, exact=True)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        public: Ratio = self.agreement.public
        made, name = outputs[self.site.name], self.site.name
        facts = {**replace(public.rows, training=made.training).to_dict(), "run": self.run_id}
        queries = self.agreement.study.options.get("queries")
        share = ModelShare(self.agreement.sha256, name, facts, made.tables, made.sums, None, queries)
        self.site.keep_share(self.run_id, share)


SCHEME = RatioScheme()
