"""Soak: `python tests/soak --minutes 30` (`make soak`). Exits with 1 if memory, handles, threads or leftover files grow.

python tests/soak --minutes 3 --plant handles     # must exit with 1: the agents leak
python tests/soak --store                         # record the figures for docs/what-we-tried.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from soak.agents import KINDS, NAMES, growth, soak
from support.results import store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--plant", choices=KINDS, default="")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        taken = []
        for each in soak(Path(folder) / "net", 60 * options.minutes, leak=options.plant):
            taken.append(each)
            if len(taken) % 25 == 1:
                print({name: each[name] for name in NAMES}, flush=True)
    problems = [f"{name}: {what}" for name in NAMES for what in growth([each[name] for each in taken])]
    first, last = taken[int(len(taken) * 0.3)], taken[-1]
    for name in NAMES:
        print(f"{name}: after the warm-up {first[name]}, at the end {last[name]}")
    print(*problems or [f"flat: {len(taken)} runs in {options.minutes:g} minutes"], sep="\n")
    if options.store:
        memory = max(last[name].memory_kb - first[name].memory_kb for name in NAMES)
        store(
            "soak", {"minutes": options.minutes, "runs": len(taken), "grown": len(problems), "memory_mb": round(memory / 1024)}
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
