"""All-but-one transfers of leaves: GGM trees of which the chooser learns every leaf but that of its class.

Level 1 of a tree is the pair of pads of its first transfer, without a message. Below, each node is expanded into two children,
except the last node of a level if only one of its halves has classes: it moves to the next level unchanged. So every node leads
to a class, and a chooser misses exactly one leaf whatever it chooses (SPEC.md of class_sums). If a level splits only one node,
its children are the pads of the level's transfer, and their sum is sent under a hash of the node: a chooser with the node gets
the other child, one without it already has a child.

Rows of words are masked by all expanded leaves; sums of the expanded leaves by class are shares of the sums of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import kernels
from blindbayes.crypto.ot.base import Bits, bits_for, chooser_pads, sender_pads
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash, column_sums

U64Array = npt.NDArray[np.uint64]
_DOMAINS = Domain.TRANSFER, Domain.TREE


def sides(own: npt.NDArray[np.int64], classes: int) -> Bits:
    """Return (rows, levels): on each level, from the top, the side off the path of the row's class."""
    return (1 - ((own[:, None] >> np.arange(bits_for(classes) - 1, -1, -1)) & 1)).astype(np.uint8)


def _splits(level: int, classes: int) -> int:
    """Return the number of nodes with two children on `level`; level 1 is below the root."""
    return -(-classes >> (bits_for(classes) - level)) // 2


def level_sums(classes: int) -> int:
    """Return the sums sent per row: two for each level below the first, or one if it splits only one node."""
    return sum(1 if _splits(level, classes) == 1 else 2 for level in range(2, bits_for(classes) + 1))


def grow(hash_: TweakedHash, q: Block128, delta: Block128, classes: int) -> tuple[Block128, U64Array]:
    """Return all leaves (classes, rows, 2), and the padded level sums (level_sums, rows, 2)."""
    if hash_.kernel is not None and classes <= kernels.MAX_CLASSES:
        firsts, own = _reserve(hash_, len(q), classes), np.ascontiguousarray(q)
        return hash_.kernel.grow(hash_.schedule, own, delta, classes, level_sums(classes), firsts, _DOMAINS)
    nodes, sums = list(sender_pads(hash_, q[:, :1], delta, 2, 2)), []
    for level in range(2, bits_for(classes) + 1):
        splits = _splits(level, classes)
        children = [] if splits == 1 else _children(hash_, nodes[:splits])
        under = _under(hash_, nodes[0]) if splits == 1 else None
        pads = sender_pads(hash_, q[:, level - 1 : level], delta, 2, 2)
        if under is not None:
            sums.append(pads[0] ^ pads[1] ^ under)
            children = list(pads)
        else:
            sums += [functools.reduce(np.bitwise_xor, children[side::2], pads[side]) for side in (0, 1)]
        nodes = children + nodes[splits:]
    return np.stack(nodes), np.stack(sums) if sums else np.zeros((0, len(q), 2), dtype=np.uint64)


def _reserve(hash_: TweakedHash, count: int, classes: int) -> tuple[int, int]:
    """Reserve the tweaks of a block's transfers and trees, as the steps in numpy do one by one."""
    splits = [_splits(level, classes) for level in range(2, bits_for(classes) + 1)]
    trees = count * sum(1 if each == 1 else 2 * each for each in splits)
    return hash_.reserve(Domain.TRANSFER, 2 * count * bits_for(classes)), hash_.reserve(Domain.TREE, trees)


def _children(hash_: TweakedHash, nodes: list[Block128]) -> list[Block128]:
    count = nodes[0].shape[0]
    children: list[Block128] = []
    first = hash_.reserve(Domain.TREE, 2 * count * len(nodes))
    for position, node in enumerate(nodes):
        both = hash_.expand(node, Domain.TREE, first + 2 * count * position, 4)
        children.extend((both[:, :2].copy(), both[:, 2:].copy()))
    return children


def _under(hash_: TweakedHash, node: Block128) -> Block128:
    """Return the mask that hides the sum of a node's children from a chooser without the node."""
    return hash_.run(node, Domain.TREE, hash_.reserve(Domain.TREE, len(node)))


def regrow(hash_: TweakedHash, t: Block128, own: npt.NDArray[np.int64], chosen: Bits, sums: U64Array, classes: int) -> Block128:
    """Return all leaves, with noise in place of the one on each row's path. The operations do not depend on the path."""
    if hash_.kernel is not None and classes <= kernels.MAX_CLASSES:
        firsts = _reserve(hash_, len(t), classes)
        return hash_.kernel.regrow(hash_.schedule, t, own, classes, sums, firsts, _DOMAINS)
    path = 1 - chosen.astype(np.int64)
    known = chooser_pads(hash_, t[:, :1], chosen[:, 0].astype(np.uint64), 2, 2)
    nodes = [known.copy() for _ in range(2)]  # correct where the node is on the chosen side
    missing, index = path[:, 0], 0
    for level in range(2, bits_for(classes) + 1):
        splits, side = _splits(level, classes), chosen[:, level - 1]
        right = _full(side == 1)
        children = [] if splits == 1 else _children(hash_, nodes[:splits])
        under = _under(hash_, nodes[0]) if splits == 1 else None
        pads = chooser_pads(hash_, t[:, level - 1 : level], side.astype(np.uint64), 2, 2)
        if under is not None:
            change = sums[index] ^ under  # between the two children
            children = [pads ^ (change & right), pads ^ (change & ~right)]
        else:
            total = sums[index] ^ ((sums[index] ^ sums[index + 1]) & right) ^ pads
            # The sum of the chosen side minus its known nodes is the sibling of the next node on the path.
            sibling = 2 * missing + side
            places = [_full(sibling == position) for position in range(2 * splits)]
            for position, (child, here) in enumerate(zip(children, places, strict=True)):
                total ^= child & ~here & (right if position & 1 else ~right)
            for child, here in zip(children, places, strict=True):
                child ^= (child ^ total) & here
        index += 1 if splits == 1 else 2
        missing = 2 * missing + path[:, level - 1] * (missing < splits)
        nodes = children + nodes[splits:]
    return np.stack(nodes)


def _full(chosen: npt.NDArray[np.bool_]) -> Block128:
    """Return a block of ones where chosen, zeros elsewhere, in full: numpy broadcasts columns slowly."""
    return np.repeat(np.uint64(0) - chosen.astype(np.uint64), 2).reshape(-1, 2)


def mask(hash_: TweakedHash, leaves: Block128, masked: U64Array, share: U64Array) -> None:
    """Subtract the expanded leaves (classes, rows, 2) from the rows, and add those of each class to its line of the share."""
    (classes, count, _), width = leaves.shape, masked.shape[1]
    each = -(-width // 2)
    first = hash_.reserve(Domain.LEAF, classes * count * each)
    if hash_.kernel is not None and width <= kernels.MAX_WORDS:
        hash_.kernel.mask_rows(hash_.tweaks(Domain.LEAF, first), leaves, masked, share)
        return
    for label, leaf in enumerate(leaves):
        pad = hash_.expand(leaf, Domain.LEAF, first + label * count * each, width)
        masked -= pad
        share[label] += column_sums(pad)


def unmask(hash_: TweakedHash, leaves: Block128, masked: U64Array, own: npt.NDArray[np.int64], share: U64Array) -> None:
    """Subtract the expanded leaves from the share by class; add each row, and all its leaves, to the line of its class.

    The leaf of a row's own class is noise, which is subtracted from the class's share and part of the row's total: the share
    grows by row - g_c. The operations do not depend on the class.
    """
    (classes, count, _), width = leaves.shape, masked.shape[1]
    each = -(-width // 2)
    first = hash_.reserve(Domain.LEAF, classes * count * each)
    if hash_.kernel is not None and width <= kernels.MAX_WORDS:
        hash_.kernel.unmask_rows(hash_.tweaks(Domain.LEAF, first), leaves, own, masked, share)
        return
    total = masked.copy()
    for label, leaf in enumerate(leaves):
        pad = hash_.expand(leaf, Domain.LEAF, first + label * count * each, width)
        total += pad
        share[label] -= column_sums(pad)
    for label in range(classes):
        share[label] += column_sums(total & (np.uint64(0) - (own == label).astype(np.uint64))[:, None])


def encoder() -> Callable[[list[npt.NDArray[np.int64]], npt.NDArray[np.int64], int, U64Array], int] | None:
    """Return the kernel that packs columns of codes into rows of words, or None."""
    kernel = kernels.active()
    return None if kernel is None else kernel.encode
