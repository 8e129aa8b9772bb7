"""Turn the kit on a tree: `PYTHONPATH=that/src python tests/adversary [--full] [--json]`. Exit code 1 if anything is found."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import blindbayes
from adversary import cases


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="larger rosters and more orders too")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = list(cases.everything(full=chosen.full))
    if chosen.json:
        json.dump([[each.arena, "+".join(each.coalition), each.deviation, each.words] for each in found], sys.stdout)
        return bool(found)
    sys.stdout.write(f"{Path(blindbayes.__file__).parent}\n")
    first = {(each.arena, each.words): each for each in reversed(found)}
    for key, times in Counter((each.arena, each.words) for each in found).most_common():
        sys.stdout.write(f"{times:5d} times  {first[key]}\n")
    sys.stdout.write(f"{len(found)} findings\n")
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
