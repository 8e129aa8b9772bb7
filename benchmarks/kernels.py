"""The core of the two-party protocols with numpy and with each set of kernels, in turn in one run: CPU of both sides, bytes.

    python benchmarks/kernels.py                           # the table: five minutes or so
    python benchmarks/kernels.py train join --sets off vaes --rounds 5
    python benchmarks/kernels.py classify --profile vaes   # where the time goes

Both roles run in this process over the product's encoding, one after the other; the CPU time of a step is that of its thread.
Every round measures every back end once, so that load hits all alike; figures are medians. Bytes on the wire are the same with
all of them (compared). Training: 10^6 rows x 50 columns x 3 classes, setup of transfers included; classification: 10
categorical attributes, or 5 and 5 Gaussian ones, transfers ready; join: 10^5 + 10^5 identifiers.
"""

from __future__ import annotations

import cProfile
import gc
import hashlib
import os
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import columns as bench_columns
import joined_scores as bench_scores
import joined_sums as bench_sums
import numpy as np
from _measured import Options
from columns import PARTIES, run_for

from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto import kernels
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.core import Done, Open, Receive, Role, Send, step
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores import roles as joined_scores
from blindbayes.protocols.private_join.scores.roles import HelperInput, JoinedScoresSetup, ScorerInput
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import merge, one_hot
from blindbayes.protocols.private_join.sums.roles import JoinedSumsSetup
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire import decode, encode


@dataclass
class Pair:
    """Drives two roles; bytes and CPU of both."""

    cpu: float = 0.0
    bytes: int = 0
    frames: Any = field(default_factory=hashlib.sha256)

    def drive(self, first: Role[Any], second: Role[Any]) -> tuple[Any, Any]:
        """Both to their end; what they return."""
        made = dict(zip(PARTIES, (first, second), strict=True))
        boxes: dict[str, list[bytes]] = {name: [] for name in made}
        waiting: dict[str, Receive] = {}
        value, out = dict.fromkeys(made), {}
        while len(out) < 2:
            for name, role in made.items():
                other, begun, aside = PARTIES[1 - PARTIES.index(name)], time.thread_time(), 0.0
                while name not in out:
                    if name in waiting:
                        if not boxes[name]:
                            break
                        want = waiting.pop(name)
                        value[name] = decode(boxes[name].pop(0), want.kind, sender=want.sender)
                    effect = step(role, value[name])
                    value[name] = None
                    if isinstance(effect, Done):
                        out[name] = effect.value
                    elif isinstance(effect, Send):
                        frame = encode(effect.message)
                        self.bytes += len(frame)
                        boxes[other].append(frame)
                        now = time.thread_time()
                        self.frames.update(frame)
                        aside += time.thread_time() - now
                    elif isinstance(effect, Receive):
                        waiting[name] = effect
                    elif isinstance(effect, Open):
                        value[name] = effect.value
                self.cpu += time.thread_time() - begun - aside
        return out[PARTIES[0]], out[PARTIES[1]]


Work = Callable[[Pair], None]


def coins(label: str) -> Coins:
    return Coins.seeded(hashlib.sha256(label.encode()).digest())


def both_coins() -> tuple[Coins, Coins]:
    return coins("class"), coins("attributes")


def train(rows: int) -> Work:
    book, block = bench_columns.codebook(45, 2, 5, 12), 1 << 16
    setup = ColumnsSetup(book, rows, {"class": (), "attributes": book.names}, ("class",))
    sizes = [min(block, rows - low) for low in range(0, rows, block)]
    made = {size: (bench_columns.labels(size, 1), bench_columns.synthetic(book, size, 1)) for size in set(sizes)}
    counts = np.zeros(3, dtype=np.int64)
    for size in sizes:
        counts += np.bincount(made[size][0], minlength=3)

    def work(pair: Pair) -> None:
        mine, theirs = both_coins()
        pair.drive(
            roles.train_class_holder(run_for("class", "t"), setup, counts, lambda: (made[s][0] for s in sizes), mine),
            roles.train_attribute_holder(run_for("attributes", "t"), setup, (made[s][1] for s in sizes), theirs),
        )

    return work


def classify(kind: str, batch: int) -> Work:
    book = bench_columns.codebook(10, 4, 0, 2) if kind == "categorical" else bench_columns.codebook(5, 4, 5, 12)
    setup = ColumnsSetup(book, 100_000, {"class": (), "attributes": book.names}, ("class",))
    plan, source, tables = setup.plan, np.random.default_rng(1), {}
    for name in book.names:
        own = plan.features[name]
        shape = (own.selectors, own.entries, plan.classes - 1, plan.limbs)
        tables[name] = source.integers(0, 1 << min(63, plan.bits), shape, dtype=np.uint64)
        tables[name][:, 0] = 0
    sender, receiver = Pair().drive(
        transfer.ot_sender(run_for("class", "c"), "attributes", coins("s")),
        transfer.ot_receiver(run_for("attributes", "c"), "class", coins("r")),
    )
    block, query, local = bench_columns.synthetic(book, batch, 7), setup.query(batch), np.zeros((batch, plan.classes))

    def work(pair: Pair) -> None:
        mine, theirs = both_coins()
        sender._names.clear()  # the same session again: the same bytes, to be compared
        receiver._names.clear()
        shares, links = {"attributes": tables}, {"attributes": sender}
        pair.drive(
            roles.predict_class_holder(run_for("class", "c"), query, local, shares, links, mine),
            roles.predict_attribute_holder(
                run_for("attributes", "c"), query, tables, roles.Instances(block.columns), receiver, theirs
            ),
        )

    return work


def join(count: int) -> Work:
    layout, block, labels = bench_sums.table(count)
    shape = JoinedSumsSetup(count, count, layout.words + 1, bench_sums.CLASSES, 1, layout.facts())
    half = count // 2

    def work(pair: Pair) -> None:
        mine, theirs = both_coins()
        begun = time.thread_time()
        labelled = merge(bench_sums.digests(half, count), one_hot(labels, bench_sums.CLASSES), "reject", 1)
        rows = np.concatenate([layout.encode(block), np.ones((count, 1), dtype=np.uint64)], axis=1)
        entries = merge(bench_sums.digests(0, count), rows, "reject", 1)
        pair.cpu += time.thread_time() - begun
        runs = [run_for(name, "j") for name in PARTIES]
        taken, given = pair.drive(
            transfer.ot_receiver(runs[0], "attributes", mine), transfer.ot_sender(runs[1], "class", theirs)
        )
        offered, heard = pair.drive(
            transfer.ot_sender(runs[0], "attributes", mine), transfer.ot_receiver(runs[1], "class", theirs)
        )
        found = pair.drive(
            joined_sums.label_holder(runs[0], "attributes", shape, labelled, (offered, taken), mine),
            joined_sums.row_holder(runs[1], "class", shape, entries, (given, heard), theirs),
        )
        wanted = [rows[half:][labels[: count - half] == label].sum(axis=0, dtype=np.uint64) for label in range(2)]
        if not np.array_equal(found[0].sums + found[1].sums, np.stack(wanted)):
            raise SystemExit("the shares do not add up to the statistics of the join")

    return work


def score(count: int) -> Work:
    features = tuple(Categorical(f"v{at}", tuple(map(str, range(10)))) for at in range(10))
    names, book = tuple(feature.name for feature in features), Codebook("y", ("no", "yes"), features)
    setup = JoinSetup(book, {"class": (), "attributes": names}, "class", {"class": count, "attributes": count}, False, "reject")
    hidden, source, plan = JoinedScoresSetup(setup, "class", "everybody"), np.random.default_rng(7), setup.columns.plan
    values = {name: source.integers(-1, 10, count) for name in names}
    shape = (1, 11, 1, plan.limbs)
    mine, theirs = ({name: lm.cut(source.integers(0, 2**63, shape, np.uint64), plan.bits) for name in names} for _ in range(2))
    for table in (*mine.values(), *theirs.values()):
        table[:, 0] = 0
    prior, nothing = np.zeros((count, 1, plan.limbs), dtype=np.uint64), np.zeros((1, plan.limbs), dtype=np.uint64)

    def work(pair: Pair) -> None:
        (first, second), runs = both_coins(), [run_for(name, "s") for name in PARTIES]
        begun = time.thread_time()
        asked = ScorerInput(bench_scores.items(count // 2, count), prior, {}, {"attributes": mine}, nothing)
        helped = HelperInput(bench_scores.items(0, count), values, nothing, theirs, {})
        pair.cpu += time.thread_time() - begun
        links = pair.drive(joined_scores.connect(runs[0], hidden, first), joined_scores.connect(runs[1], hidden, second))
        pair.drive(
            joined_scores.scorer(runs[0], hidden, asked, links[0], first),
            joined_scores.helper(runs[1], hidden, helped, links[1], second),
        )

    return work


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    name: str
    make: Callable[[int], Work]
    size: int
    small: int
    unit: str
    scale: float  # seconds to the unit
    repeat: int = 1

    def each(self, size: int) -> float:
        return self.scale / (size if self.unit == "us each" else 1)


CASES = {
    "train": Case("columns training, 50 columns, 3 classes", train, 1_000_000, 4096, "s", 1),
    "classify": Case("classification, categorical", lambda n: classify("categorical", n), 10_000, 64, "us each", 1e6),
    "mixed": Case("classification, mixed", lambda n: classify("mixed", n), 10_000, 64, "us each", 1e6),
    "one": Case("one instance, categorical", lambda n: classify("categorical", n), 1, 1, "ms", 1e3, 15),
    "one-mixed": Case("one instance, mixed", lambda n: classify("mixed", n), 1, 1, "ms", 1e3, 15),
    "join": Case("hidden join, identifiers of each side", join, 100_000, 4096, "s", 1),
    "score": Case("hidden scoring", score, 20_000, 4096, "us each", 1e6),
}


def measure(case: Case, size: int, sets: list[str], rounds: int) -> dict[str, float]:
    """Medians by back end, in the case's unit; prints the line."""
    work = case.make(size)
    used: dict[str, list[float]] = {name: [] for name in sets}
    frames, sent = set(), 0
    for number in range(rounds + (rounds > 1)):  # the first of several rounds fills caches
        for name in sets:
            with kernels.using(name):
                for _ in range(case.repeat if rounds > 1 else 1):
                    gc.collect()
                    pair = Pair()
                    work(pair)
                    frames.add(pair.frames.hexdigest())
                    sent = pair.bytes
                    if number or rounds == 1:
                        used[name].append(pair.cpu)
    if len(frames) != 1:
        raise SystemExit(f"{case.name}: the back ends send different bytes")
    found = {name: statistics.median(own) * case.each(size) for name, own in used.items()}
    base = found[sets[0]]
    shown = "  ".join(
        f"{name} {value:.4g} ({base / value:.1f}x, least {min(used[name]) * case.each(size):.4g})"
        for name, value in found.items()
    )
    print(f"{case.name}, {size:,}: {case.unit}: {shown}; {sent / size:,.0f} B each", flush=True)
    return found


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("what", nargs="*", help=f"of {', '.join(CASES)}; all by default")
    parser.add_argument("--sets", nargs="+", help="back ends; by default numpy and every set of kernels but the portable one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int)
    parser.add_argument("--profile", metavar="SET", help="one run under a profiler instead")
    parser.add_argument("--sort", default="tottime", choices=["tottime", "cumtime"], help="how to sort the profile")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    sets = chosen.sets or ["off", *kernels.available()[-1 if chosen.quick else 1 :]]
    rounds = 1 if chosen.quick else chosen.rounds
    print(f"{', '.join(sets)}; medians of {rounds}; load {os.getloadavg()[0]:.1f}; times less than {sets[0]} in brackets")
    for name in chosen.what or CASES:
        case = CASES[name]
        size = chosen.size or (case.small if chosen.quick else case.size)
        if chosen.profile:
            work, profile = case.make(size), cProfile.Profile(time.thread_time)
            with kernels.using(chosen.profile):
                work(Pair())
                profile.runcall(work, Pair())
            pstats.Stats(profile).sort_stats(chosen.sort).print_stats(30)
        else:
            measure(case, size, sets, rounds)


if __name__ == "__main__":
    main()
