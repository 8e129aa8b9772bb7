"""Every kernel, on every instruction set of this machine, gives what numpy gives, bit by bit, and takes only what fits."""

import numpy as np
import pytest

from blindbayes import kernels
from blindbayes.errors import LocalProtocolError
from blindbayes.primitives import cuckoo
from blindbayes.primitives.tweaks import Domain, TweakedHash
from support.two_party import coins, transfer_pair

SETS = kernels.available()
pytestmark = pytest.mark.skipif(not SETS, reason="no kernels are built: python -m blindbayes.kernels.build")
MOST = np.iinfo(np.uint64).max


@pytest.fixture(params=SETS)
def isa(request):
    return request.param


def alike(isa, work):
    """What `work` gives under the kernels of one instruction set, and it must give the same without."""
    with kernels.using("off"):
        wanted = work()
    with kernels.using(isa):
        found = work()
    assert [each.tobytes() for each in found] == [each.tobytes() for each in wanted]
    return found


def words(label, *shape):
    return coins(label).words(int(np.prod(shape))).reshape(shape)


# -- hashes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 16, 17, 63, 64, 65, 200])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 13, 26, 33])
def test_seeds_are_expanded_alike(isa, rows, size):
    seeds, firsts = words("seeds", rows, 2), words("firsts", rows) >> np.uint64(1)
    alike(isa, lambda: [TweakedHash(b"s").expand(seeds, Domain.LEAF, 2**62, size)])
    alike(isa, lambda: [TweakedHash(b"s").expand_at(seeds, Domain.TREE, firsts, size)])
    alike(isa, lambda: [TweakedHash(b"s").expand(seeds, Domain.LEAF, 5, size, keep=False).copy()])


def test_long_rows_and_extreme_blocks_are_hashed_alike(isa):
    seeds = np.array([[0, 0], [MOST, MOST], [1, 0], [0, 1]], dtype=np.uint64)
    alike(isa, lambda: [TweakedHash(b"s").expand(seeds, Domain.LEAF, 0, size) for size in (127, 128, 129, 1000)])
    alike(isa, lambda: [TweakedHash(b"s").at(seeds, Domain.GATE, np.array([0, MOST, 2**63, 1], dtype=np.uint64))])
    alike(isa, lambda: [cuckoo.fixed_words(TweakedHash(b"s"), seeds, size) for size in (1, 2, 3, 4)])


def test_keys_are_expanded_as_the_standard_says(isa):
    """FIPS 197, appendix A.1: the last round key of the example."""
    with kernels.using(isa):
        made = kernels.active().schedules(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))
    assert made[0, -16:].tobytes().hex() == "d014f9a8c9ee2589e13f0cc8b6630ca6"


# -- correlated transfers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [[1], [128, 129], [4000, 96, 1], [5000, 40_000]])
def test_correlated_transfers_are_alike(isa, counts):
    ot_sender, ot_receiver = transfer_pair()
    bits = [(np.frombuffer(coins(str(count)).bytes(count), dtype=np.uint8) & 1) for count in counts]

    def work():
        ot_sender._names.clear()
        ot_receiver._names.clear()
        chooser, sender = ot_receiver.session(b"x"), ot_sender.session(b"x")
        made = []
        for own in bits:  # the head of the streams, then the ciphers, from where the last piece ended
            corrections, t = chooser.extend(own)
            made += [corrections, t, sender.extend(corrections, len(own))]
        return made

    alike(isa, work)


@pytest.mark.parametrize("width", [8, 16, 24, 32, 40, 1000])
@pytest.mark.parametrize("rows", [64, 128, 512])
def test_bits_are_transposed(isa, rows, width):
    whole = np.frombuffer(coins("bits").bytes(rows * (width + 24)), dtype=np.uint8).reshape(rows, width + 24)
    part, out = whole[:, 8 : 8 + width], np.empty((8 * width, rows // 8), dtype=np.uint8)
    with kernels.using(isa):
        kernels.active().transpose(part, out)
    wanted = np.packbits(np.unpackbits(part, axis=1, bitorder="little").T, axis=1, bitorder="little")
    assert np.array_equal(out, wanted)


def test_kernels_that_are_turned_off_in_the_middle_of_a_session_end_it(isa):
    _, ot_receiver = transfer_pair()
    with kernels.using(isa):
        chooser = ot_receiver.session(b"x")
        chooser.extend(np.zeros(5000, dtype=np.uint8))
    with kernels.using("off"), pytest.raises(LocalProtocolError, match="middle of a session"):
        chooser.extend(np.zeros(5000, dtype=np.uint8))


# -- the border ----------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_a_kernel_sees_it(isa):
    with kernels.using(isa):
        kernel = kernels.active()
        schedule = kernel.schedules(bytes(16))
        seeds, out = np.zeros((8, 2), dtype=np.uint64), np.zeros((8, 4), dtype=np.uint64)
        locked = out.copy()
        locked.flags.writeable = False
        rest, folded = np.zeros((32, 16), dtype=np.uint8), np.zeros((128, 16), dtype=np.uint8)
        bad = [
            lambda: kernel.schedules(bytes(17)),
            lambda: kernel.expand(schedule[:, :-1], seeds, 1, 4),
            lambda: kernel.expand(schedule, seeds[:, :1], 1, 4),
            lambda: kernel.expand(schedule, seeds[::2], 1, 4),
            lambda: kernel.expand(schedule, seeds.astype(np.int64), 1, 4),
            lambda: kernel.expand(schedule, seeds.astype(np.uint32), 1, 4),
            lambda: kernel.expand(schedule, seeds, 1, 0),
            lambda: kernel.expand(schedule, seeds, 1, 4, out=out[:7]),
            lambda: kernel.expand(schedule, seeds, 1, 4, out=out[:, :3]),
            lambda: kernel.expand(schedule, seeds, 1, 4, out=locked),
            lambda: kernel.expand(schedule, seeds, 1, 4, firsts=np.zeros(7, dtype=np.uint64)),
            lambda: kernel.expand(schedule, seeds, 1, 4, firsts=np.zeros(8, dtype=np.int32)),
            lambda: kernel.fold(folded, rest, schedules=np.zeros((511, 176), dtype=np.uint8), counter=0, missing=False),
            lambda: kernel.fold(folded, rest, schedules=None, counter=0, missing=False),
            lambda: kernel.fold(
                folded[:127], rest, given=np.zeros((32, 16, 2), np.uint64), schedules=None, counter=0, missing=False
            ),
            lambda: kernel.fold(folded, rest, given=np.zeros((32, 15, 2), np.uint64), schedules=None, counter=0, missing=False),
            lambda: kernel.fold(
                folded, rest[:, :8], given=np.zeros((32, 16, 1), np.uint64), schedules=None, counter=0, missing=False
            ),
            lambda: kernel.transpose(np.zeros((60, 8), np.uint8), np.zeros((64, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 7), np.uint8), np.zeros((56, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 8), np.uint8), np.zeros((63, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 8), np.uint8)[::-1], np.zeros((64, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 16), np.uint8)[:, ::2], np.zeros((64, 8), np.uint8)),
        ]
        for call in bad:
            with pytest.raises(LocalProtocolError, match="fit"):
                call()
