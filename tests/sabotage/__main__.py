"""Change one privacy-critical line at a time and run the tests that must notice: `python tests/sabotage` (`make sabotage`).

    python tests/sabotage                      # all of them; exits with 1 if one survives
    python tests/sabotage ledger samplers      # those whose name or file contains one of the words
    python tests/sabotage --part 3/10          # a tenth

Each entry of sabotages.toml replaces one line of one file of src/blindbayes. The package is copied, the copy is changed, and
the named tests run against it in a process of their own. They must fail; an error while they are collected is no answer.
"""

from __future__ import annotations

import argparse
import compileall
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runner import PACKAGE, Sabotage, load, outcome

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.results import store


def main() -> int:
    """Run the chosen sabotages and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--part", default="1/1", help="K/N: every Nth one, beginning with the Kth")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--store", action="store_true", help="record the counts for docs/what-we-tried.md")
    options = parser.parse_args()
    first, step = map(int, options.part.split("/"))
    chosen = [each for each in load() if not options.words or any(word in each.name + each.file for word in options.words)]
    compileall.compile_dir(PACKAGE, quiet=1)  # every copy takes the bytecode with it
    survivors = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        chosen = chosen[first - 1 :: step]
        for sabotage, (verdict, seconds) in zip(chosen, pool.map(_timed, chosen), strict=True):
            survivors += verdict != "killed"
            print(f"{verdict:9s} {seconds:5.1f} s  {sabotage.name}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} sabotages were noticed")
    if options.store:
        part = "" if options.words or step == 1 else options.part
        store("sabotages", {"noticed": len(chosen) - survivors, "tried": len(chosen)}, part=part)
    return 1 if survivors else 0


def _timed(sabotage: Sabotage) -> tuple[str, float]:
    verdict, seconds, _ = outcome(sabotage)
    return verdict, seconds


if __name__ == "__main__":
    sys.exit(main())
