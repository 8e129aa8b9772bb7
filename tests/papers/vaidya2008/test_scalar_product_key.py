"""The key holder of scalar_product encrypts what it likes. Nothing catches it; the page and `paillier.PublicKey` say so.

A reproduction of a paper's protocol, which holds between parties that follow it: this test keeps the words true.
"""

from pathlib import Path

import numpy as np
import pandas as pd

import blindbayes_papers.vaidya2008.scalar_product as package
from blindbayes import ColumnStudy
from blindbayes.codebook import Categorical, Codebook
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
