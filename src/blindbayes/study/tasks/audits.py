"""Audits of studies over columns: the rate of decoy look-ups and comparisons, their cost, the guarantee."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated

import msgspec

from blindbayes.errors import ConfigError
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.shared_inference.query import MAX_DUMMIES, SharedArgmaxSetup
from blindbayes.protocols.shared_inference.references import COUNT
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.study.study import Study
from blindbayes.study.tasks.traits import CompareAll, Queries


class ScoringParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options that all protocols have which leave a model in shares."""

    audit_rate: Annotated[
        float, "share of dummies among look-ups and comparisons, which catch a party that answers otherwise"
    ] = 0.0
    queries: Queries = None  # no limit
    compare_all: CompareAll = False


def require_audit(study: Study) -> None:
    """Raise if audit_rate is out of range."""
    rate = float(study.options.get("audit_rate", 0.0))
    if not (math.isfinite(rate) and 0 <= rate <= MAX_DUMMIES):
        raise ConfigError(f"the option audit_rate is the share of dummies among look-ups, 0 to {MAX_DUMMIES:g}")


def asks_references(columns: ColumnsSetup) -> bool:
    """Return True if training opens classes of instances that attribute holders made up (audited_classes)."""
    return columns.audit_rate > 0 and any(map(columns.shared, columns.holders))


def _askers(agreed: ColumnsSetup | JoinSetup) -> int:
    """Return the number of parties that look up in another's tables."""
    if isinstance(agreed, JoinSetup):
        return len(agreed.holders) + (agreed.inner and bool(agreed.owners[agreed.class_holder]))
    return sum(bool(agreed.shared(name)) for name in agreed.holders)


def reference_answers(agreed: ColumnsSetup | JoinSetup) -> int:
    """Return the number of classes that training opens for audits, charged since a deviating party chooses the instances."""
    columns = agreed if isinstance(agreed, ColumnsSetup) else agreed.columns
    return COUNT * _askers(agreed) if asks_references(columns) else 0


def answers(agreed: ColumnsSetup | JoinSetup, queries: Iterable[SharedArgmaxSetup]) -> int:
    """Return the cost of batches for the query budget: instances, and queries that a deviating party could substitute."""
    columns = agreed if isinstance(agreed, ColumnsSetup) else agreed.columns
    askers = _askers(agreed) if asks_references(columns) else 0
    return sum(query.count + askers * max(query.dummies, query.decoys) for query in queries)


def describe_audits(columns: ColumnsSetup, *, compare_all: bool = False) -> list[str]:
    """Describe what audits promise."""
    rate = columns.audit_rate
    if not rate:
        return []
    widest = max(
        (columns.plan.features[name].entries for party in columns.holders for name in columns.shared(party)), default=2
    )
    seen = 1 - 1 / len(columns.codebook.classes)
    compared = (
        "Comparisons, which all parties make together, are not audited: a party that deviates there flips classes and learns "
        "nothing."
        if compare_all
        else f"In the comparison at least {rate:.1%} of the places hold decoys, the same instances that it looked up, at "
        "places that only the evaluating party knows: a class holder that garbles another comparison, or enters other shares "
        "than it was left with, for m instances so that a decoy's class changes with probability q, is caught in the same way."
    )
    return [
        f"At least {rate:.1%} of what is looked up in a classification are instances whose class the asking party learned in "
        f"training, asked again; no cell of a table is opened. A change that turns the class into a value changes the class of "
        f"{seen:.0%} of them. Each asking party learned the class of {COUNT} instances of its own making in training "
        "(audited_classes). One that deviates chooses these, and asks others in place of dummies: the query budget is charged "
        "for all of them. The answering party cannot tell them from instances until it has answered. If it answers "
        "m instances out of other tables, and the change shows at a share q of dummies, it is caught, before any class of the "
        f"batch comes out, with probability at least 1 - (1 - {rate:g} q)^m: for 100 instances "
        f"{caught(rate, 100, seen / 2):.1%} if half of a column's values show it, {caught(rate, 100, seen / widest):.1%} for a "
        f"single value of the widest column. {compared} A party that follows the protocol is never accused. Not audited, "
        "because an audit opens inputs and these are people's: what a party brings itself (its own columns, prior and scores, "
        "its own share at its own values), by which it asks for one threshold of the other's part of a score per charged "
        "instance. Scoring over a hidden join, where the party that answers knows which places can be dummies, is refused."
    ]


def caught(rate: float, instances: int, share: float) -> float:
    """Return the probability of catching a class holder that answers `instances` from tables changed at a share of values."""
    return 1 - (1 - rate * share) ** instances
