"""class_sums: the shares add up to the pooled statistics exactly, alone they say nothing, and broken messages are refused."""

import tomllib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocols.shared_training.class_sums as package
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, ProtocolError
from blindbayes.protocols.memory import Drop, Duplicate, Replace, Tamper, local_runs, run_in_memory
from blindbayes.protocols.shared_training.class_sums import ClassSumsSetup, Coded, RowLayout, attribute_holder, class_holder
from blindbayes.protocols.shared_training.class_sums import roles as class_sums_roles
from blindbayes.protocols.shared_training.class_sums.layout import square_limbs
from blindbayes.protocols.shared_training.class_sums.messages import ClassesChosen, RowsMasked
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


def roles(shape, blocks, labels, *, other_shape=None):
    runs = local_runs(["class", "attributes"], coins=coins("run"))

    def holder():
        ot_sender = yield from transfer.ot_sender(runs["attributes"], "class", coins("keeper"))
        return (yield from attribute_holder(runs["attributes"], "class", shape, blocks, ot_sender, coins("d")))

    def chooser():
        ot_receiver = yield from transfer.ot_receiver(runs["class"], "attributes", coins("planter"))
        return (yield from class_holder(runs["class"], "attributes", other_shape or shape, [labels], ot_receiver, coins("c")))

    return {"class": chooser(), "attributes": holder()}


def sums(rows, labels, classes):
    return np.stack([rows[labels == label].sum(axis=0, dtype=np.uint64) for label in range(classes)])


def table(rows, words, classes, name="table"):
    source = coins(name)
    labels = (source.words(rows) % np.uint64(classes)).astype(np.int64)
    return source.words(rows * words).reshape(rows, words), labels


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 7, 8, 9])
@pytest.mark.parametrize("words", [1, 2, 5])
def test_shares_add_up_for_every_number_of_classes(classes, words):
    rows, labels = table(300, words, classes)
    outcome = run_in_memory(roles(ClassSumsSetup(300, words, classes), [rows[:7], rows[7:8], rows[8:]], labels))
    mine, theirs = outcome.outputs["class"], outcome.outputs["attributes"]
    assert np.array_equal(mine + theirs, sums(rows, labels, classes))
    assert not np.array_equal(theirs, sums(rows, labels, classes))
    assert outcome.opened == {"class": (), "attributes": ()}
    assert SPEC["opened"] == []


@pytest.mark.parametrize("rows", [1, 64, 65, 200])
@pytest.mark.parametrize(("classes", "stretch"), [(2, 0), (3, 0), (3, 100), (4, 63), (5, 0), (9, 70)])
def test_cost_equals_the_spec(rows, classes, stretch, monkeypatch):
    monkeypatch.setattr(class_sums_roles, "_MAX_BLOCK", 64)
    data, labels = table(rows, 6, classes)
    outcome = run_in_memory(roles(ClassSumsSetup(rows, 6, classes, b"", stretch), [data], labels))
    known = {"rows": rows, "words": 6, "classes": classes, "stretch": stretch or rows}
    for name, formula in SPEC["variables"].items():
        known[name] = 64 if name == "block" else eval(formula, {"max": max, "min": min}, known)
    assert outcome.cost.rounds == 3 + eval(SPEC["rounds"], {}, known)
    assert outcome.cost.messages == 4 + eval(SPEC["messages"], {}, known)
    moved = [entry.size for entry in outcome.transcript.entries if entry.kind in (ClassesChosen, RowsMasked)]
    expected = eval(SPEC["bytes_per_row"], {}, known) * rows + known["blocks"] * eval(SPEC["bytes_per_block"], {}, known)
    padding = known["blocks"] * (127 * 4 + 120)  # transfers come in units of 128, frames have headers
    assert expected <= sum(moved) <= expected + padding


@pytest.mark.parametrize("stretch", [1, 64, 99, 100, 300, 1000])
def test_stretches_are_added_up_apart(stretch, monkeypatch):
    monkeypatch.setattr(class_sums_roles, "_MAX_BLOCK", 64)
    rows, labels = table(300, 2, 3)
    shape = ClassSumsSetup(300, 2, 3, b"", stretch)
    outcome = run_in_memory(roles(shape, [rows[:150], rows[150:]], labels))
    parts = [slice(low, low + stretch) for low in range(0, 300, stretch)]
    wanted = np.concatenate([sums(rows[part], labels[part], 3) for part in parts], axis=1)
    assert np.array_equal(outcome.outputs["class"] + outcome.outputs["attributes"], wanted)


def test_a_class_that_never_occurs_has_zero_sums():
    rows, _ = table(100, 3, 3)
    outcome = run_in_memory(roles(ClassSumsSetup(100, 3, 3), [rows], np.full(100, 1)))
    total = outcome.outputs["class"] + outcome.outputs["attributes"]
    assert not total[0].any()
    assert not total[2].any()
    assert np.array_equal(total[1], rows.sum(axis=0, dtype=np.uint64))


BOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("colour", ("red", "green", "blue")),
        Categorical("size", ("s", "m"), optional=True),
        Numeric("age", 0, 100),
        Numeric("weight", -1e6, 1e6, 0.0001, optional=True),  # squares pass 64 bits
        Numeric("height", 0, 2, 0.01, bins=5, optional=True),
    ),
)


def coded(rows, name="coded"):
    source = coins(name)

    def pick(low, high, missing, gap):
        values = (source.words(rows) % np.uint64(high - low + 1)).astype(np.int64) + low
        return np.where(source.words(rows) % np.uint64(5) == 0, gap, values) if missing else values

    weight = BOOK.feature("weight")
    columns = {
        "colour": pick(0, 2, False, -1),
        "size": pick(0, 1, True, -1),
        "age": pick(-50, 50, False, MISSING),
        "weight": pick(weight.code_low, weight.code_high, True, MISSING),
        "height": pick(0, 4, True, -1),
    }
    return CodedRows((source.words(rows) % np.uint64(3)).astype(np.int64), columns, rows)


@pytest.mark.parametrize("stretch", [500, 127])
def test_statistics_of_rows_equal_the_pooled_ones_with_missing_values_and_wide_squares(stretch):
    block = coded(500)
    layout = RowLayout(BOOK.features, 500, stretch)
    assert any(len(getattr(fields, "squares", ())) > 1 for fields in layout.fields)
    shape = ClassSumsSetup(500, layout.words, 3, layout.facts(), stretch)
    outcome = run_in_memory(roles(shape, [Coded(layout, block)], block.labels))
    words = outcome.outputs["class"] + outcome.outputs["attributes"]
    pooled = count_block(Layout(BOOK), block)
    found = layout.decode(words, pooled.class_counts.astype(np.int64))
    for name, counts in pooled.counts.items():
        assert np.array_equal(np.array(found[name]["count"], dtype=object), counts.astype(object))
    for name in pooled.sums:
        for kind, expected in (("n", pooled.n), ("sum", pooled.sums), ("square", pooled.squares)):
            assert [row[0] for row in found[name][kind]] == [int(value) for value in expected[name]]


def test_square_limbs_are_exact_at_the_edges():
    codes = np.array([0, 1, -1, 2**32 - 1, 2**32, -(2**45), 2**46 - 1, 2**46])
    limbs = square_limbs(codes, 3)
    assert [sum(int(limb[at]) << (32 * place) for place, limb in enumerate(limbs)) for at in range(len(codes))] == [
        int(code) ** 2 for code in codes
    ]


def test_counters_never_carry_into_each_other():
    """All rows in one cell: the field must hold the whole number of rows."""
    for rows in (1, 2, 3, 4, 7, 8, 255, 256):
        layout = RowLayout([Categorical("v", ("0", "1", "2"), optional=True)], rows)
        for value in range(3):
            words = layout.encode(CodedRows(None, {"v": np.full(rows, value)}, rows)).sum(axis=0, dtype=np.uint64)
            found = layout.decode(words[None, :], np.array([rows]))["v"]["count"][0]
            assert found == [rows if value == other else 0 for other in range(3)]


@pytest.mark.parametrize("who", ["class", "attributes"])
def test_a_share_alone_is_uniform(who):
    """The mean bit over runs with fresh coins is 1/2: six standard deviations, alpha = 2e-9; the plain sums fail it."""
    data, labels = table(40, 64, 2)
    data %= np.uint64(16)
    runs = local_runs(["class", "attributes"], coins=coins("run"))

    def one(number):
        def holder():
            ot_sender = yield from transfer.ot_sender(runs["attributes"], "class", coins(f"k{number}"))
            shape = ClassSumsSetup(40, 64, 2)
            return (yield from attribute_holder(runs["attributes"], "class", shape, [data], ot_sender, coins(f"d{number}")))

        def chooser():
            ot_receiver = yield from transfer.ot_receiver(runs["class"], "attributes", coins(f"p{number}"))
            shape = ClassSumsSetup(40, 64, 2)
            return (yield from class_holder(runs["class"], "attributes", shape, [labels], ot_receiver, coins(f"c{number}")))

        return run_in_memory({"class": chooser(), "attributes": holder()}).outputs[who]

    def score(words):
        bits = np.unpackbits(words.reshape(-1).view(np.uint8))
        return abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size)

    assert score(np.stack([one(number) for number in range(4)])) < 6
    assert score(np.stack([sums(data, labels, 2)] * 4)) > 6


def test_rows_and_classes_do_not_stand_in_the_transcript():
    data = np.full((50, 4), 0x1122334455667788, dtype=np.uint64)
    labels = np.ones(50, dtype=np.int64)
    outcome = run_in_memory(roles(ClassSumsSetup(50, 4, 2), [data], labels), keep=Keep.FRAMES)
    for entry in outcome.transcript.entries:
        assert (0x1122334455667788).to_bytes(8, "little") not in entry.frame
        assert data.sum(axis=0)[0].tobytes() not in entry.frame


@pytest.mark.parametrize("fill", [0, 2**64 - 1])
def test_what_either_party_sees_looks_uniform_whatever_the_inputs(fill):
    """The simulator is a uniform string of that length: six standard deviations of the mean bit, alpha = 2e-9. Constant rows in
    clear would be off by hundreds."""
    rows, labels = np.full((400, 5), fill, dtype=np.uint64), np.full(400, 2)
    outcome = run_in_memory(roles(ClassSumsSetup(400, 5, 3), [rows], labels), keep=Keep.FRAMES)
    for entry in outcome.transcript.entries:
        if entry.kind is ClassesChosen:
            seen = decode(entry.frame, ClassesChosen).corrections
        elif entry.kind is RowsMasked:
            message = decode(entry.frame, RowsMasked)
            seen = np.concatenate([message.levels, message.rows])
        else:
            continue
        bits = np.unpackbits(seen.view(np.uint8))
        assert abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size) < 6


def test_two_runs_of_the_same_parties_share_no_message():
    """Fresh nonces: the same inputs with other coins give other masks, although the transfers were set up once."""
    rows, labels = table(64, 2, 2)
    frames = []
    for number in range(2):
        runs = local_runs(["class", "attributes"], coins=coins("run"))

        def holder(number=number, runs=runs):
            ot_sender = yield from transfer.ot_sender(runs["attributes"], "class", coins("keeper"))
            return (
                yield from attribute_holder(
                    runs["attributes"], "class", ClassSumsSetup(64, 2, 2), [rows], ot_sender, coins(f"d{number}")
                )
            )

        def chooser(number=number, runs=runs):
            ot_receiver = yield from transfer.ot_receiver(runs["class"], "attributes", coins("planter"))
            return (
                yield from class_holder(
                    runs["class"], "attributes", ClassSumsSetup(64, 2, 2), [labels], ot_receiver, coins(f"c{number}")
                )
            )

        outcome = run_in_memory({"class": chooser(), "attributes": holder()}, keep=Keep.FRAMES)
        frames.append([e.frame for e in outcome.transcript.entries if e.kind in (ClassesChosen, RowsMasked)])
    assert not set(frames[0]) & set(frames[1])


def test_broken_messages_end_in_a_typed_error_and_nothing_is_opened():
    rows, labels = table(100, 3, 3)
    shape = ClassSumsSetup(100, 3, 3)
    count = run_in_memory(roles(shape, [rows], labels)).cost.messages
    for index in range(count):
        for fault in (
            Drop(index),
            Tamper(index, lambda frame: frame[:-1]),
            Tamper(index, lambda frame: frame + b"\0"),
            Tamper(index, lambda frame: b""),
            Duplicate(index),
        ):
            outcome = run_in_memory(roles(shape, [rows], labels), faults=[fault], check=False)
            assert outcome.error is None or isinstance(outcome.error, ProtocolError)
            if not isinstance(fault, Duplicate):
                assert outcome.error is not None or outcome.lost
            assert outcome.opened == {"class": (), "attributes": ()}


def test_wrong_lengths_name_the_party():
    rows, labels = table(100, 3, 3)
    shape = ClassSumsSetup(100, 3, 3)
    for at, change in (
        (lambda e: e.kind is RowsMasked, lambda m: RowsMasked(m.mark, m.levels, m.rows[:-1])),
        (lambda e: e.kind is RowsMasked, lambda m: RowsMasked(m.mark, m.levels[:-1], m.rows)),
        (lambda e: e.kind is ClassesChosen, lambda m: ClassesChosen(m.mark, m.corrections[:-1])),
    ):
        with pytest.raises(PeerProtocolError) as caught:
            run_in_memory(roles(shape, [rows], labels), faults=[Replace(at, change)])
        assert caught.value.party in ("class", "attributes")


@pytest.mark.parametrize("kind", [ClassesChosen, RowsMasked])
def test_a_message_that_comes_twice_or_out_of_order_is_refused(kind, monkeypatch):
    monkeypatch.setattr(class_sums_roles, "_MAX_BLOCK", 64)
    rows, labels = table(192, 3, 3)
    frames = [e for e in run_in_memory(roles(ClassSumsSetup(192, 3, 3), [rows], labels)).transcript.entries if e.kind is kind]
    for entry in frames[:-1]:
        with pytest.raises(PeerProtocolError, match="out of its place") as caught:
            run_in_memory(roles(ClassSumsSetup(192, 3, 3), [rows], labels), faults=[Duplicate(entry.index)])
        assert caught.value.party == entry.sender


def test_parties_that_disagree_on_public_facts_stop_before_any_row_moves():
    rows, labels = table(100, 3, 3)
    for other in (
        ClassSumsSetup(99, 3, 3),
        ClassSumsSetup(100, 4, 3),
        ClassSumsSetup(100, 3, 2),
        ClassSumsSetup(100, 3, 3, b"another layout"),
        ClassSumsSetup(100, 3, 3, b"", 50),
    ):
        outcome = run_in_memory(
            roles(ClassSumsSetup(100, 3, 3), [rows], labels[: other.rows] % other.classes, other_shape=other), check=False
        )
        assert isinstance(outcome.error, PeerProtocolError)
        assert not any(entry.kind is RowsMasked for entry in outcome.transcript.entries)


def test_own_mistakes_are_local_errors():
    rows, labels = table(10, 2, 2)
    for blocks in ([rows[:9]], [rows, rows[:1]], [rows[:, :1]]):
        with pytest.raises(LocalProtocolError):
            run_in_memory(roles(ClassSumsSetup(10, 2, 2), blocks, labels))
    with pytest.raises(LocalProtocolError):
        run_in_memory(roles(ClassSumsSetup(10, 2, 2), [rows], labels + 1))
    with pytest.raises(LocalProtocolError):
        ClassSumsSetup(10, 2, 1)
    with pytest.raises(ConfigError):
        RowLayout([], 10)


def test_memory_does_not_grow_with_the_rows(monkeypatch):
    monkeypatch.setattr(class_sums_roles, "_MAX_BLOCK", 1024)
    peaks = []
    for rows in (4096, 32768):
        labels = np.zeros(rows, dtype=np.int64)
        blocks = (np.ones((1024, 8), dtype=np.uint64) for _ in range(rows // 1024))
        both = roles(ClassSumsSetup(rows, 8, 3), blocks, labels)
        tracemalloc.start()
        run_in_memory(both, keep=Keep.COUNTS)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
