"""Columns split between two parties: training and joint classification, two processes on loopback.

    python benchmarks/columns.py train --rows 1000000
    python benchmarks/columns.py growth                    # 10^4 to 10^7 rows: CPU per row, memory; a minute or two
    python benchmarks/columns.py classify --batch 1 1000 10000
    python benchmarks/columns.py classify --round-trip 0.04      # the same over a link of 40 ms: a delaying proxy between them
    python benchmarks/columns.py paper                     # the paper's own route beside it, and the ratio
    python benchmarks/columns.py compare_all                  # three parties: the default against the option `compare_all`

The two roles run in two processes over a plain TCP socket on loopback, with the product's messages and encoding and no
envelope. CPU seconds are those of each process (user and system), from codes in memory to shares; one block of synthetic rows
is made beforehand and serves again and again. Peak memory is the process's high-water mark. Machine and load are the reader's:
compare ratios. `paper` and `compare_all` run all parties in one process and count CPU time.

What the figures are held against: training of 10^6 rows x 50 columns x 3 classes in at most 3 CPU s per party and 300 bytes
per row; with kernels, and two idle cores, 100,000 instances/s with 10 categorical attributes and 45,000/s mixed (batch 10,000;
without kernels 30,000 and 10,000); one instance under 25 ms; at most 5 round trips. Over a round trip of 40 ms, transfers set
up: one instance in at most 130 ms, 10,000 in at most 1.5 s.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import queue
import resource
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from _delaying import Delaying
from _measured import Options

from blindbayes import ColumnStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.core import Done, Open, Receive, Role, Run, Send, step
from blindbayes.protocols.memory import run_in_memory
from blindbayes.protocols.shared_training import class_sums
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import CodedRows
from blindbayes.wire import decode, encode

PARTIES = ("class", "attributes")
NO_LINK = (0.0, math.inf)
CLASSES = ("a", "b", "c")
GROWTH = [10_000, 100_000, 1_000_000, 3_000_000, 10_000_000]


@dataclass
class Meter:
    """Bytes and messages of one side."""

    bytes: int = 0
    messages: int = 0


class Line:
    """A socket that carries frames with a length in front."""

    def __init__(self, sock: socket.socket, meter: Meter) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock, self.meter = sock, meter
        self.queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.writer = threading.Thread(target=self._write, daemon=True)
        self.writer.start()

    def close(self) -> None:
        """Everything is out."""
        self.queue.put(None)
        self.writer.join()

    def send(self, frame: bytes) -> None:
        self.meter.bytes += len(frame)
        self.meter.messages += 1
        self.queue.put(frame)

    def _write(self) -> None:
        """Frames go out from a thread, so that two parties that send at once never wait for each other."""
        while (frame := self.queue.get()) is not None:
            size = struct.pack("<Q", len(frame))
            out = self.sock.sendmsg([size, frame]) - len(size)
            if out < 0:
                raise OSError("the line takes less than eight bytes")
            self.sock.sendall(memoryview(frame)[out:])

    def receive(self) -> bytes:
        size = struct.unpack("<Q", self._exactly(8))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        """In one go, into memory that nobody has filled before; what a signal cut short is asked for again."""
        got = self.sock.recv(size, socket.MSG_WAITALL)
        while len(got) < size:
            more = self.sock.recv(size - len(got), socket.MSG_WAITALL)
            if not more:
                raise EOFError
            got += more
        return got


def drive(role: Role[Any], line: Line) -> Any:
    """Run one role over the line."""
    value: Any = None
    while True:
        effect = step(role, value)
        value = None
        if isinstance(effect, Done):
            return effect.value
        if isinstance(effect, Send):
            line.send(encode(effect.message))
        elif isinstance(effect, Receive):
            value = decode(line.receive(), effect.kind, sender=effect.sender)
        elif isinstance(effect, Open):
            value = effect.value


def together(party: str, line: Line, round_trip: float) -> float:
    """Begin at the same time, on one clock, however long the line is: when."""
    if party == PARTIES[0]:
        line.receive()
        begun = time.perf_counter() + round_trip
        line.send(struct.pack("<d", begun))
    else:
        line.send(b"ready")
        begun = struct.unpack("<d", line.receive())[0]
    time.sleep(max(0.0, begun - time.perf_counter()))
    return begun


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def two_processes(
    work: Callable[[str, Line, Meter], dict[str, Any]], link: tuple[float, float] = NO_LINK
) -> dict[str, dict[str, Any]]:
    """Run `work` as either party and bring the answers home; `link`: its round trip in seconds, and megabits per second."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    between: Any = multiprocessing.SimpleQueue()
    context = multiprocessing.get_context("fork")

    def delay() -> None:
        with Delaying(port, *link) as proxy:
            between.put(proxy.port)
            threading.Event().wait()

    proxy = context.Process(target=delay, daemon=True)
    if link != NO_LINK:
        proxy.start()
        port = between.get()
    answers: Any = multiprocessing.SimpleQueue()

    def child(party: str) -> None:
        meter = Meter()
        sock = listener.accept()[0] if party == PARTIES[0] else socket.create_connection(("127.0.0.1", port))
        line = Line(sock, meter)
        found = work(party, line, meter)
        line.close()
        answers.put((party, found))

    children = [context.Process(target=child, args=(party,)) for party in PARTIES]
    for process in children:
        process.start()
    found = dict(answers.get() for _ in PARTIES)
    for process in children:
        process.join()
    if link != NO_LINK:
        proxy.terminate()
        proxy.join()
    listener.close()
    return found


def codebook(categorical: int, values: int, gaussian: int, code_bits: int) -> Codebook:
    """`categorical` features of so many values, and Gaussian ones with codes of `code_bits` bits (two's complement)."""
    size = 1 << (code_bits - 1)
    named = tuple(str(value) for value in range(values))
    features = [Categorical(f"c{at}", named) for at in range(categorical)]
    features += [Numeric(f"g{at}", -size + 1, size - 1) for at in range(gaussian)]
    return Codebook("y", CLASSES, tuple(features), variance_floor=1.0)


def synthetic(book: Codebook, rows: int, seed: int) -> CodedRows:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for feature in book.features:
        if isinstance(feature, Categorical):
            columns[feature.name] = rng.integers(0, feature.size, rows)
        else:
            spread = feature.code_high / 4
            drawn = np.rint(rng.normal(0, spread, rows)).astype(np.int64)
            columns[feature.name] = np.clip(drawn, feature.code_low, feature.code_high)
    return CodedRows(None, columns, rows)


def labels(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed + 1).integers(0, len(CLASSES), rows)


def run_for(party: str, name: str) -> Run:
    return Run("0" * 64, name, PARTIES, party)


# -- training ------------------------------------------------------------------------------------------------------------


def train(rows: int, book: Codebook, whole: bool) -> dict[str, dict[str, Any]]:
    """Two processes train; returns each one's figures."""
    block = 1 << 16
    owners = {"class": (), "attributes": book.names}
    columns = ColumnsSetup(book, rows, owners, ("class",))
    sizes = [min(block, rows - low) for low in range(0, rows, block)]

    def work(party: str, line: Line, meter: Meter) -> dict[str, Any]:
        coins = Coins.system()
        run = run_for(party, f"train {rows}")

        made = {size: synthetic(book, size, 1) if party == "attributes" else labels(size, 1) for size in set(sizes)}

        def blocks() -> Iterator[Any]:
            return (made[size] for size in sizes)

        counts = np.zeros(len(CLASSES), dtype=np.int64)
        if party == "class":
            for size in sizes:
                counts += np.bincount(made[size], minlength=len(CLASSES))
        started, begun = time.perf_counter(), cpu()
        if whole and party == "class":
            drive(roles.train_class_holder(run, columns, counts, blocks, coins), line)
        elif whole:
            drive(roles.train_attribute_holder(run, columns, blocks(), coins), line)
        elif party == "class":
            ot_receiver = drive(transfer.ot_receiver(run, "attributes", coins), line)
            drive(class_sums.class_holder(run, "attributes", columns.shape("attributes"), blocks(), ot_receiver, coins), line)
        else:
            ot_sender = drive(transfer.ot_sender(run, "class", coins), line)
            words = (class_sums.Coded(columns.aligned["attributes"], item) for item in blocks())
            drive(class_sums.attribute_holder(run, "class", columns.shape("attributes"), words, ot_sender, coins), line)
        return {
            "cpu": cpu() - begun,
            "wall": time.perf_counter() - started,
            "bytes": meter.bytes,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    found = two_processes(work)
    total = sum(item["bytes"] for item in found.values())
    what = "sums and model" if whole else "sums"
    print(
        f"train ({what}) rows={rows:,}: CPU {found['class']['cpu']:.2f} + {found['attributes']['cpu']:.2f} s, "
        f"wall {max(item['wall'] for item in found.values()):.2f} s, "
        f"{total / rows:.0f} B/row ({total / 1e6:.1f} MB), "
        f"{columns.aligned['attributes'].words} words each, peak {found['class']['peak']:.0f} / "
        f"{found['attributes']['peak']:.0f} MB",
        flush=True,
    )
    return found


def warm(book: Codebook) -> None:
    """What a process does once, in the one that others are forked from: libraries, and tables of the logarithm."""
    rows, owners = 64, {"class": (), "attributes": book.names}
    columns, own = ColumnsSetup(book, rows, owners, ("class",)), labels(rows, 1)
    counts, coins = np.bincount(own, minlength=len(CLASSES)), Coins.system()
    first = roles.train_class_holder(run_for("class", "warm"), columns, counts, lambda: iter([own]), coins)
    second = roles.train_attribute_holder(run_for("attributes", "warm"), columns, iter([synthetic(book, rows, 1)]), coins)
    run_in_memory({"class": first, "attributes": second})


def growth(sizes: list[int], book: Codebook) -> None:
    """Training over sizes that grow tenfold: time must grow as the rows do, memory must not.

    Counters are as wide as the number of rows of a stretch needs, so a small table has narrower rows: the last lines are per
    word.
    """
    found = {rows: train(rows, book, True) for rows in sizes}
    print("rows, words per row, CPU ns per row and word beyond the smaller size (class holder, attribute holder), peak MB")
    for small, large in itertools.pairwise(sizes):
        words = RowLayout.thrifty(book.features, large, len(CLASSES)).words
        more = (large - small) * words
        each = [1e9 * (found[large][party]["cpu"] - found[small][party]["cpu"]) / more for party in PARTIES]
        peak = [found[large][party]["peak"] for party in PARTIES]
        print(f"{large:>12,}  {words}  {each[0]:.0f} + {each[1]:.0f} ns  {peak[0]:.0f} / {peak[1]:.0f} MB", flush=True)


# -- classification --------------------------------------------------------------------------------------------------------


def classify(
    batches: list[int], book: Codebook, name: str, repeat: int, link: tuple[float, float] = NO_LINK
) -> dict[int, dict[str, Any]]:
    """Two processes classify batches with tables that look like a trained model's shares; figures per batch."""
    rows = 100_000
    owners = {"class": (), "attributes": book.names}
    columns = ColumnsSetup(book, rows, owners, ("class",))
    plan = columns.plan
    source = np.random.default_rng(1)
    # Uniform shares of tables: what a trained model's shares look like, and as fast or slow to look up.
    tables = {}
    for feature in book.names:
        own = plan.features[feature]
        shape = (own.selectors, own.entries, plan.classes - 1, plan.limbs)
        table = source.integers(0, 1 << min(63, plan.bits), shape, dtype=np.uint64)
        table[:, 0] = 0
        tables[feature] = table
    prior = np.zeros(plan.classes)

    def work(party: str, line: Line, meter: Meter) -> dict[str, Any]:
        coins, found = Coins.system(), {}
        run = run_for(party, "classify")
        if party == "class":
            ot_sender = drive(transfer.ot_sender(run, "attributes", coins), line)
        else:
            ot_receiver = drive(transfer.ot_receiver(run, "class", coins), line)
        sessions = drive(transfer.agree_all(run, dict.fromkeys(run.others, "classify"), b"", coins), line)
        for batch in batches:
            block = synthetic(book, batch, 7)
            times, used, sent = [], [], 0
            for number in range(repeat if batch < 1000 else max(3, repeat // 2)):
                query = columns.query(batch)
                run = transfer.standing(run_for(party, "classify"), sessions, f"{batch} {number}")
                started = together(party, line, link[0])
                begun, before = cpu(), meter.bytes
                if party == "class":
                    local = np.repeat(prior[None], batch, axis=0)
                    made = roles.predict_class_holder(
                        run, query, local, {"attributes": tables}, {"attributes": ot_sender}, coins
                    )
                else:
                    made = roles.predict_attribute_holder(
                        run, query, tables, roles.Instances(block.columns), ot_receiver, coins
                    )
                drive(made, line)
                times.append(time.perf_counter() - started)
                line.send(b"done")
                line.receive()
                used.append(cpu() - begun)
                sent = meter.bytes - before
            found[batch] = {
                "wall": statistics.median(times),
                "cpu": statistics.median(used),
                "bytes": sent,
                "least": min(times),
            }
        return found

    found = two_processes(work, link)
    figures = {}
    for batch in batches:
        sides = [found[party][batch] for party in PARTIES]
        wall, least = (max(side[which] for side in sides) for which in ("wall", "least"))
        figures[batch] = {"wall": wall, "cpu": sum(side["cpu"] for side in sides)}
        print(
            f"classify {name}, {plan.classes} classes, score {plan.bits} bits, "
            f"batch {batch:,}: {batch / wall:,.0f}/s ({1e3 * wall:.1f} ms, at best {batch / least:,.0f}/s), "
            f"CPU {1e6 * sides[0]['cpu'] / batch:.1f} + {1e6 * sides[1]['cpu'] / batch:.1f} us each, "
            f"{sum(side['bytes'] for side in sides) / batch:,.0f} B each, 2.5 round trips"
            + (f" of {1e3 * link[0]:g} ms" if link[0] else ""),
            flush=True,
        )
    return figures


# -- beside ----------------------------------------------------------------------------------------------------------------


def paper(rows: int, code_bits: int, key_bits: int, quick: bool) -> None:
    """The paper's own route on the same work, CPU seconds of both parties, and how many times ours is faster."""
    sizes = (20, 60) if quick else (100, 300)
    from blindbayes_papers.vaidya2008.experiment import measure

    measure.nominal_seconds(2, 2, key_bits)  # keys and caches
    nominal = measure.line({n: measure.nominal_seconds(n, len(CLASSES), key_bits) for n in sizes}, rows)
    numeric = measure.line({n // 5: measure.numeric_seconds(n // 5, len(CLASSES), key_bits) for n in sizes}, rows)
    theirs = 45 * nominal.seconds + 5 * numeric.seconds
    ours = sum(side["cpu"] for side in train(rows, codebook(45, 2, 5, code_bits), True).values())
    print(
        f"paper's route, {key_bits}-bit keys: training {rows:,} rows x 50 columns {theirs:,.0f} CPU s "
        f"({nominal.how} rows per attribute); ours {ours:.2f}: {theirs / ours:,.0f} times less",
        flush=True,
    )
    for categorical, gaussian in ((10, 0), (5, 5)):
        one = measure.classify_seconds(categorical, gaussian, len(CLASSES), 20, max(key_bits, measure.degree_key_bits(512, 20)))
        single = measure.our_classify_seconds(categorical, gaussian, len(CLASSES), 3 if quick else 20)
        print(
            f"paper's route: one instance, {categorical} categorical + {gaussian} Gaussian, {one:.2f} CPU s; "
            f"ours {1e3 * single:.1f} ms alone: {one / single:,.0f} times less",
            flush=True,
        )


def compare_all(batch: int) -> None:
    """Three parties that classify a batch: by default two of them must not collude; together, no coalition short of all but one
    learns more than the class."""
    book = codebook(6, 4, 2, 8)
    rng = np.random.default_rng(3)
    frame = dict(_decoded(book, synthetic(book, 2000, 5)))
    names = [feature.name for feature in book.features]
    table = pa.table({**{name: pa.array(column) for name, column in frame.items()}, "y": rng.choice(CLASSES, 2000)})
    parts = {"a": table.select([*names[:2], "y"]), "b": table.select(names[2:5]), "c": table.select(names[5:])}
    queries = {"a": names[:2], "b": names[2:5], "c": names[5:]}
    asked = {party: table.select(own).slice(0, batch) for party, own in queries.items()}
    base = None
    for option in (False, True):
        made = ColumnStudy(book, options={"compare_all": option}).simulate(parts)
        started = time.process_time()
        found = made.model.classify(asked)
        used = time.process_time() - started
        labels = found.labels.tolist()
        if base is None:
            base = (used, labels)
        bits, how = made.model.columns.plan.bits, "together" if option else "default"
        print(
            f"three parties, {how}, {len(CLASSES)} classes, score {bits} bits, batch {batch:,}: "
            f"CPU {1e6 * used / batch:,.0f} us each (all parties), {found.cost.bytes / batch:,.0f} B each, "
            f"{found.cost.rounds / 2:g} round trips, {used / base[0]:.1f} times the default; "
            f"classes {'equal' if labels == base[1] else 'DIFFER'}",
            flush=True,
        )


def _decoded(book: Codebook, block: CodedRows) -> Iterator[tuple[str, Any]]:
    """Columns as a party has them: names of values, or numbers."""
    for feature in book.features:
        codes = block.columns[feature.name]
        if isinstance(feature, Categorical):
            yield feature.name, np.array(feature.values, dtype=object)[codes]
        else:
            yield feature.name, (codes + feature.centre) / feature.scale


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("train", "growth", "classify", "paper", "compare_all", "all"), default="all"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 1000, 10_000])
    parser.add_argument("--repeat", type=int, default=20, help="single queries to take the median of")
    parser.add_argument("--round-trip", type=float, default=0.0, help="of the link between the two, in seconds")
    parser.add_argument("--mbit", type=float, default=math.inf, help="megabits per second of that link, each way")
    parser.add_argument("--code-bits", type=int, default=12)
    parser.add_argument("--key-bits", type=int, default=3072, help="Paillier keys of the paper's route")
    parser.add_argument("--sums-only", action="store_true", help="class_sums without shared_model")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    what, sizes, batch = chosen.what, GROWTH, 1000
    if chosen.quick:
        chosen.rows, chosen.batch, chosen.repeat = [5_000], [1, 100], 3
        sizes, batch, chosen.key_bits = [1000, 4000], 20, 1024
    wide = codebook(45, 2, 5, chosen.code_bits)
    if what in ("train", "growth", "all"):
        print(f"50 columns: 45 categorical of 2 values, 5 Gaussian of {chosen.code_bits}-bit codes; {len(CLASSES)} classes")
    if what in ("train", "all"):
        for rows in chosen.rows:
            train(rows, wide, not chosen.sums_only)
    if what == "growth" or (what == "all" and chosen.quick):
        growth(sizes, wide)
    if what in ("classify", "all"):
        mixed = f"5 categorical of 4 values + 5 Gaussian of {chosen.code_bits}-bit codes"
        kinds = {"10 categorical of 4 values": codebook(10, 4, 0, 2), mixed: codebook(5, 4, 5, chosen.code_bits)}
        for name, book in kinds.items():
            classify(chosen.batch, book, name, chosen.repeat, (chosen.round_trip, chosen.mbit))
    if what in ("paper", "all"):
        paper(chosen.rows[0], chosen.code_bits, chosen.key_bits, chosen.quick)
    if what in ("compare_all", "all"):
        compare_all(batch)


if __name__ == "__main__":
    main()
