"""The `[policy]` of a site: limits on every study. What no rule allows is refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from blindbayes.disclosure.value import Answers, Disclosure, Overlap, RowSum, SumForm
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.errors import PrivacyError

DEFAULT_PROTOCOLS = ("masked_sum", "private_ratio", "class_sums", "joined_sums")
"""The protocols that a new site allows: those of the core that protect the rows and run between sites."""

_DETAILS = ("none", "spread", "each")

MAX_NOISE_EPSILON = 3.0
"""Over columns, the largest epsilon accepted in place of `min_cell`. At 10, one answer each reveals 98 of 100 classes."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[policy]` of site.toml. The defaults are strict; `blindbayes settings` explains each field."""

    protocols: tuple[str, ...] = DEFAULT_PROTOCOLS
    min_parties: int = 3
    min_rows: int = 10
    exact_sums: bool = False
    changed_data: bool = False
    max_epsilon_per_run: float = 1.0
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
    min_cell_of_sums: int = 0
    reveal_matches: bool = False
    require_all_signatures: bool = False
    approvers: int = 1
    min_colluders: int = 1
    weaker_options: bool = False
    failed_outputs: bool = True
    site_figures: Literal["none", "spread", "each"] = "none"
    announce_decisions: bool = True


def require_allowed(policy: Policy, opens: Disclosure) -> None:
    """Raise `PrivacyError` unless the policy allows what a run would disclose."""
    if opens.protocol not in policy.protocols:
        raise PrivacyError(f"this site does not allow the protocol {opens.protocol!r}")
    if opens.unsafe:
        raise PrivacyError(opens.unsafe[0])
    if opens.row_sum is not None:
        _require_sum(policy, opens, opens.row_sum)
    if _DETAILS.index(opens.site_figures) > _DETAILS.index(policy.site_figures):
        raise PrivacyError(
            f"this site does not allow an evaluation to open figures of single sites (site_figures = {opens.site_figures!r} of "
            "the study): leave it out of the study, or allow it with site_figures under [policy] in site.toml"
        )
    if opens.answers is not None:
        _require_queries(policy, opens.answers)
    if opens.overlap is not None:
        _require_overlap(policy, opens.overlap)
    if opens.answers is not None:
        _require_noise(policy, opens, opens.answers)
    if opens.epsilon > policy.max_epsilon_per_run:
        raise PrivacyError(
            f"this site allows an epsilon of at most {policy.max_epsilon_per_run:g} per run "
            "(max_epsilon_per_run under [policy] in site.toml)"
        )
    if opens.delta > policy.max_delta_per_run:
        raise PrivacyError(f"this site allows a delta of at most {policy.max_delta_per_run:g} per run")


def _require_sum(policy: Policy, opens: Disclosure, row_sum: RowSum) -> None:
    if not opens.epsilon and not policy.exact_sums:  # also for sums in shares, which answers reveal
        raise PrivacyError(
            "this site takes part in no exact sum: give the study an epsilon, or allow exact sums here "
            "(exact_sums under [policy] in site.toml)"
        )
    if row_sum.form is SumForm.EXACT and row_sum.quorum_size < 3:
        raise PrivacyError("an exact sum of two sites reveals to each the other's statistics")
    if not opens.epsilon and row_sum.min_cell < policy.min_cell_of_sums:
        raise PrivacyError(
            f"this site asks for limits.min_cell of at least {policy.min_cell_of_sums} in exact sums (min_cell_of_sums under "
            "[policy] in site.toml), so that smaller cells are suppressed before anything is opened; or for an epsilon"
        )
    if row_sum.quorum_size < policy.min_parties:
        raise PrivacyError(f"this site asks for at least {policy.min_parties} sites in a sum; the study's quorum is lower")


def _require_queries(policy: Policy, answers: Answers) -> None:
    if answers.queries is None:
        raise PrivacyError(
            "the study does not limit how many instances may be classified, and repeated queries let the model be read off: "
            f"set options.queries, at most {policy.max_queries}"
        )
    if answers.queries > policy.max_queries:
        raise PrivacyError(
            f"this site lets at most {policy.max_queries} instances be classified; options.queries asks for more"
        )


def _require_noise(policy: Policy, opens: Disclosure, answers: Answers) -> None:
    if policy.noise_in_shares and not opens.epsilon:
        raise PrivacyError(
            "without noise in the shares a table made up by another site turns answers into facts about one person: this site "
            "asks for an epsilon (noise_in_shares under [policy] in site.toml)"
        )
    has_noise = 0 < opens.epsilon <= MAX_NOISE_EPSILON
    if answers.min_cell is not None and answers.min_cell < policy.min_cell and not has_noise:
        raise PrivacyError(
            "without noise, or with little, a column with a value for each person turns every answer into one person's class: "
            f"this site asks for an epsilon, of at most {MAX_NOISE_EPSILON:g}, or for limits.min_cell of at least "
            f"{policy.min_cell} (min_cell under [policy] in site.toml)"
        )
    if answers.audit_rate < policy.min_audit_rate:
        raise PrivacyError(f"this site asks for options.audit_rate of at least {policy.min_audit_rate:g}")


def _require_overlap(policy: Policy, overlap: Overlap) -> None:
    if overlap.min_overlap < policy.min_overlap:
        raise PrivacyError(
            "over few common identifiers a model speaks of single people: this site asks for options.min_overlap of at least "
            f"{policy.min_overlap}"
        )
    if overlap.min_overlap and policy.max_overlap_bits_per_day < 1:
        raise PrivacyError("this site does not reveal whether enough identifiers match; its policy allows no such study")
    if overlap.epsilon > policy.max_epsilon_per_run:
        raise PrivacyError(f"this site allows an overlap_epsilon of at most {policy.max_epsilon_per_run:g}")
    if overlap.matches_to:
        require_matches_revealed(policy)


def require_cost(policy: Policy, spend: Spend | None) -> None:
    """Raise if one run would cost this site more than the policy allows, its own part included."""
    limit = policy.max_epsilon_per_run
    if spend is not None and spend.epsilon > limit:  # for example the class holder, who pays for every join
        raise PrivacyError(f"this site allows an epsilon of at most {limit:g} per run; its estimates would cost more")


def require_matches_revealed(policy: Policy) -> None:
    """Raise unless another site may learn which of its own people this site has too."""
    if not policy.reveal_matches:
        raise PrivacyError(
            "the asking site would learn which of its identifiers the others have too (scope shared, or reveal = 'matching'); "
            "this site does not allow that: reveal_matches under [policy] in site.toml"
        )


def require_rows(policy: Policy, min_rows: int, rows: int) -> None:
    """Raise if this site has fewer rows than its policy or the study (`min_rows`) asks for. The message omits the number."""
    if rows < max(policy.min_rows, min_rows):
        asked = f": at least {min_rows} rows" if min_rows else ""
        raise PrivacyError(f"this site holds fewer rows than it (or the study{asked}) asks for; nothing was sent")


def require_totals(policy: Policy, rows: int, *, again: bool) -> None:
    """Raise unless other sites may learn totals of this site's labelled instances by true and predicted class.

    `again`: totals of other instances, or of the same model, were opened before.
    """
    if not policy.exact_sums or policy.min_cell_of_sums:
        raise PrivacyError(
            "the totals of an evaluation are an exact sum of this site's classes without a floor, which other sites would "
            "learn: allow it with exact_sums, and min_cell_of_sums = 0, under [policy] in site.toml; or agree that this site "
            "alone learns them (reveal_to)"
        )
    require_rows(policy, 0, rows)
    if again and not policy.changed_data:
        raise PrivacyError(
            "other sites learned totals of other labelled instances, or of this model, before: the difference of two may be "
            "one instance's class. Take the labelled instances of before and a model that was not evaluated, or allow it with "
            "changed_data under [policy] in site.toml"
        )


def require_rate(policy: Policy, starts: Iterable[float], now: float) -> None:
    """Enforce the limit of runs per day. A start in the future (a clock set back) counts as today's."""
    if sum(1 for start in starts if start > now - 86400) >= policy.max_runs_per_day:
        raise PrivacyError(f"this site takes part in at most {policy.max_runs_per_day} runs a day")


def require_overlap_bits(policy: Policy, revealed: Iterable[tuple[float, str]], partners: Sequence[str], now: float) -> None:
    """Enforce the limit of bits per day about how many identifiers match those of one other site.

    A partner who knows all matches but one learns from such a bit whether one more person is among them.
    """
    today = [partner for at, partner in revealed if at > now - 86400]
    if any(today.count(partner) >= policy.max_overlap_bits_per_day for partner in partners):
        raise PrivacyError(
            f"this site reveals to another at most {policy.max_overlap_bits_per_day} times a day whether enough identifiers "
            "match; wait until tomorrow"
        )


def require_few_idle(policy: Policy, joins: Iterable[float], now: float, error: type[PrivacyError] = PrivacyError) -> None:
    """Enforce the limit of runs per day that another site begins here and lets end before anything is computed."""
    if sum(1 for join in joins if join > now - 86400) >= policy.max_idle_joins_per_day:
        raise error(
            f"that site began {policy.max_idle_joins_per_day} runs here today that were never computed; no more of them today"
        )


def require_checked(policy: Policy, status: str | None) -> None:
    """Raise if the checks of a release failed and this site writes no such release."""
    if status == "fail" and not policy.failed_outputs:
        raise PrivacyError(
            "a check of the outputs failed (disclosure.json), and this site releases no such result (failed_outputs under "
            "[policy] in site.toml): agree on min_cell or an epsilon"
        )
