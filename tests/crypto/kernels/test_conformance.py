"""Every kernel, on every instruction set of this machine, gives what numpy gives, bit by bit, and takes only what fits."""

from types import SimpleNamespace

import numpy as np
import pytest

from blindbayes.crypto import aead, kernels, prg, shamir
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.bit_planes import Streams, to_planes, to_rows
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Plain
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.linear_hash import LinearHash
from blindbayes.crypto.ot import base as ot
from blindbayes.crypto.psi import cuckoo, okvs, oprf
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.private_join.scores import match
from blindbayes.protocols.two_party import lookups
from blindbayes.protocols.two_party.lookups import Offered
from support.two_party import coins, transfer_pair

SETS = kernels.available()
pytestmark = pytest.mark.skipif(not SETS, reason="no kernels are built: python -m blindbayes.crypto.kernels.build")
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


# -- hashes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 16, 17, 63, 64, 65, 200])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9, 13, 26, 33])
def test_seeds_are_expanded_alike(isa, rows, size):
    seeds, firsts = words("seeds", rows, 2), words("firsts", rows) >> np.uint64(1)
    alike(isa, lambda: [TweakedHash(b"s").expand(seeds, Domain.LEAF, 2**62, size)])
    alike(isa, lambda: [TweakedHash(b"s").expand_at(seeds, Domain.TREE, firsts, size)])


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


# -- correlated transfers ----------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("width", [8, 16, 24, 32, 40, 64, 96, 1000])
@pytest.mark.parametrize("rows", [64, 128, 512])
def test_bits_are_transposed(isa, rows, width):
    whole = np.frombuffer(coins("bits").bytes(rows * (width + 24)), dtype=np.uint8).reshape(rows, width + 24)
    part, out = whole[:, 8 : 8 + width], np.empty((8 * width, rows // 8), dtype=np.uint8)
    with kernels.using(isa):
        kernels.active().transpose(part, out)
    wanted = np.packbits(np.unpackbits(part, axis=1, bitorder="little").T, axis=1, bitorder="little")
    assert np.array_equal(out, wanted)


@pytest.mark.parametrize("width", [0, 1, 8, 15, 16, 17, 24, 127, 128, 129, 1000])
@pytest.mark.parametrize("rows", [1, 3, 128])
def test_the_hash_of_checks_is_alike(isa, rows, width):
    whole = np.frombuffer(coins("bytes").bytes(rows * (width + 40)), dtype=np.uint8).reshape(rows, width + 40)
    part = whole[:, 8 : 24 + width]
    alike(isa, lambda: [LinearHash(b"s", 3, np.zeros(5, np.uint8)).masked(part)])
    alike(isa, lambda: [LinearHash(b"s", 3, np.zeros(5, np.uint8)).masked(np.full_like(part, 255))])


def test_kernels_that_are_turned_off_or_on_in_the_middle_of_a_session_change_nothing(isa):
    def made(first, later):
        chooser, long = transfer_pair()[1].session(b"x"), np.zeros(5000, dtype=np.uint8)
        with kernels.using(first):
            begun = chooser.extend(long)
        with kernels.using(later):
            return [*begun, *chooser.extend(long)]

    expected = made("off", "off")
    for got in (made(isa, "off"), made("off", isa)):
        assert all(np.array_equal(left, right) for left, right in zip(got, expected, strict=True))


# -- pads, sums by class -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("entries", "width"), [(1, 1), (2, 1), (2, 2), (5, 2), (11, 3), (16, 1), (17, 4), (33, 26)])
@pytest.mark.parametrize("rows", [0, 1, 15, 64, 130])
def test_pads_of_transfers_are_alike(isa, entries, width, rows):
    bits = ot.bits_for(entries)
    q, delta, choices = words("q", rows, bits, 2), words("delta", 2), words("choices", rows) % np.uint64(entries)

    def work():
        hash_ = TweakedHash(b"s")
        hash_.reserve(Domain.TRANSFER, 77)
        return [ot.sender_pads(hash_, q, delta, entries, width), ot.chooser_pads(hash_, q, choices, entries, width)]

    alike(isa, work)


# -- gates -------------------------------------------------------------------------------------------------------------------


def random_circuit(g, mine, theirs):
    """Every kind of gate and chain that circuits have."""
    total = circuits.add(g, mine, theirs)
    less = circuits.is_less(g, mine, theirs, signed=True)
    picked = circuits.select(g, less, circuits.subtract(g, mine, theirs, bits=len(mine)), theirs)
    yield np.concatenate([total, less[None], picked, circuits.sign_of_sum(g, mine, theirs)[None]])
    yield circuits.multiply(g, mine[:3], theirs[:2])


@pytest.mark.parametrize(("bits", "lanes"), [(3, 1), (5, 3), (4, 8), (7, 17), (3, 100), (3, 4096), (3, 4097), (3, 9000)])
def test_circuits_are_garbled_and_evaluated_alike(isa, bits, lanes):
    mine = words("mine", bits, lanes).astype(np.uint8) & 1
    delta, labels = words("delta", 2) | np.uint64(1), words("labels", bits, lanes, 2)
    bit = words("theirs", bits, lanes)[..., None] & np.uint64(1)
    active_labels = labels ^ (bit * np.uint64(MOST) & delta)

    def work():
        garbler, evaluator = Garbler(TweakedHash(b"g"), delta), Evaluator(TweakedHash(b"g"))
        out = list(random_circuit(garbler, garbler.own(mine), labels))
        tables = garbler.take_tables()
        evaluator.give_tables(tables)
        got = list(random_circuit(evaluator, evaluator.own((bits, lanes)), active_labels))
        evaluator.require_finished()
        made = [*out, tables, *got]
        for wires, found in zip(out, got, strict=True):
            tags = garbler.tags(wires)
            made += [tags, evaluator.read(found, tags)]
        return made

    alike(isa, work)


@pytest.mark.parametrize("classes", [2, 3, 4, 5])
@pytest.mark.parametrize(("bits", "count"), [(1, 3), (2, 1), (35, 1), (9, 17), (64, 5), (70, 8), (4, 1024), (6, 1500)])
def test_whole_comparisons_are_garbled_and_evaluated_alike(isa, classes, bits, count):
    """And they find the class of the first maximum."""
    pairs = circuits.pairs_of(classes)
    limbs, lanes = -(-bits // 64), len(pairs) * count
    shares, others = words("shares", lanes, limbs), words("others", lanes, limbs)
    delta, labels = words("delta", 2) | np.uint64(1), words("labels", bits, lanes, 2)
    theirs = lm.to_bits(others, bits)
    active_labels = labels ^ (theirs[..., None].astype(np.uint64) * np.uint64(MOST) & delta)

    def circuit(g, mine, other):
        behind = circuits.sign_of_sum(g, mine, other)
        return circuits.argmax_by_pairs(g, behind.reshape(len(pairs), count, *behind.shape[1:]), classes)

    def work():
        garbler, evaluator = Garbler(TweakedHash(b"g"), delta), Evaluator(TweakedHash(b"g"))
        for each in (garbler, evaluator):
            each.hash_.reserve(Domain.GATE, 33)
        if garbler.hash_.kernel is None:
            out = circuit(garbler, garbler.own(lm.to_bits(shares, bits)), labels)
        else:
            out = garbler.compare(shares, labels, classes)
        tables, tags = garbler.take_tables(), garbler.tags(out)
        evaluator.give_tables(tables)
        if evaluator.hash_.kernel is None:
            got = circuit(evaluator, evaluator.own((bits, lanes)), active_labels)
        else:
            got = evaluator.compare(None, active_labels, classes)
        evaluator.require_finished()
        assert garbler.and_count == evaluator.and_count
        return [out, tables, got, evaluator.read(got, tags)]

    wanted = circuit(Plain(), lm.to_bits(shares, bits), theirs)
    assert np.array_equal(alike(isa, work)[-1], wanted)


@pytest.mark.parametrize(("tag_bits", "planes"), [(1, 0), (1, 2), (2, 1), (7, 3), (58, 40), (74, 60)])
@pytest.mark.parametrize("lanes", [1, 15, 64, 130])
def test_tags_are_matched_alike_and_what_matches_passes(isa, tag_bits, planes, lanes):
    bits = tag_bits + planes
    shape = SimpleNamespace(tag_bits=tag_bits, planes=planes, payload_words=-(-bits // 64))
    own, theirs = (words(label, lanes, shape.payload_words) for label in ("own", "theirs"))
    mine, other = lm.to_bits(own, bits), lm.to_bits(theirs, bits)
    other[:tag_bits, ::3] = mine[:tag_bits, ::3]
    delta, labels = words("delta", 2) | np.uint64(1), words("labels", bits, lanes, 2)
    active_labels = labels ^ (other[..., None].astype(np.uint64) * np.uint64(MOST) & delta)

    def work():
        garbler, evaluator = Garbler(TweakedHash(b"g"), delta), Evaluator(TweakedHash(b"g"))
        for each in (garbler, evaluator):
            each.hash_.reserve(Domain.GATE, 33)
        out = match.matched(garbler, own, labels, shape)
        tables = garbler.take_tables()
        evaluator.give_tables(tables)
        got = match.matched(evaluator, None, active_labels, shape)
        evaluator.require_finished()
        return [tables, *out, *got, evaluator.read(got[0], garbler.tags(out[0]))]

    _, _, keys, kept, _, held, chosen, equal = alike(isa, work)
    wanted = (other == mine)[:tag_bits].all(axis=0)
    assert np.array_equal(equal == 1, wanted)
    assert np.array_equal(kept ^ chosen, (mine ^ other)[tag_bits:].T & wanted[:, None])
    choices = chosen[..., None].astype(np.uint64) * np.uint64(MOST)
    assert np.array_equal(held, keys ^ (choices & delta))  # keys are of colour 0: the other's share is what it chooses


@pytest.mark.parametrize(
    ("entries", "numbers", "limbs"), [(2, 1, 1), (2, 2, 1), (2, 2, 2), (5, 2, 1), (8, 3, 1), (16, 1, 2), (64, 70, 2)]
)
@pytest.mark.parametrize(("count", "selectors"), [(1, 1), (3, 5), (130, 1), (40, 7)])
def test_look_ups_are_answered_alike_and_add_up(isa, entries, numbers, limbs, count, selectors):
    bits, rows = ot.bits_for(entries), count * selectors
    shape, delta, q = (numbers, limbs), words("delta", 2), words("q", rows, bits, 2)
    choices, flips = (words(label, rows) % np.uint64(entries) for label in ("choices", "flips"))
    t = q ^ (ot.choice_bits(choices, entries)[..., None].astype(np.uint64) * np.uint64(MOST) & delta)
    common = words("table", 1, selectors, entries, *shape)
    common[:, :, 0] = 0
    cases = [Offered(common), Offered(np.repeat(common, count, axis=0) * np.uint64(3))]
    if entries == 1 << bits:
        cases += [Offered(case.table + np.uint64(1), flips.reshape(count, selectors)) for case in cases]
    if selectors == 1 and entries == 2:
        cases += [Offered.gate(words("scores", count, *shape), flips), Offered.gate(words("scores", count, *shape))]
    for case in cases:

        def work(case=case):
            kept, taken = words("kept", count, *shape), words("taken", count, *shape)
            sent = lookups.offer(TweakedHash(b"l"), q, delta, case, kept)
            lookups.take(TweakedHash(b"l"), t, choices, sent, taken)
            return [sent, kept, taken]

        _, kept, taken = alike(isa, work)
        found = lm.subtract(lm.subtract(lm.add(kept, taken), words("kept", count, *shape)), words("taken", count, *shape))
        places = (choices if case.flips is None else choices ^ case.flips.reshape(-1)).astype(np.int64).reshape(count, -1)
        table = np.broadcast_to(case.table, (count, *case.table.shape[1:]))
        picked = table[np.arange(count)[:, None], np.arange(selectors)[None], places]
        assert np.array_equal(found, lm.total(picked, axis=1))


def look_ups(kernel, schedule, **changed):
    """An offer, or what takes it up, that fits but for what is changed."""
    size = {"count": 4, "selectors": 2, "bits": 2, "entries": 4, "numbers": 3, "limbs": 1, "sent": 3, "flips": (4, 2), "q": 8}
    size |= changed
    shape, kind = (size["numbers"], size["limbs"]), changed.get("kind", np.uint64)
    q, total = np.zeros((size["q"], size["bits"], 2), kind), np.zeros((size["count"], *shape), np.uint64)
    sent = np.zeros((size["sent"], size["q"], shape[0] * shape[1]), np.uint64)
    if "choices" in changed:
        kernel.take(kernels.Tweaks(schedule, 0, 3), q, np.zeros(changed["choices"], np.uint64), sent, total=total)
        return
    total.flags.writeable = not changed.get("locked", False)
    table = np.zeros((size.get("instances", 1), size["selectors"], size["entries"], *shape), np.uint64)
    flips = None if size["flips"] is None else np.zeros(size["flips"], np.uint64)
    delta = schedule[0, :16].copy().view(np.uint64)
    kernel.offer(kernels.Tweaks(schedule, 0, 3), q, delta, table, flips, total=total, sent=sent)


UNFIT_LOOK_UPS = (
    [{name: value} for name, value in (("q", 7), ("bits", 0), ("bits", 64), ("instances", 3), ("sent", 2), ("numbers", 0))]
    + [{"limbs": 3}, {"flips": (4, 1)}, {"flips": (8,)}, {"locked": True}, {"kind": np.int64}, {"flips": None, "numbers": 2049}]
    + [{"entries": 5, "sent": 4, "flips": None}, {"entries": 3, "sent": 2}, {"entries": 4, "numbers": 2048, "limbs": 2}]
    + [{"choices": 7}, {"choices": (8, 1)}, {"choices": 8, "q": 9}, {"choices": 8, "limbs": 3}, {"choices": 8, "numbers": 2049}]
)


def comparison(kernel, schedule, **changed):
    """A comparison of four instances of three classes that fits but for what is changed."""
    size = {"lanes": 12, "bits": 5, "classes": 3, "rows": 4 * 12 + 2 * 4, "limbs": 1, "values": 12} | changed
    delta = None if changed.get("evaluates") else np.ones(2, np.uint64)
    values = None if size["values"] is None else np.zeros((size["values"], size["limbs"]), np.uint64)
    tables = np.zeros((size["rows"], 4), np.uint64)
    tables.flags.writeable = not changed.get("locked", False)
    labels = np.zeros((size["bits"], size["lanes"], 2), np.uint64)
    kernel.compare(kernels.Tweaks(schedule, 0, 4), delta, values, labels, size["classes"], tables)


def matching(kernel, schedule, **changed):
    """Tags of 3 bits and 2 planes on 12 lanes that fit but for what is changed."""
    size = {"lanes": 12, "bits": 5, "tag_bits": 3, "rows": 4 * 12, "limbs": 1, "values": 12} | changed
    delta = None if changed.get("evaluates") else np.ones(2, np.uint64)
    values = None if size["values"] is None else np.zeros((size["values"], size["limbs"]), np.uint64)
    labels, tables = np.zeros((size["bits"], size["lanes"], 2), np.uint64), np.zeros((size["rows"], 4), np.uint64)
    tables.flags.writeable = not changed.get("locked", False)
    kernel.match(kernels.Tweaks(schedule, 0, 4), delta, values, labels, size["tag_bits"], tables)


UNFIT_MATCHES = [
    {name: value}
    for name, value in (("lanes", 13), ("tag_bits", 0), ("tag_bits", 6), ("tag_bits", 129), ("rows", 47), ("values", 11))
] + [{"values": None}, {"evaluates": True}, {"locked": True}, {"bits": 65, "rows": 64 * 12}]
UNFIT_COMPARISONS = [
    {name: value}
    for name, value in (("lanes", 13), ("bits", 0), ("classes", 1), ("classes", 17), ("rows", 55), ("rows", 57), ("values", 11))
] + [{"values": None}, {"evaluates": True}, {"locked": True}, {"bits": 65, "rows": 64 * 12 + 8}]


def test_tables_that_end_too_early_are_refused_before_a_kernel_reads_them(isa):
    with kernels.using(isa):
        evaluator = Evaluator(TweakedHash(b"g"), "other")
        evaluator.give_tables(np.zeros(4 * 4 * 8 - 1, dtype=np.uint64))
        labels = words("labels", 4, 8, 2)
        with pytest.raises(PeerProtocolError, match="fewer garbled tables"):
            evaluator.carries(labels, labels)


# -- joins ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 101])
def test_outputs_of_the_oblivious_function_are_alike(isa, rows, size):
    own, bins = words("rows", rows, 8), np.arange(rows) * 7
    for session in (b"s", b"s" * 16, b"s" * 32):
        alike(isa, lambda session=session: [oprf.hashed(session, own, bins, size)])


@pytest.mark.parametrize("count", [64, 128, 1024])
def test_planes_and_rows_of_the_oblivious_function_are_alike(isa, count):
    rows, planes = words("rows", count, 8), words("planes", 512, count // 64).view(np.uint8)
    alike(isa, lambda: [to_planes(rows), to_rows(planes), to_rows(planes[:, : count // 16 // 8 * 8])])
    alike(isa, lambda: [to_planes(rows[:8])])  # too few for the kernel


def test_streams_go_on_where_they_ended(isa):
    seeds = words("seeds", 5, 2)

    def work():
        streams = Streams(map(bytes, seeds))
        return [streams.read(size) for size in (8, 16, 8, 0, 1000, 24, 1, 15)]

    alike(isa, work)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("rate", [145, 124])  # as it is, and so tight that keys are left for the dense part
def test_stores_are_encoded_and_decoded_alike(isa, width, rate):
    count = 3000
    size = 64 + rate * count // 100
    keys, values = words("keys", count, 2), words("values", count, width)

    def work():
        at = okvs.places(b"s", keys, size)
        table = okvs.encode(at, values, size, coins("store"))
        return [at.sparse, at.dense, table, okvs.decode(table, at), okvs.decode(table, at.part(slice(5, 5)))]

    assert np.array_equal(alike(isa, work)[3].reshape(-1), values.reshape(-1))


# -- the border --------------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_before_a_kernel_sees_it(isa):
    with kernels.using(isa):
        kernel = kernels.active()
        schedule = kernel.schedules(bytes(16))
        tweaks = kernels.Tweaks(schedule, 0, 4)
        seeds, out = np.zeros((8, 2), dtype=np.uint64), np.zeros((8, 4), dtype=np.uint64)
        locked = out.copy()
        locked.flags.writeable = False
        rest, folded = np.zeros((32, 16), dtype=np.uint8), np.zeros((128, 16), dtype=np.uint8)
        leaves = {"given": np.zeros((32, 16, 2), np.uint64), "schedules": None, "counter": 0, "missing": False}
        unfit = [(rest[:31], seeds[0]), (rest[:, :8], seeds[0]), (rest, seeds[0, :1]), (rest, rest[0])]
        bad = [
            lambda: kernel.schedules(bytes(17)),
            lambda: kernel.expand(schedule[:, :-1], seeds, 1, 4),
            lambda: kernel.expand(schedule, seeds[:, :1], 1, 4),
            lambda: kernel.expand(schedule, seeds[::2], 1, 4),
            lambda: kernel.expand(schedule, seeds.astype(np.int64), 1, 4),
            lambda: kernel.expand(schedule, seeds.astype(np.uint32), 1, 4),
            lambda: kernel.expand(schedule, seeds, 1, 0),
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
            *(lambda heard=heard: kernel.fold(folded, rest, received=heard, **leaves) for heard in unfit),
            lambda: kernel.transpose(np.zeros((60, 8), np.uint8), np.zeros((64, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 7), np.uint8), np.zeros((56, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 8), np.uint8), np.zeros((63, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 8), np.uint8)[::-1], np.zeros((64, 8), np.uint8)),
            lambda: kernel.transpose(np.zeros((64, 16), np.uint8)[:, ::2], np.zeros((64, 8), np.uint8)),
            lambda: kernel.sender_pads(tweaks, seeds[:, None], seeds[0], 3, 1),
            lambda: kernel.sender_pads(tweaks, seeds[:, None], seeds[0], 0, 1),
            lambda: kernel.sender_pads(tweaks, seeds[:, None], seeds[:2], 2, 1),
            lambda: kernel.chooser_pads(tweaks, seeds[:, None], seeds[:7, 0].copy(), 1),
            lambda: kernel.gates(tweaks, None, out.reshape(2, 8, 2), seeds[None], None, out, every=True),
            lambda: kernel.gates(tweaks, None, seeds[None], seeds[None], None, out[None, :7], every=True),
            lambda: kernel.gates(tweaks, seeds[0], seeds[None], seeds[None], None, locked[None], every=True),
            *(lambda change=change: look_ups(kernel, schedule, **change) for change in UNFIT_LOOK_UPS),
            *(lambda change=change: comparison(kernel, schedule, **change) for change in UNFIT_COMPARISONS),
            *(lambda change=change: matching(kernel, schedule, **change) for change in UNFIT_MATCHES),
            lambda: kernel.blake2b_rows(np.zeros((3, 7), np.uint64), np.zeros(3, np.int64), bytes(64), 2),
            lambda: kernel.blake2b_rows(np.zeros((3, 8), np.uint64), np.zeros(3, np.int64), bytes(63), 2),
            lambda: kernel.blake2b_rows(np.zeros((3, 8), np.uint64), np.zeros(3, np.int64), bytes(64), 9),
            lambda: kernel.store_order(np.full((3, 3), 9), 9),
            lambda: kernel.store_order(np.full((3, 3), -1), 9),
            lambda: kernel.store_assign(np.zeros((3, 3), np.int64), np.array([3]), np.array([0]), out[:3], out),
            lambda: kernel.store_assign(np.zeros((3, 3), np.int64), np.array([0]), np.array([8]), out[:3], out),
            lambda: kernel.store_decode(np.zeros((63, 1), np.uint64), None, np.zeros(1, np.uint64)),
            lambda: kernel.store_decode(np.zeros((64, 1), np.uint64), np.full((1, 3), 64), np.zeros(1, np.uint64)),
        ]
        for call in bad:
            with pytest.raises(LocalProtocolError, match="fit"):
                call()


# -- many keys, each for a little --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 39])
def test_masks_streams_and_further_keys_are_alike(isa, count):
    keys, half = coins("keys").bytes(32 * count), 32 * (count // 2)
    for size in (1, 2, 31, 32, 33, 250, 1000):
        alike(isa, lambda size=size: [prg.add_masks(words("vector", size), keys[:half], keys[half:])])
        alike(isa, lambda size=size: [np.frombuffer(prg.expand_bytes(keys[:32], size), np.uint8)])
    for size in range(1, 40):
        for parts in (1, 2, 3, 4):
            work = lambda size=size, parts=parts: prg.derive_many(keys, "x" * size, parts, bytes(size))  # noqa: E731
            alike(isa, lambda work=work: [np.frombuffer(key, np.uint8) for key in work()])


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (2, 2), (40, 36), (67, 41)])
@pytest.mark.parametrize(("count", "size"), [(2, 32), (1, 1), (1, 32), (3, 16), (5, 33)])
def test_shares_are_alike_and_draw_the_same_coins(isa, holders, threshold, count, size):
    """With coins of which some lie outside the field, and with a stream of which most do."""

    class Scarce(Coins):
        def bytes(self, size):
            drawn = np.frombuffer(super().bytes(size), "<u2").copy()
            drawn[: len(drawn) // 2] |= 0xFFF0  # 15 of 16 of these are no elements
            return drawn.tobytes()

    secrets = [coins(f"secret {at}").bytes(size) for at in range(count)]
    for secret in (secrets, [bytes(size)] * count, [b"\xff" * size] * count):
        for points in (range(1, holders + 1), range(shamir.MAX_POINT, shamir.MAX_POINT - holders, -1)):
            for made in (Coins, Scarce):

                def work(secret=secret, points=points, made=made):
                    drawn = made(coins("polynomials")._stream, None)
                    shares = shamir.split_many(secret, points, threshold, drawn)
                    weights = shamir.lagrange(list(points)[-threshold:])
                    for at, each in enumerate(secret):
                        assert shamir.combine(weights, shares[-threshold:, at], size) == each
                    return [shares, np.frombuffer(drawn.bytes(8), np.uint8)]

                alike(isa, work)


@pytest.mark.parametrize("count", [1, 39])
@pytest.mark.parametrize("width", [0, 1, 15, 16, 17, 72, 223, 224, 225, 1000])
def test_boxes_are_alike_and_whatever_was_altered_is_found(isa, count, width):
    keys, texts = coins("keys").bytes(32 * count), np.frombuffer(coins("texts").bytes(count * width), np.uint8)
    for said in (b"", bytes(16), bytes(37)):

        def work(said=said):
            boxes = aead.seal_many(keys, texts.reshape(count, width), associated=said, nonce=7)
            opened, wrong = aead.unseal_many(keys, boxes, associated=said, nonce=7)
            assert wrong is None
            assert opened.tobytes() == texts.tobytes()
            for place in (0, width, width + 15):
                bad = boxes.copy()
                bad[count - 1, place] ^= 1
                assert aead.unseal_many(keys, bad, associated=said, nonce=7)[1] == count - 1
            return [boxes]

        alike(isa, work)


def test_agreements_with_many_are_those_with_each(isa):
    """Random points, the field's edges and encodings that are not canonical; a point of small order names its party."""
    prime = 2**255 - 19
    publics = [coins(f"public {at}").bytes(32) for at in range(21)]
    publics += [point.to_bytes(32, "little") for point in (2, 9, prime - 2, prime + 2, 2**255 - 1, 2**255 + 9)]
    for at in range(5):
        key = AgreementKey(coins(f"private {at}").bytes(32))
        with kernels.using("off"):
            wanted = [key.agree(public) for public in publics]
        with kernels.using(isa):
            assert key.agree_many(publics, [None] * len(publics)) == wanted
            for small in pair_keys.SMALL_ORDER:
                with pytest.raises(IntegrityError) as raised:
                    key.agree_many([*publics[:4], small], ["a", "b", "c", "d", "e"])
                assert raised.value.party == "e"


def test_keys_and_texts_that_do_not_fit_are_refused(isa):
    with kernels.using(isa):
        for wrong in (
            lambda: prg.derive_many(bytes(33), "x", 1),
            lambda: aead.seal_many(bytes(32), np.zeros((2, 5), np.uint8), associated=b""),
            lambda: prg.add_masks(np.zeros(3, np.uint64), bytes(31), b""),
        ):
            with pytest.raises(ValueError):
                wrong()
        for wrong in (
            lambda: kernels.active().derive(bytes(32), b"x", 9),
            lambda: kernels.active().gcm(bytes(32), np.zeros((1, 4), np.uint8), 5, bytes(12), b"", opens=False),
            lambda: kernels.active().masks(np.zeros(3, np.int64), bytes(32), b""),
            lambda: kernels.active().agreements(bytes(31), bytes(32)),
            lambda: kernels.active().shares(np.ones((2, 2)), bytes(32), bytes(80), np.empty((2, 1, 17), np.uint16)),
            lambda: kernels.active().shares(np.ones((2, 2), int), bytes(32), bytes(80), np.empty((2, 1, 18), np.uint16)),
            lambda: kernels.active().shares(np.ones((3, 2)), bytes(32), bytes(80), np.empty((2, 1, 18), np.uint16)),
            lambda: kernels.active().shares(np.ones((2, 2)), b"", bytes(80), np.empty((2, 0, 18), np.uint16)),
        ):
            with pytest.raises(LocalProtocolError):
                wrong()
