"""A masked sum between many real processes on this machine: time, bytes and memory of a site and of the server's site.

    python benchmarks/many_sites.py                 # 200 sites, 10 of them killed before their vector
    python benchmarks/many_sites.py --sites 50
    python benchmarks/many_sites.py --most 600      # gives up after ten minutes, and says who was missing
    python benchmarks/many_sites.py --quick         # 8 sites

Every site is a process with its own folder, keys, table, journal and agent, over gRPC with mutual TLS. One more hosts the
server and listens; the sites only dial, as behind firewalls. The processes are forked from one that has imported everything, so
that the memory that only a site has (private pages) is told apart from libraries: an agent started by itself has 170 MB.
How far they are is told on standard error.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import resource
import selectors
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measured import Options

from blindbayes import RowStudy
from blindbayes.agent.agent import Agent
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.runs import role_runner
from blindbayes.agent.serve import make_courier
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.errors import BlindbayesError
from blindbayes.net.identity import Identity, pin
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.study.roster import Party
from blindbayes.testing.loopback import free_port, open_policy

BOOK = Codebook("class", ("ill", "well"), (Categorical("colour", ("red", "blue", "green")), Numeric("age", 0, 120)))
HUB = "hub"
_PR_SET_PDEATHSIG = 1


def make_sites(folder: Path, number: int) -> dict[str, tuple[SiteFolder, Identity]]:
    """Folders that know each other."""
    address = f"127.0.0.1:{free_port()}"
    found = {}
    for name in (HUB, *(f"site-{index:03}" for index in range(number))):
        rows = folder / f"{name}.csv"
        lines = [
            f"{BOOK.classes[row % 2]},{('red', 'blue', 'green')[row % 3]},{20 + (row * 7 + len(name)) % 80}"
            for row in range(30)
        ]
        rows.write_text("\n".join(["class,colour,age", *lines]) + "\n")
        hub = name == HUB
        config = SiteConfig(listen=address if hub else None, rows=None if hub else Rows(str(rows)), policy=open_policy())
        found[name] = SiteFolder.create(folder / name, name, config=config, address=address if hub else "")
    first = found[HUB][0].folder
    for _, identity in found.values():
        pin(first, identity.card)
    for name, (home, _) in found.items():
        if name != HUB:
            shutil.copytree(first / "peers", home.folder / "peers")
            (home.folder / "peers" / f"{name}.toml").unlink()
    (first / "peers" / f"{HUB}.toml").unlink()
    return found


def make_study(sites: dict[str, tuple[SiteFolder, Identity]], step: float, most: float) -> StudyFile:
    """A sum of all sites, approved by all."""
    cards = {name: identity.card for name, (_, identity) in sites.items()}
    parties = tuple(Party(name, card.identity.hex(), name != HUB, card.key) for name, card in cards.items())
    deadlines = Deadlines(step=min(step, most), join=most, run=most)
    study = StudyFile.make(RowStudy(BOOK), "many sites", parties, hosts={"server": HUB}, deadlines=deadlines)
    for home, _ in sites.values():
        home.approvals.approve(study)
    return study


async def agent_of(home: SiteFolder, identity: Identity, study: StudyFile, say: int) -> None:
    """One agent: says when it is ready, and how the run ended."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    courier = make_courier(home, identity)
    agent = Agent(home, identity, courier)

    def begin() -> None:
        try:
            agent.begin(study.sha256)
        except BlindbayesError as error:
            os.write(say, (json.dumps({"refused": str(error)}) + "\n").encode())

    loop.add_signal_handler(signal.SIGUSR1, begin)
    await agent.start()
    os.write(say, b'{"ready": true}\n')
    while not agent.runs:
        await asyncio.sleep(0.05)
    (run,) = agent.runs.values()
    while not (run.done.is_set() or home.history.starts(study.sha256)):
        await asyncio.sleep(0.05)
    os.write(say, b'{"computing": true}\n')
    await run.done.wait()
    used = resource.getrusage(resource.RUSAGE_SELF)
    rollup = Path("/proc/self/smaps_rollup").read_text().splitlines()
    private = sum(int(line.split()[1]) for line in rollup if line.startswith("Private_"))
    told = {
        "ended": True,
        "state": run.text(),
        "seconds": time.monotonic() - run.began,
        "cpu": used.ru_utime + used.ru_stime,
        "private_mb": private / 1024,
        "in": courier.bytes_in,
        "out": courier.bytes_out,
    }
    os.write(say, (json.dumps(told) + "\n").encode())
    await stop.wait()
    await agent.stop()


def fork(home: SiteFolder, identity: Identity, study: StudyFile) -> tuple[int, int]:
    """An agent in a process of its own; its number, and where to hear it."""
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a benchmark that is killed leaves no agents behind
            os.close(hear)
            with (home.folder / "agent.err").open("w") as errors:
                os.dup2(errors.fileno(), 2)
            asyncio.run(agent_of(home, identity, study, say))
            code = 0
        finally:
            os._exit(code)
    os.close(say)
    return child, hear


class Voices:
    """What the agents say, up to a bound."""

    def __init__(self, children: dict[str, tuple[int, int]], most: float) -> None:
        self.said: dict[str, dict[str, Any]] = {name: {} for name in children}
        self._begun, self._most, self._told = time.monotonic(), most, 0.0
        self._half: dict[str, bytes] = dict.fromkeys(children, b"")
        self._ears = selectors.DefaultSelector()
        for name, (_, hear) in children.items():
            self._ears.register(hear, selectors.EVENT_READ, name)

    def wait(self, names: list[str], word: str) -> None:
        """Until all of these have said it, or ended."""
        while missing := [name for name in names if not {word, "gone"} & self.said[name].keys()]:
            now = time.monotonic() - self._begun
            if now - self._told > 5:
                self._told = now
                print(f"{now:4.0f} s: {len(names) - len(missing)} of {len(names)} {word}", file=sys.stderr, flush=True)
            if now > self._most:
                raise SystemExit(f"not {word} after {now:.0f} s: {len(missing)} of {len(names)}, such as {missing[0]}")
            for key, _ in self._ears.select(1.0):
                self._hear(key.data, key.fd)
                if "refused" in self.said[key.data]:
                    raise SystemExit(f"{key.data} began no run: {self.said[key.data]['refused']}")

    def _hear(self, name: str, hear: int) -> None:
        raw = os.read(hear, 1 << 16)
        *lines, self._half[name] = (self._half[name] + raw).split(b"\n")
        for line in lines:
            self.said[name] |= json.loads(line)
        if not raw:
            self.said[name]["gone"] = True
            self._ears.unregister(hear)


def end(children: dict[str, tuple[int, int]]) -> None:
    """Stop them all: by the end of ten seconds for certain."""
    until, left = time.monotonic() + 10, set(children)
    for child, hear in children.values():
        os.kill(child, signal.SIGTERM)
        os.close(hear)
    while left:
        for name in [name for name in left if os.waitpid(children[name][0], os.WNOHANG)[0]]:
            left.discard(name)
        if left and time.monotonic() > until:
            for name in left:
                os.kill(children[name][0], signal.SIGKILL)
        time.sleep(0.05)


def measure(number: int, lost: float, step: float, most: float) -> dict[str, Any]:
    """One run."""
    import ibis.backends.duckdb  # noqa: F401, all libraries that a run imports: before the processes part
    import pyarrow  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.naive_bayes  # noqa: F401

    role_runner._MESH = 4  # sites that only dial meet nobody but the hub
    with tempfile.TemporaryDirectory() as temporary:
        begun = time.monotonic()
        sites = make_sites(Path(temporary), number)
        study = make_study(sites, step, most)
        made = time.monotonic()
        gc.freeze()
        children = {name: fork(home, identity, study) for name, (home, identity) in sites.items()}
        try:
            voices = Voices(children, most)
            voices.wait(list(children), "ready")
            ready = time.monotonic()
            os.kill(children[HUB][0], signal.SIGUSR1)
            victims = [name for name in children if name != HUB][: int(lost * number)]
            for name in victims:  # as soon as it computes, and so before or after its vector left
                voices.wait([name], "computing")
                os.kill(children[name][0], signal.SIGKILL)
            staying = [name for name in children if name not in victims]
            voices.wait([name for name in staying if name != HUB], "computing")
            voices.wait(staying, "ended")
            told = {name: {"state": "gone without a word"} | voices.said[name] for name in staying}
            ended = time.monotonic()
        finally:
            end(children)
    others = [each for name, each in told.items() if name != HUB]
    wrong = {name: each["state"] for name, each in told.items() if each["state"] != "done"}
    if wrong:
        raise SystemExit(f"{len(wrong)} did not end well, such as {next(iter(wrong.items()))}")
    middle = {key: statistics.median(each[key] for each in others) for key in ("cpu", "private_mb", "in", "out")}
    hub = told[HUB]
    return {
        "sites": number,
        "lost": len(victims),
        "folders_s": round(made - begun, 1),
        "start_s": round(ready - made, 1),
        "run_s": round(ended - ready, 1),
        "site": {key: round(value, 2) for key, value in middle.items()},
        "server": {key: round(hub[key], 2) for key in ("cpu", "private_mb", "in", "out")},
    }


def main() -> None:
    parser = Options(__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--lost", type=float, default=0.05, help="share of the sites that are killed")
    parser.add_argument("--step", type=float, default=120.0, help="seconds that a site may be silent")
    parser.add_argument("--most", type=float, default=1200.0, help="seconds from the first agent's start, then it gives up")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="8 sites, as a star, to see that it runs")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sites, arguments.lost = 8, 0.0
    found = measure(arguments.sites, arguments.lost, arguments.step, arguments.most)
    print(f"{found['sites']} sites, {found['lost']} killed: {found['run_s']} s from the wish to the last release")
    print(f"folders {found['folders_s']} s, agents start in {found['start_s']} s")
    for who in ("site", "server"):
        each = found[who]
        kb = (each["in"] / 1e3, each["out"] / 1e3)
        print(f"{who:7} CPU {each['cpu']} s, private memory {each['private_mb']:.0f} MB, in {kb[0]:.0f} kB, out {kb[1]:.0f} kB")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
