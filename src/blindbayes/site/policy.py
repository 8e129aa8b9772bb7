"""What a site allows. Fail closed: what no rule allows is refused, before anything is computed or sent.

The difference rule. An exact sum over a set of sites is one linear equation in their vectors. If the equations of earlier runs
and of this one together determine one site's vector (or the change of one site's data), this run would open it. Who will
survive is not known beforehand, so every set that the quorum allows counts. Noisy sums are accounted by epsilon instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec

from blindbayes.errors import PrivacyError
from blindbayes.study.file import NOISY, StudyFile

MAX_DISTINCT_SUMS = 14


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[policy]` of site.toml. The defaults are the strict ones."""

    protocols: tuple[str, ...] = (
        "masked_sum",
        "ring_sum",
        "chain_sum",
        "oblivious_sum",
        "class_sums",
        "joined_sums",
        "noisy_histograms",
    )
    min_parties: int = 3
    min_rows: int = 10  # fewest rows of this site in a sum
    exact_sums: bool = True  # False: nothing without epsilon
    repeated_exact_sums: bool = True  # False: one exact sum per codebook, ever
    changed_data: bool = False  # allow an exact sum that would open how this site's data changed since an earlier one
    max_epsilon_per_run: float = 10.0  # the total stands in the ledger
    max_delta_per_run: float = 1e-5
    max_runs_per_day: int = 24
    max_running: int = 4
    max_idle_joins_per_day: int = 48  # runs that one other site began here and that never came to compute
    max_queries: int = 100_000  # instances that a study over columns may let be classified; it must say how many
    min_overlap: int = 10  # joined_sums: a join over one person would tell whether this site has that person; 0 for any
    max_overlap_bits_per_day: int = 2  # joined_sums, per other site: each run tells whether min_overlap identifiers match
    reveal_matches: bool = False  # allow scoring in which another site learns whom of its people this site has too
    require_all_signatures: bool = False
    given_modulus: bool = False  # allow a study to bring the modulus of an oblivious sum: who made it can read every vector


@dataclass(frozen=True, slots=True)
class Data:
    """The state of this site's data, by keyed digests: within one codebook by all statistics, else by class counts and tables.

    A column that two codebooks declare differently has, as a rule, different tables: it counts as changed, since nobody
    can tell. Otherwise a slightly different codebook would be a way around the difference rule.
    """

    codebook: str
    columns: frozenset[str]
    statistics: str
    class_counts: str
    tables: Mapping[str, str] = field(default_factory=dict)  # per feature's column

    def is_same(self, other: Data) -> bool:
        """No change is seen between the two."""
        if self.codebook == other.codebook:
            return self.statistics == other.statistics
        common = self.tables.keys() & other.tables.keys()
        return self.class_counts == other.class_counts and all(self.tables[name] == other.tables[name] for name in common)


@dataclass(frozen=True, slots=True)
class PastSum:
    """An exact sum this site took part in: whose vectors, and which state of its own data."""

    included: frozenset[str]  # identities, hexadecimal
    data: Data
    certain: bool = True  # False: the set may have been any that the quorum allowed


def require_study(policy: Policy, study: StudyFile) -> None:
    """The rules that the study's text alone decides. Raises `PrivacyError`."""
    if study.protocol not in policy.protocols:
        raise PrivacyError(f"this site does not allow the protocol {study.protocol!r}")
    if study.options.get("toy_keys"):
        raise PrivacyError("the study asks for toy keys, which protect nothing; remove the option toy_keys")
    if study.partition == "columns":
        _require_columns(policy, study)
    else:
        _require_sum(policy, study)
    if policy.require_all_signatures and set(study.require_signatures()) != set(study.names):
        raise PrivacyError("this site asks for the signatures of all parties on the study")


def _require_columns(policy: Policy, study: StudyFile) -> None:
    """Nothing is opened in training; what classifications tell is limited by their number. Noisy releases are paid for."""
    if study.protocol == NOISY:
        _require_epsilon(policy, study)
        return
    queries = study.options.get("queries")
    if queries is None:
        raise PrivacyError(
            "the study does not limit how many instances may be classified, and repeated queries let the model be read off: "
            f"set options.queries, at most {policy.max_queries}"
        )
    if queries > policy.max_queries:
        raise PrivacyError(
            f"this site lets at most {policy.max_queries} instances be classified; options.queries asks for more"
        )
    least = study.options.get("min_overlap") or 0
    if study.protocol == "joined_sums" and least < policy.min_overlap:
        raise PrivacyError(
            "over few common identifiers a model speaks of single people: this site asks for options.min_overlap of at least "
            f"{policy.min_overlap}"
        )
    if least and policy.max_overlap_bits_per_day < 1:
        raise PrivacyError("this site does not tell whether enough identifiers match; its policy allows no such study")
    if (study.options.get("overlap_epsilon") or 0) > policy.max_epsilon_per_run:
        raise PrivacyError(f"this site allows an overlap_epsilon of at most {policy.max_epsilon_per_run:g}")


def _require_sum(policy: Policy, study: StudyFile) -> None:
    if study.options.get("modulus") is not None and not policy.given_modulus:
        raise PrivacyError("the study brings a modulus of its own, and who knows its factors reads all; leave it to a dealer")
    setting = study.setting
    exact = study.privacy.epsilon is None
    if exact and not policy.exact_sums:
        raise PrivacyError("this site takes part in no exact sum; the study needs an epsilon")
    if exact and setting.fewest < 3:
        raise PrivacyError("an exact sum of two sites tells each the other's statistics")
    if setting.fewest < policy.min_parties:
        raise PrivacyError(f"this site asks for at least {policy.min_parties} sites in a sum; the study's quorum is lower")
    _require_epsilon(policy, study)


def _require_epsilon(policy: Policy, study: StudyFile) -> None:
    if study.privacy.epsilon is not None and study.privacy.epsilon > policy.max_epsilon_per_run:
        raise PrivacyError(f"this site allows an epsilon of at most {policy.max_epsilon_per_run:g} per run")
    if study.privacy.delta > policy.max_delta_per_run:
        raise PrivacyError(f"this site allows a delta of at most {policy.max_delta_per_run:g} per run")


def require_rows(policy: Policy, study: StudyFile, rows: int) -> None:
    """Enough rows of this site. The number itself is not told."""
    if rows < max(policy.min_rows, study.thresholds.min_rows):
        raise PrivacyError("this site holds fewer rows than it (or the study) asks for; nothing was sent")


def require_rate(policy: Policy, starts: Iterable[float], now: float) -> None:
    """At most so many runs a day. A start in the future (a clock set back) counts as today's."""
    if sum(1 for start in starts if start > now - 86400) >= policy.max_runs_per_day:
        raise PrivacyError(f"this site takes part in at most {policy.max_runs_per_day} runs a day")


def require_overlap_bits(policy: Policy, told: Iterable[tuple[float, str]], partners: Sequence[str], now: float) -> None:
    """At most so many bits a day about how many identifiers match those of one other site.

    Whoever knows of all matches but one learns from such a bit whether one more person is among them.
    """
    today = [partner for at, partner in told if at > now - 86400]
    if any(today.count(partner) >= policy.max_overlap_bits_per_day for partner in partners):
        raise PrivacyError(
            f"this site tells another at most {policy.max_overlap_bits_per_day} times a day whether enough identifiers match; "
            "wait until tomorrow"
        )


def require_few_idle(policy: Policy, joins: Iterable[float], now: float) -> None:
    """At most so many runs a day that another site begins here and lets end before anything is computed."""
    if sum(1 for join in joins if join > now - 86400) >= policy.max_idle_joins_per_day:
        raise PrivacyError(
            f"that site began {policy.max_idle_joins_per_day} runs here today that were never computed; no more of them today"
        )


def require_independent(policy: Policy, study: StudyFile, identity: str, data: Data, past: Sequence[PastSum]) -> None:
    """The difference rule for an exact sum, seen from the site with `identity`. Sums over other columns do not count."""
    past = [each for each in past if each.data.columns & data.columns]
    if study.privacy.epsilon is not None or not past:
        return
    if not policy.repeated_exact_sums and any(each.data.codebook == data.codebook for each in past):
        raise PrivacyError("this site takes part in one exact sum per codebook only")
    if not all(each.certain for each in past):
        raise PrivacyError("an earlier exact sum did not say whom it included; no further exact sum is safe")
    states: list[list[Data]] = []  # of my data, in the order they were first seen; alike with every one seen before
    numbers = []
    for state in [*(each.data for each in past), data]:
        alike = (at for at, known in enumerate(states) if all(each.is_same(state) for each in known))
        number = next(alike, len(states))
        if number == len(states):
            states.append([])
        states[number].append(state)
        numbers.append(number)
    if not policy.changed_data:
        equations = [_variables(each.included, identity, number) for each, number in zip(past, numbers, strict=False)]
        mine = _mine(identity, numbers[-1])
    else:  # changes of my data count as drowned in those of the others
        equations = [_variables(each.included, f"{identity} {number}", 0) for each, number in zip(past, numbers, strict=False)]
        mine = _mine(f"{identity} {numbers[-1]}", 0)
    others = {study.party(name).identity for name in study.contributors} - {identity}
    opened = opens_one(equations, others, mine, study.setting.fewest)
    if opened is not None:
        raise PrivacyError(
            "together with earlier sums this one could open a single site's statistics; "
            "run it with the same sites and a quorum of all of them, or with an epsilon"
        )


def _mine(identity: str, state: int) -> frozenset[str]:
    return frozenset(f"{identity} #{step}" for step in range(state + 1))


def _variables(included: frozenset[str], identity: str, state: int) -> frozenset[str]:
    base = identity.split(" ")[0]
    if base not in included:
        return included
    return (included - {base}) | _mine(identity, state)


def opens_one(equations: Sequence[frozenset[str]], others: Iterable[str], mine: frozenset[str], fewest: int) -> str | None:
    """A variable that some allowed sum, added to the equations, would determine; None if there is none.

    An allowed sum takes any of `others`, and all or none of `mine`, at least `fewest` sites. If it determines variable j and
    the equations do not, it lies in the span of the equations and e_j: a space of few dimensions, whose 0/1 vectors are
    enumerated by their pivots.
    """
    others = sorted(others)
    names = sorted({name for equation in equations for name in equation} | set(others) | mine)
    column = {name: at for at, name in enumerate(names)}
    vectors = [[Fraction(name in equation) for name in names] for equation in set(equations)]
    base = _echelon(vectors)
    if len(base) > MAX_DISTINCT_SUMS:
        return names[0]  # too many different sums to search: refuse
    free = {column[name] for name in others} | {column[name] for name in mine}
    for name in names:
        unit = [Fraction(other == name) for other in names]
        space = _echelon([*base, unit])
        if len(space) == len(base):
            return name  # determined already
        pivots = [next(at for at, value in enumerate(row) if value) for row in space]
        for bits in itertools.product((0, 1), repeat=len(space)):
            if any(bit and at not in free for bit, at in zip(bits, pivots, strict=True)):
                continue
            vector = [
                sum((row[at] for bit, row in zip(bits, space, strict=True) if bit), Fraction()) for at in range(len(names))
            ]
            if _is_allowed(vector, column, others, mine, free, fewest) and len(_echelon([*base, vector])) > len(base):
                return name
    return None


def _is_allowed(
    vector: Sequence[Fraction], column: dict[str, int], others: Sequence[str], mine: frozenset[str], free: set[int], fewest: int
) -> bool:
    if any(value not in (0, 1) or (value and at not in free) for at, value in enumerate(vector)):
        return False
    own = {vector[column[name]] for name in mine}
    if len(own) > 1:
        return False
    return sum(vector[column[name]] for name in others) + (own == {Fraction(1)}) >= fewest


def _echelon(rows: Iterable[Sequence[Fraction]]) -> list[list[Fraction]]:
    """Reduced row echelon form, without zero rows."""
    done: list[list[Fraction]] = []
    for row in rows:
        rest = list(row)
        for basis in done:
            pivot = next(at for at, value in enumerate(basis) if value)
            if rest[pivot]:
                factor = rest[pivot]
                rest = [a - factor * b for a, b in zip(rest, basis, strict=True)]
        lead = next((at for at, value in enumerate(rest) if value), None)
        if lead is None:
            continue
        scale = rest[lead]
        rest = [value / scale for value in rest]
        done = [[a - basis[lead] * b for a, b in zip(basis, rest, strict=True)] for basis in done]
        done.append(rest)
    return done
