"""Fuzz every reader of untrusted bytes: `python tests/fuzz` (`make fuzz`).

    python tests/fuzz --inputs 1000000          # all targets, each the same CPU time; exits with 1 if one fails
    python tests/fuzz codebook table            # those whose name contains one of the words
    python tests/fuzz --seed 7 --keep           # other inputs; those that end in a place of their own go into the corpus
    python tests/fuzz --seed 8 --store          # counts, for docs/what-we-tried.md: seeds of one commit are added up

An input that ends in anything but an error of the package, or takes too long, is shown, minimised and kept.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.engine import FoundError, Fuzzer, cpu_seconds, minimised, peak_megabytes, watched
from fuzz.targets import every_target
from support.memory import folder_in_memory
from support.results import store

CHEAPEST = 2e-4  # seconds that an input counts for at least: cheap decoders do not take all of them
BATCHES = 1  # of a target's rounds in the default suite


def main() -> int:
    """Read the options, and fuzz in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--store", action="store_true", help="record the counts for docs/what-we-tried.md")
    options = parser.parse_args()
    return watched(lambda: fuzz(options))


def fuzz(options: argparse.Namespace) -> int:
    """Feed batches to the target that had the least CPU time, until all inputs are used up."""
    for each in (signal.SIGINT, signal.SIGTERM):  # in the background, too
        signal.signal(each, signal.default_int_handler)
    begun, found = cpu_seconds(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(stack.enter_context(Path(os.devnull).open("w"))))  # events of the agent
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=folder_in_memory()))
        every = every_target(Path(folder))
        fuzzers = [Fuzzer(each, options.seed) for each in every if _is_chosen(each.name, options.words)]
        left = active = list(fuzzers)
        total = 0
        while total < options.inputs and left:
            fuzzer = min(left, key=lambda each: max(each.cpu_seconds, each.inputs * CHEAPEST))
            before = fuzzer.inputs
            try:
                fuzzer.run(min(BATCHES * fuzzer.target.rounds, options.inputs - total))
            except KeyboardInterrupt:
                break  # the counts so far
            except FoundError as problem:
                found += 1
                left = [each for each in left if each is not fuzzer]
                print(problem)
                short = minimised(fuzzer.target, fuzzer.input(fuzzer.inputs - 1))
                print(f"minimised: {short[:400]!r}", flush=True)
                fuzzer.fresh = [short]
                fuzzer.keep()
            total += fuzzer.inputs - before
        total = sum(each.inputs for each in active)
        kept = sum(each.keep() for each in active) if options.keep else 0
    for each in fuzzers:
        print(f"{each.inputs:9,d} inputs {each.refused:9,d} refused {each.cpu_seconds:7.1f} CPU s  {each.target.name}")
    seconds = cpu_seconds() - begun
    print(f"{total:,} inputs to {len(fuzzers)} targets in {seconds:.0f} CPU s; {found} findings; {kept} inputs kept")
    if options.store:
        slowest = max(each.slowest for each in fuzzers)
        facts = {"inputs": total, "targets": len(fuzzers), "findings": found}
        facts |= {"slowest_seconds": round(slowest, 2), "peak_megabytes": round(peak_megabytes())}
        store("fuzz", facts, part=f"seed {options.seed}")
    return 1 if found else 0


def _is_chosen(name: str, words: list[str]) -> bool:
    return not words or any(word in name for word in words)


if __name__ == "__main__":
    sys.exit(main())
