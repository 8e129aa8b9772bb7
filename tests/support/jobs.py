"""A small table of jobs and pay, with its statistics, and a file of text."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.data import count_table

BOOK = Codebook(
    "y",
    ("no", "yes"),
    (Categorical("job", ("cook", "clerk; senior", "müller"), optional=True), Numeric("pay", -10, 100, 0.5, optional=True)),
    max_rows=1000,
)
FRAME = pd.DataFrame(
    {"job": ["cook", "clerk; senior", None, "müller"], "pay": [1.5, -2.0, None, 99.5], "y": ["no", "yes", "no", "yes"]}
)
WANT = count_table(FRAME, BOOK)


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path
