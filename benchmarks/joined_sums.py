"""Columns whose identifiers do not line up: shares of all value x class counts over the hidden join, two processes on loopback.

    python benchmarks/joined_sums.py --ids 100000 1000000
    python benchmarks/joined_sums.py --ids 100000 --peers other/bin/python

Half of the identifiers are shared; ten attributes of ten values each, two classes. The two roles run in two processes over a
plain TCP socket on loopback, with the product's messages and encoding and no envelope. CPU seconds are those of each process
(user and system), from digests of identifiers to shares, setup of the transfers included; making the synthetic table is not.
`--peers` measures in the same run openmined.psi's intersection cardinality (one number), in an interpreter that has it, and
Kikuchi's protocol (one distorted intersection per value and class) at a small size, extrapolated. Machine and load are the
reader's: compare ratios.
"""

from __future__ import annotations

import hashlib
import resource
import subprocess
import time
from typing import Any

import numpy as np
from _measured import Options
from columns import Line, Meter, cpu, drive, run_for, two_processes

from blindbayes.codebook import Categorical
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.joined import connect
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import merge, one_hot
from blindbayes.protocols.private_join.sums.roles import JoinedSumsSetup
from blindbayes.protocols.shared_training.class_sums import RowLayout
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import CodedRows

ATTRIBUTES, VALUES, CLASSES = 10, 10, 2


def digests(first: int, count: int) -> list[bytes | None]:
    new, key = hashlib.blake2b, bytes(32)
    return [new(b"customer %09d" % at, digest_size=16, key=key).digest() for at in range(first, first + count)]


def table(count: int) -> tuple[RowLayout, CodedRows, Any]:
    features = [Categorical(f"v{at}", tuple(str(value) for value in range(VALUES)), optional=True) for at in range(ATTRIBUTES)]
    source = np.random.default_rng(7)
    columns = {feature.name: source.integers(-1, VALUES, count) for feature in features}  # one in eleven is missing
    return RowLayout(features, count), CodedRows(None, columns, count), source.integers(0, CLASSES, count)


def ours(count: int, counted: bool = False) -> float:
    layout, block, labels = table(count)
    shape = JoinedSumsSetup(count, count, layout.words + 1, CLASSES, 1, layout.facts(), counted)
    half = count // 2

    def work(party: str, line: Line, meter: Meter) -> dict[str, Any]:
        coins, run = Coins.system(), run_for(party, f"join {count}")
        started, begun = time.perf_counter(), cpu()
        if party == "class":
            entries = merge(digests(half, count), one_hot(labels, CLASSES), "reject", 1)
            links = drive(connect(run, "attributes", coins), line)
            shares = drive(joined_sums.label_holder(run, "attributes", shape, entries, links.both, coins), line)
        else:
            rows = np.concatenate([layout.encode(block), np.ones((count, 1), dtype=np.uint64)], axis=1)
            entries = merge(digests(0, count), rows, "reject", 1)
            links = drive(connect(run, "class", coins), line)
            shares = drive(joined_sums.row_holder(run, "class", shape, entries, links.both, coins), line)
        return {
            "cpu": cpu() - begun,
            "wall": time.perf_counter() - started,
            "bytes": meter.bytes,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "share": shares.sums,
        }

    found = two_processes(work)
    rows = np.concatenate([layout.encode(block), np.ones((count, 1), dtype=np.uint64)], axis=1)[half:]
    wanted = np.stack([rows[labels[: count - half] == label].sum(axis=0, dtype=np.uint64) for label in range(CLASSES)])
    exact = np.array_equal(found["class"]["share"] + found["attributes"]["share"], wanted)
    sides = [found["attributes"], found["class"]]
    total = sum(side["cpu"] for side in sides)
    print(
        f"joined_sums {count:,} + {count:,} identifiers, {ATTRIBUTES * VALUES} values, {CLASSES} classes: exact {exact}, "
        f"CPU {sides[0]['cpu']:.2f} + {sides[1]['cpu']:.2f} = {total:.2f} s, wall {max(side['wall'] for side in sides):.2f} s, "
        f"{sum(side['bytes'] for side in sides) / 1e6:.0f} MB, peak {sides[0]['peak']:.0f} / {sides[1]['peak']:.0f} MB",
        flush=True,
    )
    if not exact:
        raise SystemExit("the shares do not add up to the statistics of the join")
    return total


def matched(count: int) -> None:
    """The matching itself, to both."""
    half, sizes = count // 2, matching.MatchingSetup(count, count)

    def work(party: str, line: Line, meter: Meter) -> dict[str, Any]:
        coins, run = Coins.system(), run_for(party, f"matching {count}")
        begun = cpu()
        own = digests(0 if party == "attributes" else half, count)
        items = np.frombuffer(b"".join(digest for digest in own if digest is not None), dtype=np.uint64).reshape(-1, 2)
        if party == "class":
            ot_receiver = drive(transfer.ot_receiver(run, "attributes", coins), line)
            found = drive(matching.owner(run, "attributes", sizes, items, ot_receiver, coins), line)
        else:
            ot_sender = drive(transfer.ot_sender(run, "class", coins), line)
            found = drive(matching.asker(run, "class", sizes, items, ot_sender, coins), line)
        return {"cpu": cpu() - begun, "bytes": meter.bytes, "found": found}

    found = two_processes(work)
    exact = found["attributes"]["found"].tolist() == list(range(half, count)) and len(found["class"]["found"]) == count - half
    sides = [found["attributes"], found["class"]]
    print(
        f"matching {count:,} + {count:,} identifiers: exact {exact}, CPU {sides[0]['cpu']:.2f} + {sides[1]['cpu']:.2f} s, "
        f"{1e6 * sum(side['cpu'] for side in sides) / (2 * count):.1f} us per identifier, "
        f"{sum(side['bytes'] for side in sides) / 1e6:.0f} MB",
        flush=True,
    )


OPENMINED = """
import sys, time
import private_set_intersection.python as psi
count = int(sys.argv[1])
server_items = [f"customer {at:09d}" for at in range(count)]
client_items = [f"customer {at:09d}" for at in range(count // 2, count // 2 + count)]
begun = time.process_time()
client, server = psi.client.CreateWithNewKey(False), psi.server.CreateWithNewKey(False)
setup = server.CreateSetupMessage(1e-12, len(client_items), server_items, psi.DataStructure.GCS)
answer = server.ProcessRequest(client.CreateRequest(client_items))
print(client.GetIntersectionSize(setup, answer), time.process_time() - begun)
"""


def openmined(count: int, python: str, own: float) -> None:
    """In an interpreter of its own: openmined.psi pins an older protobuf than the project needs."""
    made = subprocess.run([python, "-c", OPENMINED, str(count)], capture_output=True, text=True)
    if made.returncode:
        print(f"{python} has no openmined.psi: pip install openmined.psi there")
        return
    size, used = made.stdout.split()
    print(
        f"openmined.psi, cardinality alone, {count:,} + {count:,}: {int(size):,}, CPU {float(used):.2f} s, "
        f"{float(used) / own:.1f} times joined_sums",
        flush=True,
    )


def kikuchi(count: int) -> None:
    from blindbayes_papers.kikuchi2011.measure import per_identifier

    each = per_identifier()
    # Alice's identifier stands in a set per attribute, which meets every class; Bob's class set meets every value.
    whole = each * count * (ATTRIBUTES * CLASSES + ATTRIBUTES * VALUES)
    print(
        f"Kikuchi's protocol on ristretto255, extrapolated from {1e6 * each:.0f} us per identifier and run: {whole:,.0f} CPU s"
    )


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--ids", type=int, nargs="+", default=[100_000])
    parser.add_argument("--counted", action="store_true", help="with the matches counted by both, as min_overlap has it")
    parser.add_argument("--matching", action="store_true", help="the matching that is revealed, too")
    parser.add_argument("--peers", metavar="PYTHON", help="an interpreter that has openmined.psi")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.ids = [4096]
    for count in chosen.ids:
        own = ours(count, chosen.counted)
        if chosen.matching:
            matched(count)
        if chosen.peers:
            openmined(count, chosen.peers, own)
            kikuchi(count)


if __name__ == "__main__":
    main()
