"""Columns split between two parties, beside SecretFlow SPU in its safe two-party mode (CHEETAH): one machine, one run.

    python3.11 -m venv spu-env && spu-env/bin/pip install "spu==0.9.5"      # an environment of its own: it pins numpy and jax
    BLINDBAYES_SPU_PYTHON=spu-env/bin/python python benchmarks/peers/spu_columns.py

Training: 50 columns (45 of two values, 5 numbers of 12-bit codes) by 3 classes; classification: 10 categorical attributes of
4 values, and 5 with 5 Gaussian ones. Both run as two processes on loopback; CPU seconds are those of both together, from
inputs in memory to shares. What a process does once is done before, on either side: libraries, SPU's compiled programs, our
tables of the logarithm; the set-up of transfers and keys counts in training, and in classification, of which the middle one of
five counts, on neither side. SPU's work is cast as it suits SPU best (`spu_party.py`): one product of whole numbers in
training, one product and an argmax per batch, no logarithm per instance (our own way of writing the score); with Gaussian
attributes also as its own GaussianNB writes it, with squared distances to the shared means. Its class stays in shares, ours
is opened. SPU's default two-party mode (SEMI2K) is faster and, by its own documentation, not safe between two parties; it is
not measured.

Held against: at least 3 times SPU's throughput, and 5 times less CPU in training. Without that environment the program says so
and ends.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import columns as ours  # noqa: E402
from _measured import Options  # noqa: E402

KINDS = ((10, 0), (5, 5))
CODE_BITS = 12


def find_python() -> str | None:
    """The interpreter of SPU's environment, if it is there."""
    path = shutil.which(os.environ.get("BLINDBAYES_SPU_PYTHON", ""))
    if path is None:
        return None
    found = subprocess.run([path, "-c", "import spu"], capture_output=True, check=False)
    return path if found.returncode == 0 else None


def free_ports() -> list[str]:
    """Two ports on loopback that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def theirs(python: str, rows: list[int], batches: list[int], repeat: int, kinds: Any = KINDS) -> list[dict[str, Any]]:
    """Both parties' figures; `kinds` of instances, which stand in that order."""
    task = {
        "classes": len(ours.CLASSES),
        "rows": rows,
        "indicators": 45,
        "numbers": 5,
        "size": (1 << (CODE_BITS - 1)) - 1,
        "values": 4,
        "kinds": kinds,
        "batches": batches,
        "repeat": repeat,
    }
    ports = free_ports()
    command = [python, str(HERE / "spu_party.py")]
    parties = [
        subprocess.Popen(
            [*command, str(rank), *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for rank in range(2)
    ]
    for party in parties:
        if party.stdin is not None:
            party.stdin.write(json.dumps(task))
            party.stdin.close()
            party.stdin = None
    answers = [party.communicate(timeout=3600)[0] for party in parties]
    if any(party.returncode for party in parties):
        raise SystemExit("SPU ended with an error; run spu_party.py by hand to see it")
    return [json.loads(answer[answer.index('{"train"') :]) for answer in answers]


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 10_000])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    python = find_python()
    if python is None:
        print("skipped: set BLINDBAYES_SPU_PYTHON to the python of an environment that has spu (see the top of this file)")
        return
    if chosen.quick:
        chosen.rows, chosen.batch, chosen.repeat = [2000], [1, 100], 3
    peer = theirs(python, chosen.rows, chosen.batch, chosen.repeat)
    for rows in chosen.rows:
        sides = [side["train"][str(rows)] for side in peer]
        cpu = sum(side["cpu"] for side in sides)
        ours.warm(ours.codebook(45, 2, 5, CODE_BITS))
        own = sum(side["cpu"] for side in ours.train(rows, ours.codebook(45, 2, 5, CODE_BITS), True).values())
        print(
            f"SPU CHEETAH, training {rows:,} rows: CPU {sides[0]['cpu']:.2f} + {sides[1]['cpu']:.2f} s "
            f"(sums alone {sum(side['sums_cpu'] for side in sides):.2f}), wall {max(side['wall'] for side in sides):.2f} s. "
            f"Ours {own:.2f} CPU s: {cpu / own:.1f} times less (target 5)",
            flush=True,
        )
    for at, (nominal, gaussian) in enumerate(KINDS):
        name = f"{nominal} categorical of 4 values + {gaussian} Gaussian"
        book = ours.codebook(nominal, 4, gaussian, CODE_BITS if gaussian else 2)
        mine = ours.classify(chosen.batch, book, name, chosen.repeat)
        for batch in chosen.batch:
            wall = max(side["classify"][at][str(batch)]["wall"] for side in peer)
            cpu = sum(side["classify"][at][str(batch)]["cpu"] for side in peer)
            print(
                f"SPU CHEETAH, {name}, batch {batch:,}: {batch / wall:,.0f}/s ({1e3 * wall:.1f} ms), "
                f"CPU {1e6 * cpu / batch:,.1f} us each. Ours {wall / mine[batch]['wall']:.1f} times the throughput (target 3), "
                f"{cpu / mine[batch]['cpu']:.1f} times less CPU",
                flush=True,
            )
            if gaussian:
                wall = max(side["classify"][at][str(batch)]["written_wall"] for side in peer)
                cpu = sum(side["classify"][at][str(batch)]["written_cpu"] for side in peer)
                print(
                    f"SPU, the same as its own GaussianNB writes it: {batch / wall:,.0f}/s, CPU {1e6 * cpu / batch:,.1f} us "
                    f"each. Ours {wall / mine[batch]['wall']:.1f} times the throughput, {cpu / mine[batch]['cpu']:.1f} times "
                    "less CPU",
                    flush=True,
                )


if __name__ == "__main__":
    main()
