"""The graph of pairs that share masks: complete, or random and k-regular.

k is that of Bell et al. (CCS 2020), Theorem 3.10 and Section 3.5, with the tails of the hypergeometric law computed rather than
bounded.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from blindbayes.crypto.prg import expand
from blindbayes.crypto.shamir import MAX_POINT
from blindbayes.errors import ConfigError
from blindbayes.protocols.registry import Smallest

PRIVACY_BITS = 40
COMPLETION_BITS = 20
_MAX_NEIGHBOURS = 512


@dataclass(frozen=True, slots=True)
class MaskGraph:
    """The degree of a mask graph, and how many of the neighbours and a party itself must answer.

    The two bounds are over the random graph, for parties corrupted and lost without knowledge of it; both are 0 on the complete
    graph, where tolerance is exact.
    """

    neighbours: int
    threshold: int
    complete: bool
    privacy_failure: float  # some honest party has too many corrupt neighbours, or the honest survivors fall apart
    completion_failure: float  # some party has too few surviving neighbours, with the tolerated number lost


def _log_tail(population: int, marked: int, draws: int, at_least: int) -> float:
    """Return ln P[X >= at_least], X hypergeometric: how many of `draws` out of `population` are among the `marked`."""

    def log_choose(total: int, part: int) -> float:
        return math.lgamma(total + 1) - math.lgamma(part + 1) - math.lgamma(total - part + 1)

    low, high = max(at_least, draws - (population - marked), 0), min(draws, marked)
    if low > high:
        return -math.inf
    terms = [
        log_choose(marked, hit) + log_choose(population - marked, draws - hit) - log_choose(population, draws)
        for hit in range(low, high + 1)
    ]
    top = max(terms)
    return min(0.0, top + math.log(math.fsum(math.exp(term - top) for term in terms)))


def failures(parties: int, neighbours: int, threshold: int, corrupt: int, lost: int, *, malicious: bool) -> tuple[float, float]:
    """Return upper bounds on (privacy failure, completion failure) for one random graph; see SPEC.md, Bounds."""
    holders = neighbours + 1
    too_many = 2 * threshold - holders if malicious else threshold  # corrupt neighbours that break a party
    exposed = parties * math.exp(_log_tail(parties - 1, corrupt, neighbours, max(too_many, 0)))
    apart = parties * math.exp(_log_tail(parties - 1, min(corrupt + lost, parties - 1), neighbours // 2, neighbours // 2))
    starved = parties * math.exp(_log_tail(parties - 1, lost, neighbours, holders - threshold))
    return min(1.0, exposed + apart), min(1.0, starved)


def max_colluders(parties: int, quorum_size: int, corrupt: float | None, *, malicious: bool) -> int:
    """Return how many may collude with an honest or deviating server; on a sparse graph the planned fraction."""
    if corrupt is not None:
        return int(corrupt * parties)
    return 2 * quorum_size - parties - 1 if malicious else quorum_size - 1


def smallest_sum(parties: int, quorum_size: int, layout: MaskGraph, corrupt: int, *, malicious: bool) -> Smallest:
    """Return the minimum number of honest vectors in any opened sum, with `corrupt` colluders; see SPEC.md, Threat model.

    Complete graph: one set of at least `quorum_size`, if the colluders stay below 2q - n (below q for an honest server). Sparse
    graph: the same for an honest server. A deviating one can be left with a neighbourhood: t - c(u) honest vectors, c(u)
    bounded by the tail of its law; for parties corrupted without knowledge of the graph.
    """
    if layout.complete:
        limit = max_colluders(parties, quorum_size, None, malicious=malicious)
        return Smallest(max(quorum_size - corrupt, 0) if corrupt <= limit else 0)
    privacy, _ = failures(parties, layout.neighbours, layout.threshold, corrupt, parties - quorum_size, malicious=malicious)
    if privacy > 2.0**-PRIVACY_BITS:
        return Smallest(0)
    if not malicious:
        return Smallest(max(quorum_size - corrupt, 0), privacy)
    allowed = 2.0 ** -(PRIVACY_BITS + 1)
    around = 2 * layout.threshold - layout.neighbours - 2  # more would break a party, which `privacy` counts already
    while around > 0 and parties * math.exp(_log_tail(parties - 1, corrupt, layout.neighbours, around)) <= allowed:
        around -= 1
    return Smallest(max(layout.threshold - around, 0), privacy + allowed)


@lru_cache(maxsize=64)
def plan(parties: int, quorum_size: int, corrupt_fraction: float) -> MaskGraph:
    """Return the smallest graph that meets both bounds against a deviating server (2^-40, 2^-20), or the complete one."""
    if parties > MAX_POINT:
        raise ConfigError(f"masked_sum takes at most {MAX_POINT} contributors")
    if not 0 <= corrupt_fraction < 1:
        raise ConfigError("the corrupt fraction lies between 0 and 1")
    if 2 * quorum_size <= parties:
        raise ConfigError("masked_sum needs a quorum of more than half of the contributors")
    complete = MaskGraph(parties - 1, quorum_size, True, 0.0, 0.0)
    corrupt, lost = math.ceil(corrupt_fraction * parties), parties - quorum_size
    if parties <= 64:
        return complete
    for count in range(8, min(parties - 1, _MAX_NEIGHBOURS), 2):
        met, best = best_threshold(parties, count, corrupt, lost)
        if met:
            return best
    if parties > 2 * _MAX_NEIGHBOURS:
        raise ConfigError(
            f"{parties} contributors with {lost} lost and {corrupt} corrupt need too many neighbours; "
            "raise the quorum, or honest_fraction"
        )
    return complete


def best_threshold(parties: int, neighbours: int, corrupt: int, lost: int) -> tuple[bool, MaskGraph]:
    """Return the smallest threshold with privacy at 2^-40 (else the largest), and whether both bounds are met."""

    def at(threshold: int) -> MaskGraph:
        privacy, completion = failures(parties, neighbours, threshold, corrupt, lost, malicious=True)
        return MaskGraph(neighbours, threshold, False, privacy, completion)

    low, high = (neighbours + 1) // 2 + 1, neighbours + 1
    while low < high:  # the privacy bound falls as the threshold grows
        middle = (low + high) // 2
        if at(middle).privacy_failure <= 2.0**-PRIVACY_BITS:
            high = middle
        else:
            low = middle + 1
    graph = at(low)
    met = graph.privacy_failure <= 2.0**-PRIVACY_BITS and graph.completion_failure <= 2.0**-COMPLETION_BITS
    return met, graph


@lru_cache(maxsize=4)
def _ring(study: str, run_id: str, parties: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a random order of the contributors and its inverse, from what is public and fixed before the run."""
    seed = hashlib.sha256(f"blindbayes masked_sum graph v1 {study} {len(run_id)} {run_id} {parties}".encode()).digest()
    order = np.argsort(expand(seed, parties), kind="stable")
    place = np.empty(parties, np.int64)
    place[order] = np.arange(parties)
    return tuple(order.tolist()), tuple(place.tolist())


def neighbours_of(study: str, run_id: str, parties: int, layout: MaskGraph, index: int) -> tuple[int, ...]:
    """Return the neighbours of one contributor, in roster order: all others, or those near it on a random ring."""
    if layout.complete:
        return (*range(index), *range(index + 1, parties))
    order, place = _ring(study, run_id, parties)
    here, reach = place[index], layout.neighbours // 2
    return tuple(sorted(order[(here + gap) % parties] for gap in range(-reach, reach + 1) if gap))


def is_receiver(study: str, run_id: str, parties: int, layout: MaskGraph, sender: int, receiver: int) -> bool:
    """Return True if of these two neighbours this one encapsulates to the other: to those that follow it on the ring.

    On the complete graph the roster is the ring. So each party has half of its pairs to encapsulate to.
    """
    if layout.complete:
        gap = (receiver - sender) % parties
        return 2 * gap < parties or (2 * gap == parties and sender < receiver)
    _, place = _ring(study, run_id, parties)
    return 2 * ((place[receiver] - place[sender]) % parties) < parties


def pack_bits(flags: Sequence[bool] | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bytes:
    """Pack one bit per contributor in roster order, the first in the lowest bit."""
    return np.packbits(np.asarray(flags, bool), bitorder="little").tobytes()


def unpack_bits(packed: bytes, parties: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    """Return the flags, or None if the string does not have exactly one bit for each contributor."""
    if len(packed) != (parties + 7) // 8:
        return None
    beyond = parties % 8 and packed[-1] >> parties % 8
    return None if beyond else np.unpackbits(np.frombuffer(packed, np.uint8), count=parties, bitorder="little").view(bool)
