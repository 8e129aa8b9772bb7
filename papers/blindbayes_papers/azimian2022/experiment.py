"""Azimian et al. 2022, section 7: time and memory on Pima, Dermatology and Iris at 2,048 and 256 bits, and the attack.

`reproduce(folder)` writes measurements.csv, the four bar charts in the form of the paper's Figures 9 to 12, and index.html with
the paper's statements beside ours. Every (scheme, dataset, key size) runs in a process of its own, so that its peak
memory is its own. Schemes on textbook Paillier are timed for some contributors and scaled up; those rows say so.

256-bit keys are toys: they stand here because the paper measured them.
"""

from __future__ import annotations

import importlib.util
import pathlib
from dataclasses import asdict, fields

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.registry import SumSetup, simulate_roles
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.azimian2022.chain_sum import BUILDER, PROTOCOL, roles
from blindbayes_papers.azimian2022.chain_sum.messages import KeyAnnounced, LinkSent, RosterListed
from blindbayes_papers.azimian2022.measure import DATASETS, KEY_SIZES, SCHEMES, Measurement, measure_apart
from blindbayes_papers.azimian2022.page import page, plot
from blindbayes_papers.azimian2022.schemes import PrintedChain, Records, first_contributors, subtract_links
from blindbayes_papers.pages import write_csv, write_page
from blindbayes_papers.primitives.paillier import generate_keypair

SHORT = (
    "Every row and bar is here. Each operation is timed once, and at 2,048 bits the printed scheme runs with 3 contributors "
    "in place of 40 before it is scaled up."
)


def load_records(name: str) -> Records:
    """A dataset with one record per contributor; every distinct text is a value, `?` is missing."""
    from blindbayes_papers.datasets import load_dataset

    table = load_dataset(name)
    columns = [table.column(at).to_pylist() for at in range(table.num_columns)]
    rows: list[list[int]] = [[] for _ in columns[0]]
    start = 0
    for column in columns[:-1]:
        index = {value: start + at for at, value in enumerate(sorted({value for value in column if value != "?"}))}
        for row, value in zip(rows, column, strict=True):
            if value in index:
                row.append(index[value])
        start += len(index)
    labels = sorted(set(columns[-1]))
    return Records.one_each(rows, [labels.index(value) for value in columns[-1]], start, len(labels))


def reproduce(out: pathlib.Path, *, quick: bool = False) -> pathlib.Path:
    """Measure, plot and write the page; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    data = {name: load_records(name) for name in DATASETS}
    made = [
        measure_apart(name, records, scheme, bits, quick)
        for bits in KEY_SIZES
        for name, records in data.items()
        for scheme in SCHEMES
    ]
    head = [*(column.name for column in fields(Measurement)), "scaled_up"]
    write_csv(out / "measurements.csv", head, [[*asdict(one).values(), one.scaled] for one in made])
    pictures = plot(made, out) if importlib.util.find_spec("matplotlib") else []
    return write_page(out / "index.html", page(made, data, pictures, attack(data["iris"], 20)), SHORT if quick else "")


# -- the attack ------------------------------------------------------------------------------------------------------


def attack(records: Records, contributors: int, key_bits: int = 512) -> tuple[int, int]:
    """Return how many contributors a builder that records all messages reads: in the printed scheme, and in chain_sum."""
    some = first_contributors(records, contributors)
    coins = Coins.system()
    chain = PrintedChain(some, generate_keypair(key_bits, coins, toy_keys=True), coins, starter_gap=min(3, contributors - 1))
    seen = chain.counting(some.label_counts, some.label_count, record=True)
    read = subtract_links(chain.private, seen)
    printed = sum(chain.unpack(read[owner], some.label_count) == some.label_counts(owner) for owner in read)
    return printed, _read_ours(some, key_bits)


def _read_ours(records: Records, key_bits: int) -> int:
    """The builder tries every key it holds on every link of a run of chain_sum but the one meant for it."""
    names = tuple(f"contributor {index}" for index in range(len(records.owners)))
    length = records.label_count
    ranges = ((0, max(records.size, 1), length),)
    setting = SumSetup(names, length, options={"key_bits": key_bits, "toy_keys": True}, ranges=ranges)
    seed = Coins.seeded(Coins.fresh_seed())
    runs = local_runs(PROTOCOL.roster(setting), coins=seed)
    vectors = {name: np.array(records.label_counts(index), dtype=np.uint64) for index, name in enumerate(names)}
    outcome = run_in_memory(simulate_roles(PROTOCOL, runs, setting, vectors, seed), keep=Keep.FRAMES)
    key = AgreementKey.generate(seed.derive(f"party {BUILDER}").derive("chain agreement"))
    entries = outcome.transcript.entries
    roster = decode(next(entry.frame or b"" for entry in entries if entry.kind is RosterListed), RosterListed)
    digest = roles.roster_digest(runs[BUILDER], roster.modulus, roster.builder_key, roster.keys_digest)
    announced = {entry.sender: decode(entry.frame or b"", KeyAnnounced).key for entry in entries if entry.kind is KeyAnnounced}
    channels = [roles.channel(runs[BUILDER], key, name, public_key, digest) for name, public_key in announced.items()]
    read = 0
    for entry in entries:
        if entry.kind is not LinkSent or entry.to == BUILDER:
            continue
        sealed = decode(entry.frame or b"", LinkSent).sealed
        for channel in channels:
            try:
                roles.unseal(runs[BUILDER], channel, "chain link", entry.sender, entry.to, digest, sealed)
            except IntegrityError:
                continue
            read += 1
    return read
