"""Audits of a study over columns: which share of look-ups are dummies, what a share keeps for them, and what they promise."""

from __future__ import annotations

import math
from collections.abc import Mapping

from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.model.shares import ModelShare
from blindbayes.protocol.columns import ColumnsSetup, Trained
from blindbayes.protocol.shared_argmax import MOST_DUMMIES, Committed
from blindbayes.study.study import Study

_FIELDS = ("secret", "root", "signature", "theirs", "their_signature")


def require_audit(study: Study) -> None:
    """Refuse an audit_rate that is none, or without noise."""
    rate = float(study.options.get("audit_rate", 0.0))
    if not (math.isfinite(rate) and 0 <= rate <= MOST_DUMMIES):
        raise ConfigError(f"the option audit_rate is the share of dummies among look-ups, 0 to {MOST_DUMMIES:g}")
    if rate and study.epsilon is None:
        raise PrivacyError(
            "an audit opens cells of the model to an attribute holder, and without noise in the shares these are counts of "
            "people: set epsilon, or leave audit_rate out"
        )


def kept_commitments(trained: Trained) -> dict[str, dict[str, bytes]]:
    """What a share file keeps of them."""
    return {other: {name: getattr(own, name) for name in _FIELDS} for other, own in trained.committed.items()}


def commitments_of(share: ModelShare) -> dict[str, Committed]:
    """From a share file."""
    return {other: _committed(own) for other, own in share.committed.items()}


def root_of(share: ModelShare) -> bytes | None:
    """What the class holder committed its tables with, in an attribute holder's share."""
    found = commitments_of(share)
    return next(iter(found.values())).theirs if len(found) == 1 else None


def _committed(own: Mapping[str, bytes]) -> Committed:
    if set(own) != set(_FIELDS):
        raise DataError("the share file holds no whole commitment to the tables")
    return Committed(*(own[name] for name in _FIELDS))


def describe_audits(columns: ColumnsSetup) -> list[str]:
    """What audits promise."""
    rate = columns.audit_rate
    if not rate:
        return []
    widest = max(columns.plan.features[name].entries for party in columns.holders for name in columns.shared(party))
    return [
        f"Both parties committed to their shares of the tables, each root signed. At least {rate:.1%} of what is looked up in "
        "a classification are dummies with random values, which the class holder cannot tell from instances until it has "
        "answered. If it answers m instances out of other tables than it committed to, and the change shows at a share q of a "
        "column's values, it is caught, before any class of the batch comes out and by its own signed messages, with "
        f"probability at least 1 - (1 - {rate:g} q)^m: for 100 instances {caught(rate, 100, 0.5):.1%} if half of the values "
        f"show it, {caught(rate, 100, 1 / widest):.1%} for a single value of the widest column. A party that follows the "
        "protocol is never accused. Dummies say nothing of instances. The cells of the model that they touch are opened to the "
        "attribute holder: with noise in the shares they say no more of any training record than epsilon allows, but the model "
        "is no secret from it. Not audited: what a party brings itself (its own columns, its own share at its own values), the "
        "comparison of scores. Scoring over a hidden join, which is not audited, is refused."
    ]


def caught(rate: float, instances: int, share: float) -> float:
    """The probability that a class holder is caught that answers so many instances out of tables changed at a share of a
    column's values."""
    return 1 - (1 - rate * share) ** instances
