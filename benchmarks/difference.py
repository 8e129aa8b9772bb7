"""How long the difference rule takes, by sites and earlier sums.

    python benchmarks/difference.py             up to 200 sites and 100 different earlier sums
    python benchmarks/difference.py --quick     small ones

Earlier sums are random sets of two thirds of the sites, the worst case: as many equations as sums, no two sites alike. A quorum
of all is decided exactly in every case; with a smaller one survivor sets are searched by classes of sites that were always in
the same sums, and more than 2^25 steps are refused with the advice to ask for a quorum of all.
"""

from __future__ import annotations

import time

from _measured import Options

from blindbayes.primitives.coins import Coins
from blindbayes.site.determined import Question, TooManySums, find_determined


def question(sites: int, sums: int, coins: Coins, *, quorum_size: int | None, colluders: int, alike: int = 1) -> Question:
    """Sums over random sets; `alike` sites always come together."""
    names = [f"{number:064x}" for number in range(sites)]
    earlier = []
    for _ in range(sums):
        chosen = [coins.below(3) > 0 for _ in range(0, sites, alike)]
        earlier.append(frozenset(name for at, name in enumerate(names) if chosen[at // alike]))
    return Question(earlier, {name: frozenset([name]) for name in names}, {}, quorum_size or sites, colluders)


def main() -> None:
    """Print one line per case."""
    parser = Options()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    coins = Coins.seeded(bytes(32))
    cases: list[tuple[int, int, int | None, int, int]] = [(10, 5, None, 2, 1), (20, 10, None, 1, 1), (20, 3, 14, 1, 2)]
    if not quick:
        cases += [
            (50, 25, None, 1, 1),
            (100, 50, None, 1, 1),
            (200, 100, None, 1, 1),
            (60, 30, None, 2, 1),
            (100, 50, None, 2, 1),
        ]
        cases += [(200, 3, 140, 1, 20), (200, 4, 140, 1, 20), (200, 100, 140, 1, 1)]
    print("sites  sums  quorum  colluders    seconds  answer")
    for sites, sums, quorum_size, colluders, alike in cases:
        asked = question(sites, sums, coins, quorum_size=quorum_size, colluders=colluders, alike=alike)
        begun = time.perf_counter()
        try:
            answer = "refused" if find_determined(asked) is not None else "allowed"
        except TooManySums:
            answer = "too many sets: a quorum of all is asked for"
        seconds = time.perf_counter() - begun
        print(f"{sites:5}  {sums:4}  {quorum_size or 'all':>6}  {colluders:9}  {seconds:9.3f}  {answer}")


if __name__ == "__main__":
    main()
