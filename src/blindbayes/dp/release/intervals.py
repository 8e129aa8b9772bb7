"""Intervals for privacy noise: models that the exact table may have given, sampled from public facts.

A release is a table plus noise of a known law, T* = T + Z. So the exact table is T* - Z: `noise_interval` draws Z afresh
(199 times, by the mechanism's own law, from a seed that is a hash of the release), subtracts it, and computes for each draw
the plain model of that table. An interval of 90% lies between the 10th smallest and the 10th largest of the 199.

What it covers: the number that the exact table would have given, in 90 of 100 releases. That is exact for sums of cells,
since T* - T and T* - (T* - Z) have the same law, and first-order for their logarithms. Sampling error is no part of it.

- categorical features, and bins of the codebook: ln P(value | class) with Laplace smoothing, as without privacy;
- a number that was released in cells: the cell's share, likewise; where within the cell a number lies is scored as the model
  scores it, since the release says nothing about it;
- a number that was released by its moments: mean and variance; a feature that was not released: nothing is known;
- text: each word that is asked for; those that a document lacks are scored as the model scores them.

Where a noisy count was hidden (`min_cell`), the interval is without end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Codebook, Feature, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise, Mechanism
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import fraction, positive
from blindbayes.dp.noise.knorm_histograms import Centred
from blindbayes.dp.release.release_plan import (
    CENTRED,
    FeatureEncoding,
    NoisyClassCounts,
    NoisyStatistics,
    ReleaseItem,
    ReleasePlan,
)
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.io.untrusted import well_formed
from blindbayes.statistics.intervals import NoiseInterval, PlausibleMarginals, WordDraws
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]
DRAWS = 199
FORMAT = "blindbayes.released/1"
_UNREADABLE = "what the model file says of its noise is not readable; ask for the release again"
_MIN_ROWS = 0.5
_MAX_CELLS = 1 << 16  # each is drawn 199 times, and kept in several forms: half a gigabyte


# -- the record in the model file ------------------------------------------------------------------------------------------


def record_of(
    noisy: NoisyStatistics, shared_noise: DistributedNoise | WholeNoise | None = None, shares: int = 1
) -> dict[str, Any]:
    """Return what was released, and the law of its noise, as builtins. Suppressed counts are left out."""
    plan = noisy.plan
    record: dict[str, Any] = {
        "format": FORMAT,
        "mechanism": plan.mechanism,
        "epsilon": str(plan.epsilon),
        "delta": plan.delta,
        "rows_per_unit": plan.rows_per_unit,
        "cuts": [[cut.feature, cut.kind, list(cut.edges), cut.missing] for cut in plan.encodings],
        "tables": [_listed(noisy, item, table) for item, table in zip(plan.items, noisy.tables, strict=True)],
    }
    if plan.class_counts is not None:
        record["sized"] = {
            "counts": list(plan.class_counts.counts),
            "scale": str(plan.class_counts.scale),
            "recounted": plan.recount,
        }
    if isinstance(shared_noise, WholeNoise):
        record["sum"] = {"shares": shares}
    elif shared_noise is not None:
        facts = {
            item.name: getattr(shared_noise, item.name) for item in dataclasses.fields(shared_noise) if item.name != "bounds"
        }
        record["sum"] = {
            **facts,
            "epsilon": str(shared_noise.epsilon),
            "variance": str(shared_noise.variance),
            "shares": shares,
        }
    return record


def _listed(noisy: NoisyStatistics, item: ReleaseItem, table: Floats) -> list[list[float | None]]:
    hidden = np.zeros(table.shape, dtype=bool)
    if noisy.min_cell and item.kind in ("classes", "cells", "n", "words"):
        hidden = table * item.bound < noisy.min_cell
    elif noisy.min_cell:  # moments of too small a class
        present = noisy.moments(item.name)[3]
        hidden |= ((noisy.class_counts if present is None else present) < noisy.min_cell)[:, None]
    return [
        [None if gone else float(value) for value, gone in zip(*row, strict=True)] for row in zip(table, hidden, strict=True)
    ]


def _cut(feature: Feature, name: str, kind: Any, edges: list[int], missing: bool) -> FeatureEncoding:
    """Parse the encoding of a feature. Raises `ValueError` if it does not fit the feature."""
    cells = feature.size if feature.counted else 0
    rising = len(edges) > 1 and edges[0] == 0 and edges[-1] == cells and all(low < high for low, high in pairwise(edges))
    fits = {
        "cells": feature.counted and rising,
        "moments": isinstance(feature, Numeric) and not feature.counted,
        "words": isinstance(feature, Text),
        "nothing": True,
    }
    if name != feature.name or not fits[kind] or type(missing) is not bool or not all(type(edge) is int for edge in edges):
        raise ValueError
    return FeatureEncoding(name, kind, tuple(edges), missing)


@dataclasses.dataclass(frozen=True)
class Released:
    """A release, read from its record."""

    plan: ReleasePlan
    tables: tuple[Floats, ...]  # nan where a count was hidden
    shared_noise: DistributedNoise | None
    shares: int
    seed: bytes

    @classmethod
    def parse(cls, record: Mapping[str, Any], codebook: Codebook) -> Released:
        """Parse a record; `codebook` is the model's. Raises `ConfigError` if they do not fit."""
        try:
            if record["format"] != FORMAT:
                raise ValueError
            cuts = tuple(_cut(feature, *stated) for feature, stated in zip(codebook.features, record["cuts"], strict=True))
            epsilon, mechanism = positive(record["epsilon"], "epsilon"), record["mechanism"]
            sized, recounted = None, False
            if "sized" in record:
                counts = tuple(int(count) for count in record["sized"]["counts"])
                sized = NoisyClassCounts(counts, positive(record["sized"]["scale"], "scale"))
                recounted = record["sized"].get("recounted", False)
                if len(counts) != len(codebook.classes) or type(recounted) is not bool:
                    raise ValueError
            delta, rows_per_unit = float(record["delta"]), int(record["rows_per_unit"])
            if not (0 <= delta < 1 and 1 <= rows_per_unit <= codebook.max_rows):
                raise ValueError
            plan = ReleasePlan(
                codebook, codebook, cuts, mechanism, epsilon, delta, None, rows_per_unit, 0.0, (), sized, recounted
            )
            tables = tuple(np.array(table, dtype=np.float64) for table in record["tables"])
            shapes = [(len(codebook.classes), item.cells) for item in plan.items]
            if [table.shape for table in tables] != shapes or any(np.isinf(table).any() for table in tables):
                raise ValueError
            shared_noise, shares, facts = None, 1, dict[str, Any]()
            if "sum" in record:
                facts = dict(record["sum"])
                shares = int(facts.pop("shares"))
                if shares < 1 or not (facts or mechanism in CENTRED):
                    raise ValueError
            if facts:
                facts |= {"epsilon": positive(facts["epsilon"], "epsilon"), "variance": fraction(facts["variance"])}
                shared_noise = DistributedNoise(**facts, bounds=(1,))
                if shared_noise.mechanism not in get_args(Mechanism):
                    raise ValueError
                if min(shared_noise.honest, shared_noise.touched, shared_noise.reach) < 1 or shared_noise.variance < 0:
                    raise ValueError
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, ConfigError, PrivacyError):
            raise ConfigError(_UNREADABLE) from None
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        return cls(plan, tables, shared_noise, shares, hashlib.sha256(text.encode()).digest())

    def noise(self, draws: int, words: Mapping[str, int] = MappingProxyType({})) -> list[Floats]:
        """Draw the noise afresh, by item: (draws, classes, cells), in counts or in units of a bound.

        For a text only as many words are drawn as `words` says, or one.
        """
        coins = Coins.seeded(hashlib.sha256(self.seed + repr(sorted(words.items())).encode()).digest() if words else self.seed)
        cells = [words.get(item.name, 1) if item.kind == "words" else item.cells for item in self.plan.items]
        shapes = [(draws, len(table), width) for table, width in zip(self.tables, cells, strict=True)]
        if self.shared_noise is not None:
            return [draw_by_law(self.shared_noise.table(self.shares), coins, shape) for shape in shapes]
        law = self.plan.noise
        bounds = [item.bound for item in self.plan.items]
        if isinstance(law, Centred):
            zero = [np.zeros(table.shape, dtype=np.int64) for table in self.tables]
            released = law.releases(zero, bounds, coins, draws * self.shares)  # of a sum, each party's whole noise
            return [table.reshape(self.shares, draws, *table.shape[1:]).sum(axis=0) for table in released]
        blocks = zip(law.sensitivity.blocks, shapes, strict=True)
        sizes = tuple(dataclasses.replace(block, size=shape[1] * shape[2]) for block, shape in blocks)
        law = dataclasses.replace(law, sensitivity=dataclasses.replace(law.sensitivity, blocks=sizes))
        grid = law.noise(coins, draws).astype(np.float64)
        pieces = np.split(grid, np.cumsum([block.size for block in sizes])[:-1], axis=1)
        step = float(law.step)
        return [
            piece.reshape(shape) / (step if step > 1 else bound)
            for piece, shape, bound in zip(pieces, shapes, bounds, strict=True)
        ]


def draw_by_law(table: Floats, coins: Coins, shape: tuple[int, ...]) -> Floats:
    """Draw from a table P(k), k = -K..K, by inversion. A simulation: privacy does not depend on it."""
    reach = len(table) // 2
    edges = np.cumsum(table)
    points = coins.words(math.prod(shape)).astype(np.float64) / 2.0**64 * edges[-1]
    return np.asarray((np.searchsorted(edges, points) - reach).reshape(shape), dtype=np.float64)


# -- from draws to models --------------------------------------------------------------------------------------------------


def _plausible(
    privacy: Mapping[str, Any] | None, codebook: Codebook
) -> tuple[Released, Floats, defaultdict[str, dict[str, Floats]]] | None:
    """Return a release, and what its class counts, and its tables by feature and kind, may have been without noise."""
    record = (privacy or {}).get("released")
    if not isinstance(record, Mapping):
        return None
    released = Released.parse(record, codebook)
    known = list(zip(released.plan.items, released.tables, strict=True))
    repeats = released.shares if released.shared_noise is None else 1  # whole noise of each party is drawn
    if repeats * sum(table.size for item, table in known if item.kind != "words") > _MAX_CELLS:
        return None
    noises = released.noise(DRAWS)
    tables = [noise if item.kind == "words" else table - noise for (item, table), noise in zip(known, noises, strict=True)]
    by_name: defaultdict[str, dict[str, Floats]] = defaultdict(dict)
    for item, table in zip(released.plan.items, tables, strict=True):
        by_name[item.name][item.kind] = table
    return released, _class_counts(released, tables), by_name


@well_formed("what the model file says of its noise", error=ConfigError)
def noise_interval(privacy: Mapping[str, Any] | None, parameters: Parameters, alpha: float) -> NoiseInterval | None:
    """Return models that the exact table may have given.

    None for an exact model, for one that does not say how it was released, and for one of very many cells.
    """
    if (plausible := _plausible(privacy, parameters.codebook)) is None:
        return None
    released, rows, by_name = plausible
    with np.errstate(invalid="ignore"):
        log_prior = np.log(np.maximum(rows, _MIN_ROWS) / np.maximum(rows, _MIN_ROWS).sum(axis=1, keepdims=True))
    terms: dict[str, Histogram | Gaussian | None] = {}
    words: dict[str, WordDraws] = {}
    for feature, cut in zip(parameters.codebook.features, released.plan.encodings, strict=True):
        parts = by_name[cut.feature]
        own = parameters.terms[feature.name]
        if cut.kind == "words" and isinstance(feature, Text):
            documents = parts["n"][:, :, 0] if "n" in parts else rows
            words[feature.name] = _word_draws(released, feature, np.maximum(documents, _MIN_ROWS), alpha)
        if cut.kind == "moments" and isinstance(feature, Numeric):
            terms[feature.name] = _moments(feature, parts, rows, parameters.codebook.variance_floor)
        elif "cells" in parts and isinstance(own, Histogram):
            exact = len(cut.edges) - 1 == cut.fine
            terms[feature.name] = _cells(cut, parts["cells"], rows, alpha, None if exact else own)
        else:
            terms[feature.name] = None
    edges = {cut.feature: cut.edges for cut in released.plan.encodings if cut.kind == "cells"}
    return NoiseInterval(log_prior, terms, edges, words)


@well_formed("what the model file says of its noise", error=ConfigError)
def plausible_marginals(privacy: Mapping[str, Any], codebook: Codebook) -> PlausibleMarginals | None:
    """Return counts by feature, over all classes, that the exact table may have had: those of the release minus fresh noise.

    They may be negative. None for a model that does not say how it was released, and for one of very many cells.
    """
    if (plausible := _plausible(privacy, codebook)) is None:
        return None
    released, rows, by_name = plausible
    counts, moments, edges = {}, {}, {}
    for feature, cut in zip(codebook.features, released.plan.encodings, strict=True):
        parts = by_name[cut.feature]
        if cut.kind == "moments" and isinstance(feature, Numeric):
            together = {kind: table.sum(axis=1, keepdims=True) for kind, table in parts.items()}
            own = _moments(feature, together, rows.sum(axis=1, keepdims=True), codebook.variance_floor)
            moments[feature.name] = np.concatenate([own.mean, own.variance], axis=1)
        elif "cells" in parts:
            level = np.nan_to_num(_levelled(parts["cells"], rows))  # nan: a hidden count, which is small
            counts[feature.name] = level[:, :, : len(cut.edges) - 1].sum(axis=1)
            edges[feature.name] = cut.edges
    return PlausibleMarginals(rows, counts, moments, edges)


def _word_draws(released: Released, feature: Text, documents: Floats, alpha: float) -> WordDraws:
    """Return a function from words to ln P(word | class), (draws, classes, words), of plausible counts.

    Totals carry the noise of all words, which is about normal.
    """
    at = next(at for at, each in enumerate(released.plan.items) if each.name == feature.name and each.kind == "words")
    bound, table = released.plan.items[at].bound, released.tables[at]
    deviation = (
        released.shared_noise.deviation(released.shares) if released.shared_noise is not None else released.plan.deviations[at]
    )
    points = Coins.seeded(hashlib.sha256(b"words" + released.seed).digest()).words(documents.size).astype(np.float64)
    spread = special.ndtri((points + 0.5) / 2.0**64).reshape(documents.shape) * deviation * math.sqrt(feature.size)
    totals = np.maximum(np.nansum(table, axis=1) - spread, 1.0) * bound

    def draw(words: npt.NDArray[np.int64]) -> Floats:
        noise = released.noise(DRAWS, {feature.name: len(words)})[at]
        uses = np.maximum((table[None, :, words] - noise) * bound, 0.0)
        if feature.once:
            return np.asarray(
                np.log(np.minimum(uses, documents[:, :, None]) + alpha) - np.log(documents + 2 * alpha)[:, :, None]
            )
        other = feature.model == "complement" and len(table) > 1
        uses = uses.sum(axis=1, keepdims=True) - uses if other else uses
        every = totals.sum(axis=1, keepdims=True) - totals if other else totals
        log = np.log(uses + alpha) - np.log(every + alpha * feature.size)[:, :, None]
        return np.asarray(-log if feature.model == "complement" else log)

    return draw


def _class_counts(released: Released, tables: list[Floats]) -> Floats:
    """Return plausible class counts, (draws, classes): the weighted mean of what was released and histograms' sums."""
    items, sized = released.plan.items, released.plan.class_counts
    centred = released.shared_noise is None and isinstance(released.plan.noise, Centred)
    deviations = (
        (1.0,) * len(items) if released.shared_noise is not None else released.plan.deviations
    )  # shares: all cells alike
    total, weight = np.zeros(tables[0].shape[:2]), np.zeros(tables[0].shape[:2])
    if sized is not None:
        coins = Coins.seeded(hashlib.sha256(b"class counts" + released.seed).digest())
        shared_noise = samplers.discrete_laplace(coins, sized.scale, total.size).reshape(total.shape)
        weight += 1 / sized.deviation**2
        total += weight * (np.array(sized.counts, dtype=np.float64) - shared_noise)
    for item, table, deviation in zip(items, tables, deviations, strict=True):
        if item.kind == "classes" or (item.kind == "cells" and not centred):  # one with a hidden count hardly counts
            own = np.where(np.isnan(table).any(axis=2), 1e-9, 1.0) / (item.cells * deviation**2)
            total, weight = total + own * np.nansum(table, axis=2), weight + own
    return np.asarray(total / weight)


def _levelled(table: Floats, rows: Floats) -> Floats:
    """Return tables that add up to class counts, all cells moved alike."""
    gap = rows - table.sum(axis=2)  # nan: a count is hidden, and the others stay as they are
    return np.asarray(table + (np.nan_to_num(gap) / table.shape[2])[:, :, None])  # an exact table adds up, and stays


def _cells(cut: FeatureEncoding, table: Floats, rows: Floats, alpha: float, own: Histogram | None) -> Histogram:
    """Return ln P(fine cell | class) of plausible counts, (draws, classes, cells), in the model's proportions within a cell."""
    counts = _levelled(table, rows)[:, :, : len(cut.edges) - 1]
    total = np.maximum(np.nansum(counts, axis=2, keepdims=True), 1.0)  # before empty cells are held at 0: that would add to it
    with np.errstate(invalid="ignore"):  # nan: a hidden count
        log = np.log(np.maximum(counts, 0.0) + alpha) - np.log(total + alpha * counts.shape[2])
    if own is not None:
        starts, widths = list(cut.edges[:-1]), np.diff(cut.edges)
        within = own.log_prob - np.repeat(np.logaddexp.reduceat(own.log_prob, starts, axis=1), widths, axis=1)
        log = np.repeat(log, widths, axis=2) + within[None]
    return Histogram(log)


def _moments(feature: Numeric, parts: Mapping[str, Floats], rows: Floats, floor: float | None) -> Gaussian:
    """Return mean and variance per class, (draws, classes), from plausible sums of z and 2 z^2 - 1, z in [-1, 1]."""
    n = np.maximum(parts["n"][:, :, 0] if "n" in parts else rows, 1.0)
    first = np.clip(parts["sum"][:, :, 0] / n, -1.0, 1.0)
    square = np.clip((parts["square"][:, :, 0] / n + 1) / 2, 0.0, 1.0)
    half = (feature.width - 1) / 2 / feature.scale
    middle = (feature.grid_low + feature.grid_high) / 2 / feature.scale
    lowest = max(floor or 0.0, 1 / (12 * feature.scale**2))
    return Gaussian(middle + half * first, np.maximum((square - first**2) * half**2, lowest))
