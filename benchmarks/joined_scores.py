"""Scoring everybody one party knows over a join that nobody sees, two processes on loopback.

    python benchmarks/joined_scores.py --ids 10000 100000
    python benchmarks/joined_scores.py --ids 100000 --scope shared

Half of the identifiers are shared. The class holder scores; the other party has ten attributes of ten values each, two classes,
in tables that look like a trained model's shares. The two roles run in two processes over a plain TCP socket on loopback, with
the product's messages and encoding and no envelope. CPU seconds are those of each process (user and system), from digests of
identifiers to classes, setup of the transfers included; making the synthetic table is not. Every class is compared with the
plain one. Machine and load are the reader's: compare ratios.
"""

from __future__ import annotations

import hashlib
import resource
import time
from typing import Any

import numpy as np
from _measured import Options
from columns import Line, Meter, cpu, drive, run_for, two_processes

from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.private_join.scores import roles as joined_scores
from blindbayes.protocols.private_join.scores.roles import HelperInput, JoinedScoresSetup, ScorerInput

ATTRIBUTES, VALUES = 10, 10


def items(first: int, count: int) -> Any:
    new, key = hashlib.blake2b, bytes(32)
    made = [new(b"customer %09d" % at, digest_size=16, key=key).digest() for at in range(first, first + count)]
    return np.frombuffer(b"".join(made), dtype="<u8").astype(np.uint64).reshape(-1, 2)


def measure(count: int, scope: str) -> None:
    features = tuple(Categorical(f"v{at}", tuple(str(value) for value in range(VALUES))) for at in range(ATTRIBUTES))
    names = tuple(feature.name for feature in features)
    book = Codebook("y", ("no", "yes"), features)
    join = JoinSetup(book, {"class": (), "attributes": names}, "class", {"class": count, "attributes": count}, False, "reject")
    hidden, half, source = JoinedScoresSetup(join, "class", scope), count // 2, np.random.default_rng(7)
    plan = join.columns.plan
    columns = {name: source.integers(-1, VALUES, count) for name in names}  # one in eleven is missing

    def fixed(values: Any) -> Any:
        return lm.cut(lm.from_floats(np.rint(values * 2.0**plan.fraction), plan.limbs), plan.bits)

    clear = {name: np.concatenate([[0.0], source.normal(0, 1, VALUES)]) for name in names}
    prior = source.normal(0, 1, count)
    mine, theirs = {}, {}
    for name in names:
        whole = fixed(clear[name])[None, :, None]
        mask = lm.cut(source.integers(0, 2**63, whole.shape, dtype=np.uint64), plan.bits)
        mask[:, 0] = 0
        mine[name], theirs[name] = mask, lm.cut(lm.subtract(whole, mask), plan.bits)

    def work(party: str, line: Line, meter: Meter) -> dict[str, Any]:
        coins, run = Coins.system(), run_for(party, f"scores {count}")
        started, begun = time.perf_counter(), cpu()
        links = drive(joined_scores.connect(run, hidden, coins), line)
        nothing = np.zeros((1, plan.limbs), dtype=np.uint64)
        if party == "class":
            asked = ScorerInput(items(half, count), fixed(prior)[:, None], {}, {"attributes": mine}, nothing)
            found = drive(joined_scores.scorer(run, hidden, asked, links, coins), line)
        else:
            helped = HelperInput(items(0, count), columns, nothing, theirs, {})
            found = drive(joined_scores.helper(run, hidden, helped, links, coins), line)
        return {
            "cpu": cpu() - begun,
            "wall": time.perf_counter() - started,
            "bytes": meter.bytes,
            "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "found": found,
        }

    found = two_processes(work)
    shared = np.arange(count) < count - half  # the first identifiers of the scorer are the last of the helper
    scores = prior.copy()
    scores[shared] += sum(clear[name][codes + 1][half:] for name, codes in columns.items())
    wanted = (scores > 0).astype(np.int64)
    if scope == "shared":
        wanted[~shared] = joined_scores.NONE
    near = np.abs(scores) < plan.tie_bound
    exact = np.array_equal(found["class"]["found"][~near], wanted[~near])
    sides = [found["class"], found["attributes"]]
    total = sum(side["cpu"] for side in sides)
    print(
        f"joined_scores ({scope}) {count:,} + {count:,} identifiers, {ATTRIBUTES * VALUES} values, 2 classes: exact {exact}, "
        f"CPU {sides[0]['cpu']:.2f} + {sides[1]['cpu']:.2f} = {total:.2f} s ({1e6 * total / count:.0f} us per identifier), "
        f"wall {max(side['wall'] for side in sides):.2f} s, {sum(side['bytes'] for side in sides) / 1e6:.0f} MB, "
        f"peak {sides[0]['peak']:.0f} / {sides[1]['peak']:.0f} MB",
        flush=True,
    )
    if not exact:
        raise SystemExit("the classes are not those of the plain model")


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--ids", type=int, nargs="+", default=[10_000])
    parser.add_argument("--scope", choices=["everybody", "shared"], default="everybody")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    chosen = parser.parse_args()
    for count in [4096] if chosen.quick else chosen.ids:
        measure(count, chosen.scope)


if __name__ == "__main__":
    main()
