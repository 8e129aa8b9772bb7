"""Contributors prove that a table can have their vectors: liars are named, honest tables of every kind pass, nothing opens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Limits, NaiveBayes, RowStudy
from blindbayes.codebook import Categorical, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.errors import DataError, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.memory import Outcome, Vanish, local_runs, run_in_memory
from blindbayes.statistics import Layout
from blindbayes_papers.datasets import load_dataset
from blindbayes_papers.huai2015.oblivious_sum import proof
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum
from support.sums import names

BOOK = Codebook(
    "y",
    ("a", "b"),
    (
        Categorical("v", ("0", "1", "2")),
        Categorical("w", ("0", "1"), optional=True),
        Numeric("u", -2, 5, 1),
        Numeric("t", 0, 3, 1, optional=True),
    ),
    max_rows=60,
)
TEXT = Codebook(
    "y", ("a", "b"), (Text("note", ("x", "z"), model="bernoulli", optional=True), Text("body", ("x", "z"))), max_rows=60
)


def table(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "v": rng.choice(["0", "1", "2"], rows),
            "w": rng.choice(["0", "1", None], rows),
            "u": rng.integers(-2, 6, rows),
            "t": rng.choice([0, 1, 2, 3, np.nan], rows),
            "note": rng.choice(["x x", "z", "x z", None], rows),
            "body": rng.choice(["x x z", "q", "z"], rows),
        }
    )
    return frame.assign(y=rng.choice(["a", "b"], rows))


def words(book: Codebook, rows: int, seed: int) -> np.ndarray:
    frame = table(rows, seed)
    return NaiveBayes(book).fit(frame[list(book.names)], frame["y"]).statistics_.words


def play(vectors: dict[str, np.ndarray], quorum: int | None = None, **options: Any) -> Outcome:
    layout, protocol = Layout(BOOK), registry.load("oblivious_sum")
    setting = registry.SumSetup(
        tuple(vectors), layout.word_count, quorum, bound=max(layout.bounds), options=options, codebook=BOOK
    )
    runs = local_runs(protocol.roster(setting), coins=Coins.seeded(bytes(32)).derive("run"))
    roles = registry.simulate_roles(protocol, runs, setting, vectors, Coins.seeded(bytes(32)).derive("c"))
    return run_in_memory(roles, check=False)


@pytest.mark.parametrize("book", [BOOK, TEXT], ids=["numbers", "text"])
@pytest.mark.parametrize("rows", [2, 3, 60])
def test_every_honest_table_obeys_the_rules(book: Codebook, rows: int) -> None:
    for seed in range(20):
        frame = table(rows, seed)
        if frame["y"].nunique() == 2:
            vector = words(book, rows, seed).view(np.int64)
            proof.require_rules(proof.table_rules(book), vector.tolist(), "a")


def test_the_rules_know_what_no_table_has() -> None:
    """One word far off is refused wherever it stands; another table is not."""
    honest, rules = words(BOOK, 40, 1).view(np.int64).tolist(), proof.table_rules(BOOK)
    refused = 0
    for at in range(len(honest)):
        for step in (-1000, 1000):
            changed = [*honest[:at], honest[at] + step, *honest[at + 1 :]]
            with pytest.raises(DataError, match="no table of the codebook"):
                proof.require_rules(rules, changed, "a")
            refused += 1
    assert refused == 2 * len(honest)
    other = words(BOOK, 40, 2).view(np.int64).tolist()
    proof.require_rules(rules, other, "a")


def refuses(book: Codebook, vector: list[int]) -> bool:
    try:
        proof.require_rules(proof.table_rules(book), vector, "a")
    except DataError:
        return True
    return False


def test_the_words_of_documents_are_bounded_together() -> None:
    """Each word alone was: 1,000 words of up to 60 in a document let a liar claim 1,000 times what documents have."""
    listed = tuple(f"w{at}" for at in range(20))
    book = Codebook(
        "y", ("a", "b"), (Text("m", listed, max_words=4), Text("b", listed, model="bernoulli", max_words=3)), max_rows=60
    )
    layout, rows = Layout(book), 10
    for name, most in (("m", 4 * rows), ("b", 3 * rows)):
        words = layout.require("word", name).start
        for extra in (0, 1):
            vector = [0] * layout.word_count
            vector[0] = rows
            for at in range(most + extra):
                vector[words + at % len(listed)] += 1
            assert max(vector[words:]) <= rows
            assert refuses(book, vector) == bool(extra)


@pytest.mark.parametrize(("low", "high"), [(-2, 3), (100, 104), (0, 1)])
def test_sums_and_squares_of_a_short_range_are_those_that_lie_between_tables(low: int, high: int) -> None:
    """Every (sum, squares) of three rows: accepted if and only if it is in the convex hull of what tables have."""
    book, rows = Codebook("y", ("a",), (Numeric("x", low, high, 1),), max_rows=8), 3
    feature = book.features[0]
    assert isinstance(feature, Numeric)
    codes = range(feature.code_low, feature.code_high + 1)
    for total in range(rows * codes[0] - 2, rows * codes[-1] + 3):
        # Of a mean between two neighbouring codes the least squares are theirs, the largest those of the ends.
        floor = total // rows
        least = total * (2 * floor + 1) - rows * floor * (floor + 1)
        most = total * (codes[0] + codes[-1]) - rows * codes[0] * codes[-1]
        inside = rows * codes[0] <= total <= rows * codes[-1]
        for square in range(-2, rows * max(code * code for code in codes) + 3):
            assert refuses(book, [rows, total, square]) != (inside and least <= square <= most), (total, square)


def test_squares_far_below_those_of_any_table_are_refused() -> None:
    """Codes 0 to 1,000 from the middle of a range: squares were held to the sum alone, a variance far below 0."""
    book, rows = Codebook("y", ("a",), (Numeric("x", 0, 1000, 1),), max_rows=60), 50
    for mean in range(-500, 501, 25):
        table = [rows, rows * mean, rows * mean * mean]
        assert not refuses(book, table)
        slack = rows * (1000 // (2 * (proof.MAX_TANGENTS - 1)) + 1) ** 2  # half the distance of two tangents, squared
        assert refuses(book, [*table[:2], table[2] - slack])


def lies() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    layout = Layout(BOOK)
    v = layout.require("count", "v").start

    def negative(vector: np.ndarray) -> np.ndarray:
        vector[v] -= 50
        vector[v + 1] += 50  # margins agree
        return vector

    def margin(vector: np.ndarray) -> np.ndarray:
        vector[v] += 1
        return vector

    def many(vector: np.ndarray) -> np.ndarray:
        return vector * 2  # 50 copies of one's rows, beyond max_rows

    def square(vector: np.ndarray) -> np.ndarray:
        vector[layout.require("square", "u").start] = 0
        return vector

    return {each.__name__: each for each in (negative, margin, many, square)}


@pytest.mark.parametrize("lie", lies())
@pytest.mark.parametrize("quorum", [None, 3])
def test_a_liar_is_named_or_left_out(lie: str, quorum: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It forges what it can: its bits are those of the words modulo 2^bits, everything else as the protocol has it."""
    vectors = {name: words(BOOK, 40, at) for at, name in enumerate(names(4))}
    liar = names(4)[2]
    vectors[liar] = lies()[lie](vectors[liar].view(np.int64).copy()).view(np.uint64)

    def forged(rules: Any, given: list[int], party: str) -> list[int]:
        sides = (rule.constant + sum(c * given[at] for at, c in rule.terms) for rule in rules)
        return [side % (1 << rule.bits) for rule, side in zip(rules, sides, strict=True)]

    monkeypatch.setattr(proof, "require_rules", forged)
    monkeypatch.setattr("blindbayes_papers.huai2015.oblivious_sum.contributor.require_rules", forged)
    outcome = play(vectors, quorum)
    honest = [name for name in vectors if name != liar]
    if quorum is None:
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == liar
        return
    total = outcome.outputs[MINER]
    assert total.included == tuple(honest)
    assert total.refused == (liar,)
    assert np.array_equal(total.words, sum(vectors[name] for name in honest))


def test_who_was_left_out_for_its_vector_stands_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked like a site that had not answered."""
    parts = {name: table(15, at)[[*BOOK.names, "y"]] for at, name in enumerate(names(4))}
    liar, honest = names(4)[2], proof.TableProof.require

    def require(self: proof.TableProof, elements: Any, shown: bytes) -> None:
        honest(self, elements, b"" if self._party == liar else shown)

    monkeypatch.setattr(proof.TableProof, "require", require)
    study = RowStudy(BOOK, protocol="oblivious_sum", limits=Limits(quorum=3))
    result = study.simulate(parts, faults=[Vanish(liar, 5)])  # once it has sent its ciphertexts
    assert result.included == tuple(name for name in names(4) if name != liar)
    assert f"refused its vector: {liar}." in result.statement
    assert liar in result.files()["model_card.md"].decode()


def test_without_proofs_the_same_lie_is_in_the_total() -> None:
    """The planted fault of the test above."""
    vectors = {name: words(BOOK, 10, at) for at, name in enumerate(names(4))}
    liar = names(4)[2]
    vectors[liar] = lies()["negative"](vectors[liar].view(np.int64).copy()).view(np.uint64)
    total = play(vectors, proofs=False).outputs[MINER]
    assert np.array_equal(total.words, sum(vectors.values()))


def test_a_site_refuses_to_send_a_vector_of_no_table() -> None:
    vectors = {name: words(BOOK, 40, at) for at, name in enumerate(names(3))}
    vectors[names(3)[2]] = vectors[names(3)[2]] * 2
    error = play(vectors).error
    assert isinstance(error, DataError)
    assert "it was not sent" in str(error)


def prover(rules: tuple[proof.Rule, ...]) -> tuple[proof.TableProof, list[int], list[bytes], int, bytes]:
    scheme, key, label = RistrettoSum(1000), 12345678901234567890, bytes(32)
    given = words(BOOK, 40, 3).view(np.int64).tolist()
    elements = scheme.encrypt(given, key, label)
    made = proof.TableProof(scheme, rules, label, "a")
    return made, given, elements, key, made.prove(given, elements, key, Coins.seeded(bytes(32)))


def test_a_proof_is_of_the_size_of_the_spec_and_bound_to_everything() -> None:
    rules = proof.table_rules(BOOK)
    made, _, elements, _, shown = prover(rules)
    made.require(elements, shown)
    spec = registry.spec("oblivious_sum")["proof"]
    assert len(shown) == value_of(spec["bytes"], {"bits": proof.bit_count(rules)})
    for at in (0, 32 * proof.bit_count(rules), len(shown) - 1, len(shown) - 96):
        changed = bytearray(shown)
        changed[at] ^= 1
        with pytest.raises(PeerProtocolError) as caught:
            made.require(elements, bytes(changed))
        assert caught.value.party == "a"
    scheme = RistrettoSum(1000)
    for other in (proof.TableProof(scheme, rules, bytes(32), "b"), proof.TableProof(scheme, rules, b"1" * 32, "a")):
        with pytest.raises(PeerProtocolError):
            other.require(elements, shown)
    with pytest.raises(PeerProtocolError):
        made.require([elements[1], elements[0], *elements[2:]], shown)
    with pytest.raises(PeerProtocolError):
        made.require(elements, b"")


def test_the_rules_of_car_are_as_many_as_the_spec_says() -> None:
    frame = load_dataset("car").to_pandas()
    rules = proof.table_rules(Codebook.from_frame(frame, target=frame.columns[-1], max_rows=len(frame)))
    text = (Path(proof.__file__).parent / "SPEC.md").read_text("utf-8")
    assert f"Car ({len(frame):,} rows; {len(rules)} rules:" in text
    assert f"has {proof.bit_count(rules)} bits:" in text
    assert f"{(proof.BIT_BYTES * proof.bit_count(rules) + proof.LINK_BYTES) / 1000:.0f} kB." in text


def test_powers_are_as_many_as_the_spec_says(monkeypatch: pytest.MonkeyPatch) -> None:
    count, times = [0], proof.times

    def counting(value: int, point: bytes) -> bytes:
        count[0] += 1
        return times(value, point)

    monkeypatch.setattr(proof, "times", counting)
    rules = proof.table_rules(BOOK)
    given = {"bits": proof.bit_count(rules), "rules": len(rules), "words": Layout(BOOK).word_count}
    made, _, elements, _, shown = prover(rules)
    spec = registry.spec("oblivious_sum")["proof"]
    assert count[0] == value_of(spec["prover"], given)
    count[0] = 0
    made.require(elements, shown)
    assert count[0] == value_of(spec["verifier"], given)


def test_a_proof_with_other_coins_shows_nothing_of_the_words() -> None:
    """Two proofs of one vector share no part, and neither proof nor ciphertexts hold a word times the generator."""
    rules = proof.table_rules(BOOK)
    made, given, elements, key, shown = prover(rules)
    again = made.prove(given, elements, key, Coins.seeded(bytes(32)).derive("other"))
    parts = [{one[at : at + 32] for at in range(0, len(one), 32)} for one in (shown, again)]
    assert not parts[0] & parts[1]
    assert not parts[0] & {proof.times_base(value) for value in range(64)}


def test_a_run_that_adds_to_an_earlier_one_proves_nothing_since_changes_are_no_table() -> None:
    study = RowStudy(BOOK, protocol="oblivious_sum")
    parts = {name: table(18, at)[[*BOOK.names, "y"]] for at, name in enumerate(names(3))}
    first = study.simulate(parts, coins=Coins.seeded(bytes(32)))
    taken = {name: each[:3] for name, each in parts.items()}
    added = {name: each[:1] for name, each in parts.items()}
    after = study.simulate(added, base=first, removed=taken, coins=Coins.seeded(bytes(32)))
    assert int(after.statistics.class_counts.sum()) == 3 * 16
