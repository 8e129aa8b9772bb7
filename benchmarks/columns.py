"""Columns split between two parties: training and joint classification, two processes on loopback.

    python benchmarks/columns.py train --rows 1000000
    python benchmarks/columns.py train --rows 10000 100000 1000000 10000000
    python benchmarks/columns.py classify --batch 1 1000 10000

The two roles run in two processes over a plain TCP socket on loopback, with the product's messages and encoding and no
envelope. CPU seconds are those of each process (user and system), from codes in memory to shares; one block of synthetic rows
is made beforehand and serves again and again. Peak memory is the process's high-water mark. Machine and load are the reader's:
compare ratios.
"""

from __future__ import annotations

import argparse
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

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.primitives.coins import Coins
from blindbayes.protocol import class_sums, transfer
from blindbayes.protocol import columns as roles
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.core import Open, Receive, Role, Run, Send
from blindbayes.runtime.steps import Done, step
from blindbayes.statistics import Block
from blindbayes.wire import decode, encode

PARTIES = ("class", "attributes")
CLASSES = ("a", "b", "c")


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
            self.sock.sendall(struct.pack("<Q", len(frame)))
            self.sock.sendall(frame)

    def receive(self) -> bytes:
        size = struct.unpack("<Q", self._exactly(8))[0]
        return bytes(self._exactly(size))

    def _exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, at = memoryview(buffer), 0
        while at < size:
            got = self.sock.recv_into(view[at:])
            if not got:
                raise EOFError
            at += got
        return buffer


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


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def two_processes(work: Callable[[str, Line, Meter], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Run `work` as either party and bring the answers home."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    answers: Any = multiprocessing.SimpleQueue()

    def child(party: str) -> None:
        meter = Meter()
        sock = listener.accept()[0] if party == PARTIES[0] else socket.create_connection(("127.0.0.1", port))
        line = Line(sock, meter)
        found = work(party, line, meter)
        line.close()
        answers.put((party, found))

    context = multiprocessing.get_context("fork")
    children = [context.Process(target=child, args=(party,)) for party in PARTIES]
    for process in children:
        process.start()
    found = dict(answers.get() for _ in PARTIES)
    for process in children:
        process.join()
    listener.close()
    return found


def codebook(categorical: int, values: int, gaussian: int, code_bits: int) -> Codebook:
    """`categorical` features of so many values, and Gaussian ones with codes of `code_bits` bits (two's complement)."""
    size = 1 << (code_bits - 1)
    named = tuple(str(value) for value in range(values))
    features = [Categorical(f"c{at}", named) for at in range(categorical)]
    features += [Numeric(f"g{at}", -size + 1, size - 1) for at in range(gaussian)]
    return Codebook("y", CLASSES, tuple(features), variance_floor=1.0)


def synthetic(book: Codebook, rows: int, seed: int) -> Block:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {}
    for feature in book.features:
        if isinstance(feature, Categorical):
            columns[feature.name] = rng.integers(0, feature.size, rows)
        else:
            spread = feature.code_high / 4
            drawn = np.rint(rng.normal(0, spread, rows)).astype(np.int64)
            columns[feature.name] = np.clip(drawn, feature.code_low, feature.code_high)
    return Block(None, columns, rows)


def labels(rows: int, seed: int) -> Any:
    return np.random.default_rng(seed + 1).integers(0, len(CLASSES), rows)


def run_for(party: str, name: str) -> Run:
    return Run("0" * 64, name, PARTIES, party)


# -- training ------------------------------------------------------------------------------------------------------------


def train(rows: int, book: Codebook, whole: bool) -> None:
    block = 1 << 16
    owners = {"class": (), "attributes": book.names}
    columns = Columns(book, rows, owners, ("class",))
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
            planter = drive(transfer.planter(run, "attributes", coins), line)
            drive(class_sums.class_holder(run, "attributes", columns.shape("attributes"), blocks(), planter, coins), line)
        else:
            keeper = drive(transfer.keeper(run, "class", coins), line)
            layout = columns.layout("attributes")
            words = (layout.encode(item) for item in blocks())
            drive(class_sums.attribute_holder(run, "class", columns.shape("attributes"), words, keeper, coins), line)
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
        f"peak {found['class']['peak']:.0f} / {found['attributes']['peak']:.0f} MB",
        flush=True,
    )


# -- classification --------------------------------------------------------------------------------------------------------


def classify(batches: list[int], book: Codebook, name: str, repeat: int) -> None:
    rows = 100_000
    owners = {"class": (), "attributes": book.names}
    columns = Columns(book, rows, owners, ("class",))
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
            keeper = drive(transfer.keeper(run, "attributes", coins), line)
        else:
            planter = drive(transfer.planter(run, "class", coins), line)
        for batch in batches:
            block = synthetic(book, batch, 7)
            times, used, sent = [], [], 0
            for number in range(repeat if batch < 1000 else 3):
                query = columns.query(batch)
                run = run_for(party, f"classify {batch} {number}")
                line.send(b"ready")
                line.receive()
                started, begun, before = time.perf_counter(), cpu(), meter.bytes
                if party == "class":
                    local = np.repeat(prior[None], batch, axis=0)
                    made = roles.predict_class_holder(run, query, local, {"attributes": tables}, {"attributes": keeper}, coins)
                else:
                    made = roles.predict_attribute_holder(run, query, None, tables, block.columns, planter, coins)
                drive(made, line)
                line.send(b"done")
                line.receive()
                times.append(time.perf_counter() - started)
                used.append(cpu() - begun)
                sent = meter.bytes - before
            found[batch] = {"wall": statistics.median(times), "cpu": statistics.median(used), "bytes": sent}
        return found

    found = two_processes(work)
    for batch in batches:
        sides = [found[party][batch] for party in PARTIES]
        wall = max(side["wall"] for side in sides)
        print(
            f"classify {name}, {plan.classes} classes, score {plan.bits} bits, batch {batch:,}: "
            f"{batch / wall:,.0f}/s ({1e3 * wall:.1f} ms), CPU {1e6 * sides[0]['cpu'] / batch:.1f} + "
            f"{1e6 * sides[1]['cpu'] / batch:.1f} us each, {sum(side['bytes'] for side in sides) / batch:,.0f} B each",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("train", "classify", "both"), default="both")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 1000, 10_000])
    parser.add_argument("--repeat", type=int, default=20, help="single queries to take the median of")
    parser.add_argument("--code-bits", type=int, default=12)
    parser.add_argument("--sums-only", action="store_true", help="class_sums without shared_model")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rows, chosen.batch, chosen.repeat = [5_000], [1, 100], 3
    if chosen.what in ("train", "both"):
        print(f"50 columns: 45 categorical of 2 values, 5 Gaussian of {chosen.code_bits}-bit codes; {len(CLASSES)} classes")
        for rows in chosen.rows:
            train(rows, codebook(45, 2, 5, chosen.code_bits), not chosen.sums_only)
    if chosen.what == "train":
        return
    classify(chosen.batch, codebook(10, 4, 0, 2), "10 categorical of 4 values", chosen.repeat)
    mixed = f"5 categorical of 4 values + 5 Gaussian of {chosen.code_bits}-bit codes"
    classify(chosen.batch, codebook(5, 4, 5, chosen.code_bits), mixed, chosen.repeat)


if __name__ == "__main__":
    main()
