"""The key holder of scalar_product encrypts what it likes. Nothing catches it; the page and `paillier.PublicKey` say so.

A reproduction of a paper's protocol, which holds between parties that follow it: this test keeps the words true.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from msgspec.structs import replace

import blindbayes_papers.vaidya2008.scalar_product as package
from blindbayes import ColumnStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.protocols.core import Receive, Send
from blindbayes_papers.primitives.paillier import PublicKey
from blindbayes_papers.vaidya2008.scalar_product import training

ROWS = 12
VALUES = ("neg", "pos", "unknown")


def test_powers_of_two_in_place_of_indicators_read_the_others_column(monkeypatch):
    rng, loot = np.random.default_rng(2), []
    book = Codebook("y", ("a", "b"), (Categorical("hiv", VALUES),))
    frame = pd.DataFrame({"hiv": rng.choice(VALUES, ROWS), "y": ["a", "b"] * (ROWS // 2)})

    def reading(channel, labels, values):
        key, coins, shares = channel.private.public, channel.coins, []
        for at in range(channel.terms.classes):
            for part in channel.pieces(channel.terms.rows):
                numbers = [1 << (200 + row) for row in range(part.start, part.stop)]
                yield from channel.send(key, channel.private.encrypt_many(numbers, coins))
            answers = channel.decrypt((yield from channel.receive(key, values)))
            if at == 0:
                loot.append(answers)
            shares.append([answer & ((1 << 200) - 1) for answer in answers])
        return shares

    monkeypatch.setattr(training, "nominal_class_holder", reading)
    study = ColumnStudy(book, protocol="scalar_product", options={"key_bits": 2048})
    study.simulate({"bank": frame[["y"]], "clinic": frame[["hiv"]]})
    read = [
        next(name for name, answer in zip(VALUES, loot[0], strict=True) if answer >> (200 + row) & 1) for row in range(ROWS)
    ]
    assert read == frame["hiv"].tolist()
    page = " ".join((Path(package.__file__).parent / "SPEC.md").read_text().split())
    assert "reads the other's column row by row" in page
    assert "can read what others put under its key" in " ".join(PublicKey.__doc__.split())


def test_powers_of_two_in_place_of_numbers_read_which_rows_a_class_has(monkeypatch):
    """The other direction, with the attribute holder's key; the page knew one."""
    rng, loot, low = np.random.default_rng(3), [], 1 << 200
    book = Codebook("y", ("a", "b"), (Numeric("age", 0, 99),), variance_floor=1.0)
    frame = pd.DataFrame({"age": rng.integers(0, 100, ROWS), "y": rng.permutation(["a", "b"] * (ROWS // 2))})
    honest = training.numeric_attribute_holder

    def reading(channel, values, span):
        packed = [value + (low << row) for row, value in enumerate(values)]
        role, answer = honest(channel, values, span), None
        while True:
            try:
                effect = role.send(answer)
            except StopIteration as done:
                return done.value
            if not loot and isinstance(effect, Send):  # step 6
                effect = Send(effect.to, replaced(effect.message, channel, packed))
                loot.append(None)
            answer = yield effect
            if loot == [None] and isinstance(effect, Receive):  # step 7
                found = channel.private.public.unpack_ciphertexts(answer.ciphertexts, 2, party=channel.other)
                loot[:] = channel.decrypt(found)

    def replaced(message, channel, numbers):
        key = channel.private.public
        return replace(message, ciphertexts=key.pack_ciphertexts(channel.private.encrypt_many(numbers, channel.coins)))

    monkeypatch.setattr(training, "numeric_attribute_holder", reading)
    study = ColumnStudy(book, protocol="scalar_product", options={"key_bits": 2048})
    result = study.simulate({"bank": frame[["y"]], "clinic": frame[["age"]]})
    rows = [next(rows for count in range(1, ROWS + 1) if (rows := read(each // low, count)) is not None) for each in loot]
    assert rows == [[row for row in range(ROWS) if frame["y"][row] == label] for label in ("a", "b")]
    assert "the attribute holder which class a row has by a column of numbers" in result.statement


def read(found, count):
    """Return the rows of a class of `count` rows, from the part above the masks; None if it is no such class."""
    factor = (1 << 64) // count
    bits = f"{found // factor:b}"[::-1]
    return [row for row, bit in enumerate(bits) if bit == "1"] if not found % factor and bits.count("1") == count else None
