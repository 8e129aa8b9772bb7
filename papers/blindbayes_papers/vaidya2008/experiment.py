"""Vaidya, Kantarcioglu and Clifton 2008: Tables 1 to 4, measured for its own protocols and beside ours.

The paper *estimates* its tables: the number of exponentiations or multiplications times the time of one. `reproduce(folder)`
runs the protocols themselves (`scalar_product`) at the paper's 512 and 1,024 bits and at 3,072 bits (128-bit security), and
the protocols that replace them, and writes table1.csv to table4.csv and index.html. 512 and 1,024 bits are toys today.

What takes longer than some ten minutes in all is extended by a straight line through measured sizes, and marked so: Table 2
(10^6 and 10^8 tuples) and the rows of Table 3 at 3,072 bits. `reproduce(folder, long=True)` runs everything but 10^8 tuples:
about three hours.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blindbayes_papers.pages import write_csv, write_page
from blindbayes_papers.vaidya2008 import measure
from blindbayes_papers.vaidya2008.measure import KEY_SIZES, Figure, line
from blindbayes_papers.vaidya2008.page import page

SHORT = (
    "Every row is here, but Tables 2 and 3 are extrapolated from fewer tuples, as the notes say, and the paper's protocol in "
    "Table 4 from instances with 1 and 2 attributes of each kind."
)
TABLE_1 = {  # (key bits, tuples, degree): seconds
    (512, 10**6, 10): 0.51,
    (512, 10**6, 20): 0.54,
    (512, 10**8, 10): 0.68,
    (512, 10**8, 20): 0.71,
    (1024, 10**6, 10): 3.54,
    (1024, 10**6, 20): 3.74,
    (1024, 10**8, 10): 4.70,
    (1024, 10**8, 20): 4.91,
}
TABLE_2 = {  # (key bits, tuples, classes): seconds
    (512, 10**6, 2): 7.6,
    (512, 10**6, 3): 11.4,
    (512, 10**8, 2): 12.66 * 60,
    (512, 10**8, 3): 19 * 60,
    (1024, 10**6, 2): 24,
    (1024, 10**6, 3): 36,
    (1024, 10**8, 2): 40 * 60,
    (1024, 10**8, 3): 3600,
}
TABLE_3 = {  # (key bits, tuples, classes): seconds; the paper prints 10,000 for 1,000 in its fifth row
    (512, 1000, 2): 13.5,
    (512, 1000, 3): 16.5,
    (512, 10000, 2): 135,
    (512, 10000, 3): 165,
    (1024, 1000, 2): 93.6,
    (1024, 1000, 3): 114.4,
    (1024, 10000, 2): 936,
    (1024, 10000, 3): 1144,
}
TABLE_4 = {  # (key bits, degree, nominal and numeric attributes, classes): seconds; see `SLIPS`
    (512, 10, 5, 2): 2.328,
    (512, 10, 5, 3): 2.828,
    (512, 10, 10, 2): 3.655,
    (512, 10, 10, 3): 4.155,
    (512, 20, 5, 2): 2.553,
    (512, 20, 5, 3): 3.053,
    (512, 20, 10, 2): 3.955,
    (512, 20, 10, 3): 4.455,
    (1024, 10, 5, 2): 10.204,
    (1024, 10, 5, 3): 10.704,
    (1024, 10, 10, 2): 19.408,
    (1024, 10, 10, 3): 19.908,
    (1024, 20, 5, 2): 11.764,
    (1024, 20, 5, 3): 12.264,
    (1024, 20, 10, 2): 22.528,
    (1024, 20, 10, 3): 23.028,
}
SLIPS = {(512, 20, 10, 2): 4.105, (512, 20, 10, 3): 4.605}
"""Rows of Table 4 that do not follow from the paper's own formula, and what would."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: what is asked, the paper's estimate (none at 128-bit security), its protocol run, and ours."""

    key_bits: int
    asked: tuple[int, ...]
    paper: float | None
    theirs: Figure
    ours: Figure
    run_bits: int  # the key size it was run at
    only_multiplications: float | None = None  # Table 2: what the paper counts

    @property
    def ratio(self) -> float:
        """Their seconds over ours."""
        return self.theirs.seconds / self.ours.seconds if self.ours.seconds else float("inf")


HEADS = {
    1: ("tuples", "degree"),
    2: ("tuples", "classes"),
    3: ("tuples", "classes"),
    4: ("degree", "attributes_each", "classes"),
}


def reproduce(out: pathlib.Path, *, quick: bool = False, long: bool = False) -> pathlib.Path:
    """Measure and write the page; return its path."""
    return write(out, tables(KEY_SIZES, quick=quick, long=long), SHORT if quick else "")


def tables(key_sizes: Sequence[int], *, quick: bool, long: bool = False) -> dict[int, list[Row]]:
    """The rows of all four tables."""
    return {
        1: table_1(key_sizes),
        2: table_2(key_sizes, quick=quick, long=long),
        3: table_3(key_sizes, quick=quick, long=long),
        4: table_4(key_sizes, quick=quick),
    }


def write(out: pathlib.Path, made: dict[int, list[Row]], short: str = "") -> pathlib.Path:
    """CSV files and the page."""
    out.mkdir(parents=True, exist_ok=True)
    for number, rows in made.items():
        head = ("key_bits", *HEADS[number], "paper_estimate_s", "paper_protocol_s", "how", "run_at_bits", "ours_s", "ours_how")
        lines = []
        for row in rows:
            figures = (row.paper, row.theirs.seconds, row.theirs.how, row.run_bits, row.ours.seconds, row.ours.how)
            lines.append((row.key_bits, *row.asked, *figures, row.only_multiplications))
        write_csv(out / f"table{number}.csv", (*head, "only_multiplications_s"), lines)
    return write_page(out / "index.html", page(made), short)


def _asked(printed: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Return what the paper asks at 512 bits, to be asked at any key size."""
    return [(first, second) for bits, first, second in printed if bits == 512]


def table_1(key_sizes: Sequence[int]) -> list[Row]:
    """One probability by Protocol 3; ours: opened_ratio, per probability of a run that makes 102."""
    rows = []
    ours = {}
    for tuples in (10**6, 10**8):
        seconds, count = measure.our_ratio_seconds(tuples)
        ours[tuples] = Figure(seconds / count, "measured", count)
    for bits in key_sizes:
        for tuples, degree in _asked(TABLE_1):
            run_bits = measure.degree_key_bits(bits, degree)
            theirs = Figure(measure.ratio_seconds(tuples, degree, run_bits), "measured")
            rows.append(Row(bits, (tuples, degree), TABLE_1.get((bits, tuples, degree)), theirs, ours[tuples], run_bits))
    return rows


def _sizes(quick: bool, long: bool, short: tuple[int, int], usual: tuple[int, int], asked: tuple[int, int]) -> tuple[int, int]:
    """Tuples that are really run."""
    return short if quick else asked if long else usual


def table_2(key_sizes: Sequence[int], *, quick: bool, long: bool = False) -> list[Row]:
    """One nominal attribute; ours: transfers, class_sums and shared_model."""
    rows, ours = [], {}
    for classes in (2, 3):
        sizes = (20_000, 100_000) if quick else (100_000, 1_000_000)
        ours[classes] = {size: measure.our_training_seconds(1, 0, classes, size) for size in sizes}
    for bits in key_sizes:
        usual = {512: (10_000, 100_000), 1024: (5_000, 20_000)}.get(bits, (500, 2000))
        short = {512: (200, 800), 1024: (100, 400)}.get(bits, (20, 80))
        sizes = _sizes(quick, long, short, usual, (100_000, 1_000_000))
        measure.nominal_seconds(2, 2, bits)  # the first run of anything pays for caches
        once = measure.multiplication_seconds(bits)
        seconds = {classes: {n: measure.nominal_seconds(n, classes, bits) for n in sizes} for classes in (2, 3)}
        for tuples, classes in _asked(TABLE_2):
            theirs = line(seconds[classes], tuples)
            paper = TABLE_2.get((bits, tuples, classes))
            rows.append(Row(bits, (tuples, classes), paper, theirs, line(ours[classes], tuples), bits, once * tuples * classes))
    return rows


def table_3(key_sizes: Sequence[int], *, quick: bool, long: bool = False) -> list[Row]:
    """One numeric attribute; ours: transfers, class_sums and shared_model."""
    rows = []
    ours = {k: {n: measure.our_training_seconds(0, 1, k, n) for n in (1000, 10_000)} for k in (2, 3)}
    for bits in key_sizes:
        short, usual = ((4, 12), (100, 300)) if bits > 1024 else ((20, 80), (1000, 10_000))
        sizes = _sizes(quick, long, short, usual, (1000, 10_000))
        measure.numeric_seconds(2, 2, bits)
        seconds = {classes: {n: measure.numeric_seconds(n, classes, bits) for n in sizes} for classes in (2, 3)}
        for tuples, classes in _asked(TABLE_3):
            paper = TABLE_3.get((bits, tuples, classes))
            rows.append(Row(bits, (tuples, classes), paper, line(seconds[classes], tuples), line(ours[classes], tuples), bits))
    return rows


def table_4(key_sizes: Sequence[int], *, quick: bool) -> list[Row]:
    """One instance. In the short form the paper's route is extended along attributes x classes, with which its cost grows."""
    rows = []
    repeat = 2 if quick else 10
    measure.classify_seconds(1, 1, 2, 10, 512)
    asked = [key[1:] for key in TABLE_4 if key[0] == 512]
    ours = {(m, k): Figure(measure.our_classify_seconds(m, m, k, repeat), "measured", repeat) for _, m, k in asked[:4]}
    for bits in key_sizes:
        for degree in (10, 20):
            run_bits = measure.degree_key_bits(bits, degree)
            seconds = {2 * each: measure.classify_seconds(each, each, 2, degree, run_bits) for each in (1, 2) if quick}
            for _, each, classes in (key for key in asked if key[0] == degree):
                if quick:
                    theirs = line(seconds, each * classes)
                    theirs = Figure(theirs.seconds, theirs.how + " attributes of each kind x classes")
                else:
                    theirs = Figure(measure.classify_seconds(each, each, classes, degree, run_bits), "measured")
                paper = TABLE_4.get((bits, degree, each, classes))
                rows.append(Row(bits, (degree, each, classes), paper, theirs, ours[each, classes], run_bits))
    return rows
