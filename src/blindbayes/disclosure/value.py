"""What a run would disclose: the value that policy, approval pages and reports read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a run of a study would open, for a site's policy to judge."""

    exact: bool = False  # a sum of statistics without noise
    quorum_size: int | None = None  # minimum number of sites in a sum that is opened or that answers reveal; None: no such sum
    epsilon: float = 0.0  # the largest that any site spends on it
    delta: float = 0.0
    shares: bool = False  # classifications follow, whose number the policy limits
    queries: int | None = None  # how many
    audit_rate: float = 0.0  # share of dummies among look-ups
    min_cell: int | None = None  # model over columns in shares: counters below it are set to 0
    overlap: int | None = None  # hidden join: one bit, whether at least this many identifiers match; 0 for no bit
    overlap_epsilon: float = 0.0
    matches: bool = False  # the parties learn whom they share
    unsafe: tuple[str, ...] = ()  # why options of the study protect nothing, or only if somebody is trusted
