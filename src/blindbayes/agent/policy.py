"""What a site allows. Fail closed: what no rule allows is refused, before anything is computed or sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from blindbayes.agent.approval import require_strength
from blindbayes.errors import PrivacyError
from blindbayes.study import schemes
from blindbayes.study.agreement import Agreement
from blindbayes.study.file import StudyFile
from blindbayes.study.schemes import Exposure
from blindbayes.study.tasks.job import Charge


def allowed_protocols() -> tuple[str, ...]:
    """What a new site allows: every protocol of the core that protects, and runs between sites."""
    facts = {name: schemes.scheme(name).facts for name in schemes.own_names()}
    return tuple(name for name, its in facts.items() if its.allowed and its.between_sites)


MAX_NOISE_EPSILON = 3.0
"""Over columns, the largest epsilon that may stand in place of `min_cell`. At 10 one answer each reads 98 of 100 classes."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[policy]` of site.toml. The defaults are the strict ones; `settings` says what each does."""

    protocols: tuple[str, ...] = msgspec.field(default_factory=allowed_protocols)
    min_parties: int = 3
    min_rows: int = 10
    exact_sums: bool = True
    changed_data: bool = False
    max_epsilon_per_run: float = 10.0
    max_delta_per_run: float = 1e-5
    max_runs_per_day: int = 24
    max_running: int = 4
    max_idle_joins_per_day: int = 48
    max_queries: int = 100_000
    min_overlap: int = 10
    max_overlap_bits_per_day: int = 2
    min_audit_rate: float = 0.0
    noise_in_shares: bool = False
    min_cell: int = 10
    reveal_matches: bool = False
    require_all_signatures: bool = False
    approvers: int = 1
    min_colluders: int = 1
    weaker_options: bool = False


def require_study(policy: Policy, study: StudyFile) -> None:
    """The rules that the study's text alone decides. Raises `PrivacyError`."""
    require_agreement(policy, study.agreement)
    require_strength(study, policy.min_colluders, weaker=policy.weaker_options)
    if policy.require_all_signatures and set(study.require_signatures()) != set(study.names):
        raise PrivacyError("this site asks for the signatures of all parties on the study")


def require_agreement(policy: Policy, agreement: Agreement) -> None:
    """The rules on what a run would open, whichever protocol opens it."""
    protocol = agreement.study.protocol
    if protocol not in policy.protocols:
        raise PrivacyError(f"this site does not allow the protocol {protocol!r}")
    opens = agreement.study.scheme.exposure(agreement)
    if opens.unsafe:
        raise PrivacyError(opens.unsafe[0])
    if opens.quorum_size is not None and not opens.epsilon and not policy.exact_sums:  # in shares too: answers tell it
        raise PrivacyError("this site takes part in no exact sum; the study needs an epsilon")
    if opens.exact and opens.quorum_size is not None and opens.quorum_size < 3:
        raise PrivacyError("an exact sum of two sites tells each the other's statistics")
    if opens.quorum_size is not None and opens.quorum_size < policy.min_parties:
        raise PrivacyError(f"this site asks for at least {policy.min_parties} sites in a sum; the study's quorum is lower")
    if opens.shares:
        _require_queries(policy, opens)
    if opens.overlap is not None:
        _require_overlap(policy, opens, opens.overlap)
    if opens.matches:
        require_matches_revealed(policy)
    if opens.shares:
        _require_noise(policy, opens)
    if opens.epsilon > policy.max_epsilon_per_run:
        raise PrivacyError(f"this site allows an epsilon of at most {policy.max_epsilon_per_run:g} per run")
    if opens.delta > policy.max_delta_per_run:
        raise PrivacyError(f"this site allows a delta of at most {policy.max_delta_per_run:g} per run")


def _require_queries(policy: Policy, opens: Exposure) -> None:
    """Training opens nothing; what classifications tell is limited by their number."""
    if opens.queries is None:
        raise PrivacyError(
            "the study does not limit how many instances may be classified, and repeated queries let the model be read off: "
            f"set options.queries, at most {policy.max_queries}"
        )
    if opens.queries > policy.max_queries:
        raise PrivacyError(
            f"this site lets at most {policy.max_queries} instances be classified; options.queries asks for more"
        )


def _require_noise(policy: Policy, opens: Exposure) -> None:
    if policy.noise_in_shares and not opens.epsilon:
        raise PrivacyError(
            "without noise in the shares a table made up by another site turns answers into facts about one person: this site "
            "asks for an epsilon (noise_in_shares under [policy] in site.toml)"
        )
    if opens.min_cell is not None and opens.min_cell < policy.min_cell and not 0 < opens.epsilon <= MAX_NOISE_EPSILON:
        raise PrivacyError(
            "without noise, or with little, a column with a value for each person turns every answer into one person's class: "
            f"this site asks for an epsilon, of at most {MAX_NOISE_EPSILON:g}, or for thresholds.min_cell of at least "
            f"{policy.min_cell} (min_cell under [policy] in site.toml)"
        )
    if opens.audit_rate < policy.min_audit_rate:
        raise PrivacyError(f"this site asks for options.audit_rate of at least {policy.min_audit_rate:g}")


def _require_overlap(policy: Policy, opens: Exposure, least: int) -> None:
    if least < policy.min_overlap:
        raise PrivacyError(
            "over few common identifiers a model speaks of single people: this site asks for options.min_overlap of at least "
            f"{policy.min_overlap}"
        )
    if least and policy.max_overlap_bits_per_day < 1:
        raise PrivacyError("this site does not tell whether enough identifiers match; its policy allows no such study")
    if opens.overlap_epsilon > policy.max_epsilon_per_run:
        raise PrivacyError(f"this site allows an overlap_epsilon of at most {policy.max_epsilon_per_run:g}")


def require_cost(policy: Policy, charge: Charge | None) -> None:
    """Not more for one run than this site allows, its own part of it counted."""
    most = policy.max_epsilon_per_run
    if charge is not None and charge.spend.epsilon > most:  # such as the class holder's, who pays for every join
        raise PrivacyError(f"this site allows an epsilon of at most {most:g} per run; its estimates would cost more")


def require_matches_revealed(policy: Policy) -> None:
    """Whether another site may learn whom of its own people this site has too."""
    if not policy.reveal_matches:
        raise PrivacyError(
            "the asking site would learn whom of its people the others have too (scope shared, or reveal = 'matching'); this "
            "site does not allow that: reveal_matches under [policy] in site.toml"
        )


def require_rows(policy: Policy, study: StudyFile | Agreement, rows: int) -> None:
    """Enough rows of this site. The number itself is not told."""
    if rows < max(policy.min_rows, study.study.min_rows):
        asked = f": at least {study.study.min_rows} rows" if study.study.min_rows else ""
        raise PrivacyError(f"this site holds fewer rows than it (or the study{asked}) asks for; nothing was sent")


def require_rate(policy: Policy, starts: Iterable[float], now: float) -> None:
    """The limit of runs per day. A start in the future (a clock set back) counts as today's."""
    if sum(1 for start in starts if start > now - 86400) >= policy.max_runs_per_day:
        raise PrivacyError(f"this site takes part in at most {policy.max_runs_per_day} runs a day")


def require_overlap_bits(policy: Policy, told: Iterable[tuple[float, str]], partners: Sequence[str], now: float) -> None:
    """The limit of bits per day about how many identifiers match those of one other site.

    Whoever knows of all matches but one learns from such a bit whether one more person is among them.
    """
    today = [partner for at, partner in told if at > now - 86400]
    if any(today.count(partner) >= policy.max_overlap_bits_per_day for partner in partners):
        raise PrivacyError(
            f"this site tells another at most {policy.max_overlap_bits_per_day} times a day whether enough identifiers match; "
            "wait until tomorrow"
        )


def require_few_idle(policy: Policy, joins: Iterable[float], now: float, error: type[PrivacyError] = PrivacyError) -> None:
    """The limit of runs per day that another site begins here and lets end before anything is computed."""
    if sum(1 for join in joins if join > now - 86400) >= policy.max_idle_joins_per_day:
        raise error(
            f"that site began {policy.max_idle_joins_per_day} runs here today that were never computed; no more of them today"
        )
