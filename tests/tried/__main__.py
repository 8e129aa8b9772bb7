"""Write docs/what-we-tried.md from the stored results: `python tests/tried` (`make tried`). `--attacks` runs those first."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.results import ROOT, STORED, store
from tried.page import rendered


def attack() -> None:
    """Run the attacks, and store how many passed."""
    command = [sys.executable, "-m", "pytest", "tests/attacks", "-p", "no:cacheprovider", "-n", "2", "-o", "addopts="]
    done = subprocess.run(
        [*command, "-m", "not slow", "--import-mode=importlib"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout[-2000:])
    counts = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|error)", done.stdout.splitlines()[-1])}
    store("attacks", {"passed": counts.get("passed", 0), "failed": counts.get("failed", 0) + counts.get("error", 0)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", action="store_true")
    if parser.parse_args().attacks:
        attack()
    page = rendered(json.loads(STORED.read_text(encoding="utf-8")))
    (ROOT / "docs" / "what-we-tried.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
