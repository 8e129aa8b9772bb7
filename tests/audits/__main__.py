"""`python tests/audits [--epsilon 1] [--draws N]`: the whole audit. Exit code 4: a claim is refuted, or the audit was blind."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from audits.everything import audit
from blindbayes.cli.commands.audit import show
from blindbayes.crypto.coins import Coins
from blindbayes_papers.mechanism_audit import DRAWS
from support.results import store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", default="1", help="the claim under test")
    parser.add_argument("--delta", type=float, default=1e-6, help="its delta, for Gaussian noise")
    parser.add_argument("--draws", type=int, default=DRAWS, help="samples per table")
    parser.add_argument("--store", action="store_true", help="record the verdict for docs/what-we-tried.md")
    chosen = parser.parse_args()
    coins = Coins.seeded(Coins.fresh_seed())
    report = audit(coins, epsilon=chosen.epsilon, delta=chosen.delta, draws=chosen.draws)
    show(report)
    if chosen.store:
        store("audits", {"verdict": report.verdict, "epsilon": chosen.epsilon})
    sys.exit(0 if report.verdict == "not refuted" else 4)


if __name__ == "__main__":
    main()
