"""The kernels of class_sums and of small numbers, with every instruction set of this machine: they give what numpy gives, bit
by bit, and take only what fits."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import kernels
from blindbayes.crypto.ot import base as ot
from blindbayes.crypto.ot import trees
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.shared_training.class_sums import ClassSumsSetup, RowLayout
from blindbayes.protocols.two_party import digits
from blindbayes.statistics import MISSING, CodedRows
from support.two_party import coins

SETS = kernels.available()
pytestmark = pytest.mark.skipif(not SETS, reason="no kernels are built: python -m blindbayes.crypto.kernels.build")


def words(label, *shape):
    return coins(label).words(int(np.prod(shape))).reshape(shape)


def with_all(work):
    """What `work` gives with numpy, which it must give with every set of kernels."""
    with kernels.using("off"):
        wanted = work()
    for name in SETS:
        with kernels.using(name):
            found = work()
        assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted], name
    return wanted


FEATURES = (
    Categorical("two", ("0", "1")),
    Categorical("many", tuple(str(value) for value in range(150)), optional=True),
    Numeric("plain", -2047, 2047),
    Numeric("gaps", -300_000, 500_000, optional=True),
    Numeric("binned", 0, 2, 0.01, bins=5, optional=True),
)


def codes(rows):
    rng = np.random.default_rng(rows)
    gaps = np.where(rng.random(rows) < 0.2, MISSING, rng.integers(-300_000, 500_001, rows))
    columns = {"two": rng.integers(-1, 2, rows), "many": rng.integers(-1, 150, rows), "plain": rng.integers(-2047, 2048, rows)}
    return CodedRows(None, {**columns, "gaps": gaps, "binned": rng.integers(-1, 5, rows)}, rows)


@pytest.mark.parametrize("rows", [1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("stretch", [None, 100])
def test_codes_become_the_same_words(rows, stretch):
    layout, block = RowLayout(FEATURES, 5000, stretch), codes(rows)
    (whole,) = with_all(lambda: [layout.encode(block)])

    def apart():
        out = np.full((rows, layout.words + 1), 7, dtype=np.uint64)
        layout.write(block, slice(rows // 2, rows), out[: rows - rows // 2, :-1])
        return [out]

    (out,) = with_all(apart)
    assert np.array_equal(out[: rows - rows // 2, :-1], whole[rows // 2 :])
    assert (out[:, -1] == 7).all()


def test_the_largest_codes_become_the_same_words_and_a_gap_where_none_may_be_is_refused():
    layout = RowLayout([Numeric("x", -(2**20), 2**20)], 1000)
    edges = np.array([-(2**20), 2**20, 0, -1, 1], dtype=np.int64)
    with_all(lambda: [layout.encode(CodedRows(None, {"x": edges}, 5)), layout.encode(CodedRows(None, {"x": edges[:0]}, 0))])
    for name in ("off", *SETS):
        with kernels.using(name), pytest.raises(LocalProtocolError, match="may not be missing"):
            layout.encode(CodedRows(None, {"x": np.array([3, MISSING])}, 2))


def test_narrow_and_strided_codes_become_the_same_words():
    layout = RowLayout(FEATURES, 5000)
    wide = codes(130)
    columns = {name: codes.astype(np.int32) if name == "two" else codes[::2] for name, codes in wide.columns.items()}
    columns["two"] = columns["two"][::2]
    with_all(lambda: [layout.encode(CodedRows(None, columns, 65))])


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 7, 8, 9, 13, 31, 32, 33])
@pytest.mark.parametrize("rows", [1, 64, 65])
def test_trees_are_grown_and_grown_again_alike(classes, rows):
    shape = ClassSumsSetup(rows, 1, classes)
    q, delta = words("q", rows, shape.levels, 2), words("delta", 2)
    own = np.arange(rows, dtype=np.int64) % (1 << shape.levels)  # paths that are no class too
    sides = trees.sides(own, classes)
    t = q ^ (delta * sides[..., None].astype(np.uint64))

    def work():
        made = []
        hashes = [TweakedHash(b"s"), TweakedHash(b"s")]
        for hash_ in hashes:
            hash_.reserve(Domain.TRANSFER, 5)
            hash_.reserve(Domain.TREE, 9)
        for _ in range(2):  # the second block goes on where the first one left the tweaks
            leaves, sums = trees.grow(hashes[0], q, delta, classes)
            made += [leaves, sums, trees.regrow(hashes[1], t, own, sides, sums, shape.classes)]
        return made

    leaves, _, found = with_all(work)[:3]
    assert ((leaves == found).all(axis=2).sum(axis=0) == classes - 1).all()


@pytest.mark.parametrize("size", [1, 2, 3, 18, 26, 127, 300, 2048, 2049])
@pytest.mark.parametrize("rows", [1, 70, 130])
@pytest.mark.parametrize("classes", [2, 5])
def test_leaves_are_added_up_alike(rows, size, classes):
    leaves, own = words("leaves", classes, rows, 2), np.arange(rows, dtype=np.int64) % classes

    def work():
        given, share, theirs = words("rows", rows, size), words("share", classes, size), words("theirs", classes, size)
        hash_ = TweakedHash(b"s")
        trees.mask(hash_, leaves, given, share)
        trees.unmask(hash_, leaves, given, own, theirs)
        return [given, share, theirs]

    with_all(work)


@pytest.mark.parametrize(("entries", "width"), [(2, 1), (3, 2), (16, 1), (16, 8), (33, 3), (64, 5)])
@pytest.mark.parametrize("rows", [1, 127, 128, 129, 9000])
def test_small_numbers_are_offered_alike(entries, width, rows):
    """Every entry under its pad; more rows than go at once too."""
    bits, rng = ot.bits_for(entries), np.random.default_rng(rows)
    table, own = rng.integers(0, 1 << width, (20, entries), dtype=np.uint8), rng.integers(0, 20, rows, dtype=np.uint8)
    q = words("q", rows, bits, 2)
    stream = SimpleNamespace(delta=words("delta", 2), extend=lambda *given: q.reshape(-1, 2))
    with_all(lambda: list(digits.offer(TweakedHash(b"s"), stream, None, own, table, width, "other")))


UNFIT_DIGITS = (
    {"own": np.zeros(7, np.uint8)},
    {"own": np.zeros(8, np.uint64)},
    {"table": np.zeros((4, 5), np.uint8)},
    {"table": np.zeros((257, 4), np.uint8)},
    {"table": np.zeros((4, 0), np.uint8)},
    {"width": 0},
    {"width": 9},
    {"share": np.zeros(7, np.uint8)},
    {"sent": np.zeros((4, 8), np.uint8)},
    {"sent": np.zeros((3, 7), np.uint8)},
    {"sent": np.zeros((3, 16), np.uint8)[:, ::2]},
    {"sent": np.broadcast_to(np.uint8(0), (3, 8))},
)


def offered(kernel, schedule, q, own=None, table=None, width=1, share=None, sent=None):
    own = np.zeros(8, np.uint8) if own is None else own
    table = np.zeros((4, 4), np.uint8) if table is None else table
    share = np.zeros(8, np.uint8) if share is None else share
    sent = np.zeros((3, 8), np.uint8) if sent is None else sent
    kernel.offer_digits(kernels.Tweaks(schedule, 0, 3), q, q[0, 0], own, table, width, share, sent)


@pytest.mark.parametrize("name", SETS)
def test_kernels_refuse_what_does_not_fit(name):
    schedule, out = np.zeros((1, 176), dtype=np.uint8), np.zeros((8, 4), dtype=np.uint64)
    codes, op = [np.zeros(8, dtype=np.int64)], [0, 0, 0, 0, 0]
    leaves, own, share = np.zeros((3, 8, 2), dtype=np.uint64), np.zeros(8, dtype=np.int64), np.zeros((3, 4), dtype=np.uint64)
    q, domains, locked = np.zeros((8, 2, 2), dtype=np.uint64), (3, 1), out.copy()
    locked.setflags(write=False)
    bad_ops = [[1, 0, 0, 0, 0], [-1, 0, 0, 0, 0], [0, 4, 0, 0, 0], [0, 0, 4, 0, 0], [0, 0, -1, 0, 0], [0, 0, 0, 64, 0]]
    with kernels.using(name):
        kernel, tweaks = kernels.active(), kernels.Tweaks(schedule, 0, 2)
        unfit = [functools.partial(kernel.encode, codes, np.array([bad]), MISSING, out) for bad in bad_ops]
        unfit += [
            lambda: kernel.encode(codes, np.array([[0, 0, 1, 0, 0], op]), MISSING, out),  # not sorted
            lambda: kernel.encode([codes[0][:7]], np.array([op]), MISSING, out),
            lambda: kernel.encode([codes[0].astype(np.int32)], np.array([op]), MISSING, out),
            lambda: kernel.encode([np.zeros(16, np.int64)[::2]], np.array([op]), MISSING, out),
            lambda: kernel.encode(codes, np.array([op]), MISSING, locked),
            lambda: kernel.encode(codes, np.array([op]), MISSING, out[:, ::2]),
            lambda: kernel.encode(codes, np.array([op]), MISSING, out[::-1]),
            lambda: kernel.encode(codes, np.array([op]), MISSING, out.astype(np.int64)),
            lambda: kernel.grow(schedule, q, q[0, 0], 5, 1, (0, 0), domains),
            lambda: kernel.grow(schedule, q, q[0, 0], 3, 2, (0, 0), domains),
            lambda: kernel.grow(schedule, q, q[0], 3, 1, (0, 0), domains),
            lambda: kernel.grow(schedule, q[::2], q[0, 0], 3, 1, (0, 0), domains),
            lambda: kernel.grow(schedule, np.zeros((8, 6, 2), np.uint64), q[0, 0], 33, 10, (0, 0), domains),
            lambda: kernel.regrow(schedule, q, own[:7], 3, leaves[:1], (0, 0), domains),
            lambda: kernel.regrow(schedule, q, own, 3, leaves[:2], (0, 0), domains),
            lambda: kernel.regrow(schedule, q, own, 3, leaves[:1, :7], (0, 0), domains),
            lambda: kernel.mask_rows(tweaks, leaves[:, :7], out, share),
            lambda: kernel.mask_rows(tweaks, leaves, out, share[:2]),
            lambda: kernel.mask_rows(tweaks, leaves, locked, share),
            lambda: kernel.mask_rows(tweaks, leaves, np.zeros((8, 2049), np.uint64), np.zeros((3, 2049), np.uint64)),
            lambda: kernel.unmask_rows(tweaks, leaves, own[:7], out, share),
            lambda: kernel.unmask_rows(tweaks, leaves, own.astype(np.int32), out, share),
            lambda: kernel.unmask_rows(tweaks, leaves, own, out[:7], share),
            lambda: kernel.unmask_rows(tweaks, leaves, own, out, share[:, :3]),
            *(functools.partial(offered, kernel, schedule, q, **change) for change in UNFIT_DIGITS),
        ]
        for call in unfit:
            with pytest.raises(LocalProtocolError):
                call()
        assert kernel.encode(codes, np.array([op]), MISSING, out) == 0
        offered(kernel, schedule, q)
