"""Three agents as processes that run back to back, what they hold meanwhile, and whether it stays flat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from blindbayes.study.file import Deadlines, Privacy
from blindbayes.testing.loopback import Loopback, open_policy
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
LEAKS = Path(__file__).with_name("leaks")
HISTORY = ("outcome.json", "evidence", "study")
KINDS = ("memory", "handles", "threads", "files")
MIN_RUNS = 60  # before that, allocators and caches still fill
WARM = 0.3  # of the samples: allocators, caches and libraries settle
RUN_KB = 150.0  # that one run may add to the memory of an agent: its entries in the log and the ledger
SLACK_KB = 8_000.0


@dataclass(frozen=True)
class Sample:
    """What one agent held after `runs` runs."""

    runs: int
    memory_kb: int
    handles: int
    threads: int
    leftovers: int  # files in its folder that are no history: drafts, keys, journals


def sample(site_folder: Path, process: int, runs: int) -> Sample:
    status = Path(f"/proc/{process}/status").read_text()
    facts = {
        name: value.split()[0] for name, _, value in (line.partition(":") for line in status.splitlines()) if value.split()
    }
    handles = sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())
    return Sample(runs, int(facts["VmRSS"]), handles, int(facts["Threads"]), leftovers(site_folder))


def leftovers(folder: Path) -> int:
    """Count the files besides the history of ended runs: releases, outcomes, and totals that later runs go on from."""
    found = 0
    for path in folder.rglob("*"):
        inner = path.relative_to(folder)
        is_history = inner.parts[0] in ("releases", "increments") or (inner.parts[0] == "runs" and path.name in HISTORY)
        found += path.is_file() and not is_history
    return found


def growth(samples: Sequence[Sample]) -> list[str]:
    """What did not stay flat after the warm-up, in a sentence each."""
    settled = samples[int(len(samples) * WARM) :]
    half = len(settled) // 2
    early, late = settled[:half], settled[half:]

    def middle(part: Sequence[Sample], name: str) -> float:
        values = sorted(getattr(each, name) for each in part)
        return float(values[len(values) // 2])

    runs = middle(late, "runs") - middle(early, "runs")
    found = []
    memory = middle(late, "memory_kb") - middle(early, "memory_kb")
    if memory > SLACK_KB + RUN_KB * runs:
        found.append(f"memory grew by {memory / 1024:.0f} MB in {runs:.0f} runs")
    for name in ("handles", "threads", "leftovers"):
        more = middle(late, name) - middle(early, name)
        if more > 2 + 0.02 * runs:
            found.append(f"{name} grew by {more:.0f} in {runs:.0f} runs")
    return found


def soak(folder: Path, seconds: float, *, leak: str = "") -> Iterator[dict[str, Sample]]:
    """Run for this long, and at least `MIN_RUNS` times; after each run yield what each agent holds. `leak` plants one."""
    folder.mkdir(parents=True)
    net = Loopback(folder / "sites", make_rows(folder, NAMES), policy=open_policy(max_runs_per_day=10**6))
    environment = {"PYTHONPATH": str(LEAKS), "BLINDBAYES_LEAK": leak} if leak else {}
    study = net.make_study(BOOK, privacy=Privacy(epsilon=1e-4), deadlines=Deadlines(step=120, join=120, run=600))
    net.approve(study, runs=10**6)
    with contextlib.ExitStack() as stack:
        stack.callback(net.stop)
        for site in net.sites.values():
            site.launch(environment=environment)
        for site in net.sites.values():
            site.wait_ready()
        until, runs = time.monotonic() + seconds, 0
        while time.monotonic() < until or runs < MIN_RUNS:
            ended = net.run(study)
            assert {each["state"] for each in ended.values()} == {"done"}, ended
            runs += 1
            found = {}
            for name, site in net.sites.items():
                assert site.process is not None
                found[name] = sample(site.home.folder, site.process.pid, runs)
            yield found
