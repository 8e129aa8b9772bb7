"""Long forms of the whole-system runs, with counts.

    python tests/system --lists 200             # lists of operations in one process, by a virtual clock
    python tests/system --kills 1000            # kill -9 of real processes
    python tests/system --lists 200 --store     # record the counts for docs/what-we-tried.md: seeds are added up

A list that fails is made smaller and written to tests/system/cases.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest

from blindbayes.testing.loopback import Loopback
from support.forked import ForkedSite
from support.memory import folder_in_memory
from support.results import store
from system.kills import Killer
from system.world import Operation, World, drawn, smaller

CASES = Path(__file__).with_name("cases")


def problem_of(seed: int, operations: list[Operation]) -> tuple[str, int, int]:
    """What went wrong, how many runs began, and how many of them gave a model."""
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder) / "world", seed, patch)
        try:
            world.live(operations)
        except Exception as problem:
            return f"{type(problem).__name__}: {problem}", len(world.runs), world.done
    return "", len(world.runs), world.done


def live(lists: int, first: int, length: int) -> Counter[str]:
    counts: Counter[str] = Counter(lists=0, operations=0, runs=0, results=0, failures=0)
    for seed in range(first, first + lists):
        operations = drawn(random.Random(seed), length)
        problem, runs, results = problem_of(seed, operations)
        counts.update(lists=1, operations=len(operations), runs=runs, results=results, failures=bool(problem))
        if problem:
            kind = problem.split(":")[0]
            short = smaller(operations, lambda shorter, seed=seed, kind=kind: problem_of(seed, shorter)[0].startswith(kind))
            case = {"seed": seed, "found": problem, "operations": short}
            (CASES / f"seed-{seed}.json").write_text(json.dumps(case) + "\n", encoding="utf-8")
            print(f"list {seed}: {problem}\n  {json.dumps(short)}", flush=True)
    return counts


def kill(kills: int, seed: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder) / "net", seed)
        with killer.net:
            try:
                while killer.counts["kills"] < kills:
                    killer.cycle(kills - killer.counts["kills"])
                    if killer.counts["cycles"] % 20 == 0:
                        print(dict(killer.counts), flush=True)
                killer.clean()
            except AssertionError as problem:
                killer.counts["failures"] += 1
                print(f"seed {seed}: {problem}", flush=True)
    return killer.counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", type=int, default=0)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--store", action="store_true", help="record the counts for docs/what-we-tried.md")
    options = parser.parse_args()
    Loopback.site_type = ForkedSite
    with contextlib.redirect_stderr(Path(os.devnull).open("w")):  # events of the agents
        found = {"system": live(options.lists, options.seed, options.length)} if options.lists else {}
        if options.kills:
            found["kills"] = kill(options.kills, options.seed)
    for name, counts in found.items():
        print(name, dict(counts))
        if options.store:
            store(name, {"failures": 0, **counts}, part=f"seed {options.seed}")
    return 1 if any(counts["failures"] for counts in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
