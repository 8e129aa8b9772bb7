"""Decryption against the size of the plaintext, Joye-Libert beside Shi et al.'s discrete logarithm; the cost of a whole round.

    python benchmarks/oblivious_sum.py            # 3,072-bit modulus, totals up to 2^36 by logarithm; four CPU minutes
    python benchmarks/oblivious_sum.py --quick    # up to 2^20, half a minute

Part 1: one cell, the worst total of each range. Joye-Libert opens 1 + N x with a division, whatever x is; the logarithm walks
baby steps and giant steps, so its time grows with the square root of the range. Its table of baby steps is built anew for
each range and counted. Part 2: the whole protocol in memory on vectors of counts, by scheme, with and without a quorum.
CPU time of one core. Writes oblivious_sum.csv into --out.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
from _measured import Options

from blindbayes.crypto.coins import Coins
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.registry import SumSetup, simulate_roles
from blindbayes_papers.huai2015.oblivious_sum import PROTOCOL
from blindbayes_papers.huai2015.primitives import ristretto_sum
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert, deal_modulus
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum

LABEL = b"benchmark"
REPEATS = 5


def milliseconds(work: object, repeats: int = REPEATS) -> float:
    """Least CPU time of several."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.process_time()
        work()  # type: ignore[operator]
        best = min(best, time.process_time() - begun)
    return 1e3 * best


def decryption(scheme: JoyeLibert | RistrettoSum, total: int) -> float:
    """The miner's whole work for one cell: its mask, the product of three ciphertexts, and opening."""
    coins = Coins.system()
    keys = [scheme.random_key(coins) for _ in range(3)]
    parts = [total - 2 * (total // 3), total // 3, total // 3]
    sent = [scheme.encrypt([part], key, LABEL) for part, key in zip(parts, keys, strict=True)]

    def decrypt() -> None:
        ristretto_sum._baby_steps.cache_clear()
        opened = scheme.open(scheme.multiply([*sent, scheme.masks(-scheme.total(keys), LABEL, 1)]))
        if opened != [total]:
            raise SystemExit("the sum is wrong")

    return milliseconds(decrypt, 2 if total > 1 << 28 else REPEATS)


def ranges(quick: bool, modulus: int) -> list[dict[str, object]]:
    rows = []
    ours = JoyeLibert(modulus)
    for bits in (4, 8, 12, 16, 20, 24, 28, 32, 36, 64, 256, 1024, 3000):
        row: dict[str, object] = {"bits_of_total": bits, "joye_libert_ms": round(decryption(ours, (1 << bits) - 1), 2)}
        if bits <= (20 if quick else 36):
            row["logarithm_ms"] = round(decryption(RistrettoSum(1 << bits), (1 << bits) - 1), 2)
        rows.append(row)
        print(row)
    return rows


def rounds(quick: bool, modulus: int) -> list[dict[str, object]]:
    rows = []
    forms: list[tuple[str, dict[str, object]]] = [
        ("joye_libert", {"modulus": hex(modulus)}),
        ("ristretto", {"scheme": "ristretto"}),
    ]
    for n, words in ((5, 88), (5, 250)) if quick else ((5, 88), (5, 250), (20, 250), (20, 2510)):
        names = tuple(f"site{at}" for at in range(n))
        vectors = {name: (np.arange(words, dtype=np.uint64) * 7 + at) % 1000 for at, name in enumerate(names)}
        for form, options in forms:
            for quorum in (None, n - 1):
                setting = SumSetup(names, words, quorum, bound=1 << 20, options=options)
                coins = Coins.system()
                roles = simulate_roles(PROTOCOL, local_runs(PROTOCOL.roster(setting), coins=coins), setting, vectors, coins)
                outcome = run_in_memory(roles)
                if not np.array_equal(outcome.outputs["miner"].words, sum(vectors.values())):
                    raise SystemExit("the sum is wrong")
                parties = outcome.cost.parties
                row: dict[str, object] = {
                    "scheme": form,
                    "contributors": n,
                    "counts": words,
                    "quorum": quorum or n,
                    "contributor_ms": round(1e3 * sum(parties[name].seconds for name in names) / n, 1),
                    "miner_ms": round(1e3 * parties["miner"].seconds, 1),
                    "bytes_up": parties[names[0]].sent_bytes,
                    "rounds": outcome.cost.rounds,
                }
                rows.append(row)
                print(row)
    return rows


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("."))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    modulus = deal_modulus(3072, Coins.system())
    made = [*ranges(given.quick, modulus), *rounds(given.quick, modulus)]
    with (given.out / "oblivious_sum.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in made for key in row)))
        writer.writeheader()
        writer.writerows(made)
    opened = [float(str(row["joye_libert_ms"])) for row in made if "joye_libert_ms" in row]
    print(f"Joye-Libert, 2^4 to 2^3000: {min(opened):.1f} to {max(opened):.1f} ms, ratio {max(opened) / min(opened):.2f}")


if __name__ == "__main__":
    main()
