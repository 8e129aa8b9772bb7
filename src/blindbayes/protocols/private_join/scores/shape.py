"""The public facts of scoring over a hidden join, between the scorer and one helper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.base import bits_for, choice_bits
from blindbayes.crypto.psi import cuckoo
from blindbayes.errors import ConfigError
from blindbayes.protocols.private_join.sums.roles import FAILURE_BITS, MAX_BOUND, MIN_BOUND
from blindbayes.protocols.shared_training.shared_model import ScoreLayout

_BLOCK_BYTES = 1 << 23  # of the largest message of a block, about
_MAX_BLOCK = 1 << 13
_MIN_BLOCK = 64
Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class LookupGroup:
    """Features whose tables have the same padded size (2^bits entries) and are looked up together."""

    bits: int
    names: tuple[str, ...]
    selectors: int
    first: int  # plane of its first bit

    @property
    def entries(self) -> int:
        return 1 << self.bits

    @property
    def planes(self) -> int:
        return self.bits * self.selectors


@dataclass(frozen=True)
class LookupSetup:
    """The look-ups of one helper: it brings the codes of its features `names`; both look them up in tables of the plan."""

    plan: ScoreLayout
    names: tuple[str, ...]
    scorer_ids: int  # agreed bound on the scorer's identifiers: what is padded to
    helper_ids: int  # the same for the helper
    both: bool = True  # whether both have shares of the tables, or the helper has them alone
    shared: bool = False  # scope: only identifiers that both have get a class
    facts: bytes = b""  # anything else both must agree on

    def __post_init__(self) -> None:
        if min(self.scorer_ids, self.helper_ids) < MIN_BOUND or max(self.scorer_ids, self.helper_ids) > MAX_BOUND:
            raise ConfigError(f"bounds on the number of identifiers lie between {MIN_BOUND} and {MAX_BOUND}")
        if self.block_bytes * _MIN_BLOCK > 4 * _BLOCK_BYTES:
            raise ConfigError("a feature has too many values to be looked up over a hidden join; coarsen it in the codebook")

    @property
    def bins(self) -> int:
        return cuckoo.bin_count(self.scorer_ids)

    @property
    def tag_bits(self) -> int:
        """Bits of a tag: a false match anywhere has probability below 2^-43."""
        return FAILURE_BITS + (self.bins - 1).bit_length()

    @cached_property
    def groups(self) -> tuple[LookupGroup, ...]:
        """The features by the number of bits of their choices."""
        sizes: dict[int, list[str]] = {}
        for name in self.names:
            sizes.setdefault(bits_for(self.plan.features[name].entries), []).append(name)
        grouped: list[LookupGroup] = []
        first = 0
        for bits, names in sorted(sizes.items()):
            grouped.append(LookupGroup(bits, tuple(names), sum(self.plan.features[name].selectors for name in names), first))
            first += grouped[-1].planes
        return tuple(grouped)

    @property
    def planes(self) -> int:
        return sum(group.planes for group in self.groups)

    @property
    def payload_words(self) -> int:
        """Words per entry of the store: the tag's bits, then those of the choices."""
        return -(-(self.tag_bits + self.planes) // 64)

    @property
    def keys(self) -> int:
        return 3 * self.helper_ids

    @property
    def width(self) -> int:
        """Words of one table entry: a score difference per class but the first."""
        return (self.plan.classes - 1) * self.plan.limbs

    @property
    def entry_words(self) -> int:
        return self.width * sum(group.selectors * (group.entries - 1) for group in self.groups)

    @property
    def block_bytes(self) -> int:
        """Approximate bytes per bin of the largest message of a block."""
        return 32 * (self.tag_bits - 1 + self.planes) + 4 * (self.planes + self.shared) + 8 * self.entry_words

    @property
    def block(self) -> int:
        return min(_MAX_BLOCK, max(_MIN_BLOCK, 1 << (max(1, _BLOCK_BYTES // self.block_bytes).bit_length() - 1)))

    def choices(self, columns: Mapping[str, npt.NDArray[np.int64]], count: int) -> Bits:
        """Return the bits of what columns of codes select, (count, planes)."""
        bits = [np.zeros((count, 0), dtype=np.uint8)]
        for group in self.groups:
            chosen = np.concatenate([self.plan.features[name].choices(columns[name]) for name in group.names], axis=1)
            bits.append(choice_bits(chosen.reshape(-1), group.entries).reshape(count, group.planes))
        return np.concatenate(bits, axis=1)

    def stacked(self, tables: Mapping[str, Limbs]) -> list[Limbs]:
        """Stack the tables per group, (selectors, entries, K - 1, limbs), padded with zeros."""
        stacks = []
        for group in self.groups:
            rows = np.zeros((group.selectors, group.entries, self.plan.classes - 1, self.plan.limbs), dtype=np.uint64)
            at = 0
            for name in group.names:
                table = tables[name]
                rows[at : at + len(table), : table.shape[1]] = table
                at += len(table)
            stacks.append(rows)
        return stacks

    def agreed(self) -> bytes:
        parts = (self.names, self.scorer_ids, self.helper_ids, self.both, self.shared)
        return b"joined_scores v1" + repr(parts).encode() + self.plan.facts() + self.facts


def common_block(shapes: Sequence[LookupSetup]) -> int:
    """Return the block that suits every helper: the scorer goes through its bins with all of them at once."""
    return min(shape.block for shape in shapes)
