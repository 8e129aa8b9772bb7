"""Our work beside each peer's, in one run: builds every peer's environment, runs both sides in turn, writes docs/peers.md.

    make peers                                  # all of it, into docs/peers.md; environments in .peers
    python benchmarks/peers/run.py --only OpenDP --rounds 3      # its row alone is measured again

Each peer has an environment of its own, since some pin old versions of what others need new. A round does every comparison
once, ours and theirs in turn, so that a loaded machine slows both; times are CPU seconds of all parties, ratios are taken
within a round, and the table has their median with the least and the largest. A peer that cannot be had is named with the
reason, and the rest goes on.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from blindbayes import NaiveBayes, PrivateNaiveBayes
from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import samplers
from blindbayes.protocols import joint_circuit
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.shared_inference.compare_all import compare
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.protocols.two_party.transfer.roles import agree_all
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert, deal_modulus
from blindbayes_papers.primitives.paillier import generate_keypair

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import spu_columns  # noqa: E402
from _measured import Options  # noqa: E402

TABLE = {"rows": 50_000, "columns": 10, "low": -8.0, "high": 8.0, "seed": 1}
SMALL = {**TABLE, "rows": 2000, "epsilon": 1.0}
Once = Callable[[], dict[str, Any]]


def _rows(task: dict[str, Any]) -> tuple[Any, Any, Codebook]:
    """As in `theirs.py`."""
    rng = np.random.default_rng(task["seed"])
    y = rng.integers(0, 2, task["rows"])
    x = np.clip(rng.normal(0.7 * y[:, None], 1.5, (task["rows"], task["columns"])), task["low"], task["high"]).round(2)
    features = tuple(Numeric(f"x{at}", task["low"], task["high"], 0.01) for at in range(task["columns"]))
    return x, y.astype(str), Codebook("y", ("0", "1"), features, variance_floor=1e-6)


def plain(task: dict[str, Any]) -> Once:
    """Fit and predict, exactly."""
    x, y, book = _rows(task)

    def work() -> dict[str, Any]:
        found = NaiveBayes(book).fit(x, y).predict(x)
        return {"accuracy": float((found == y).mean())}

    return work


def private(task: dict[str, Any]) -> Once:
    """Fit with noise, and predict."""
    x, y, book = _rows(task)

    def work() -> dict[str, Any]:
        found = PrivateNaiveBayes(book, epsilon=task["epsilon"]).fit(x, y).predict(x)
        return {"accuracy": float((found == y).mean())}

    return work


def paillier(task: dict[str, Any]) -> Once:
    """Encryptions; the table of the base is made before."""
    public, coins = generate_keypair(task["bits"]).public, Coins.system()
    public.encrypt(1, coins)
    return lambda: {"done": len(public.encrypt_many(range(task["count"]), coins))}


def matched(task: dict[str, Any]) -> Once:
    """Which identifiers two lists share, both parties' work: more than a size."""
    count = task["count"]
    low = np.arange(count, dtype=np.uint64)

    def work() -> dict[str, Any]:
        coins = Coins.system()
        runs = local_runs(("first", "second"), study="0" * 64, run_id="0" * 32, coins=coins, signed=False)
        numbers = [low + np.uint64(shift) for shift in (0, count // 2)]
        lists = [np.stack([own, own * np.uint64(0x9E3779B97F4A7C15)], axis=1) for own in numbers]
        sizes = matching.MatchingSetup(count, count, b"")

        def asker() -> Any:
            sender = yield from transfer.ot_sender(runs["first"], "second", coins)
            return (yield from matching.asker(runs["first"], "second", sizes, lists[0], sender, coins))

        def owner() -> Any:
            receiver = yield from transfer.ot_receiver(runs["second"], "first", coins)
            return (yield from matching.owner(runs["second"], "first", sizes, lists[1], receiver, coins))

        found = run_in_memory({"first": asker(), "second": owner()}).outputs
        return {"size": len(found["first"])}

    return work


def noise(task: dict[str, Any]) -> Once:
    """Exact discrete Laplace noise."""
    coins = Coins.system()
    return lambda: {"done": len(samplers.discrete_laplace(coins, task["scale"], task["count"]))}


def oblivious(task: dict[str, Any]) -> Once:
    """One party's encryption of a vector, counts packed into plaintexts."""
    scheme, coins = JoyeLibert(int(task["modulus"])), Coins.system()
    key, each = scheme.random_key(coins), 2048 // 64
    packed = [1] * -(-task["count"] // each)
    return lambda: {"done": len(scheme.encrypt(packed, key, coins.bytes(16)))}


def compared(task: dict[str, Any]) -> Once:
    """Three parties find the largest of scores in shares, without trusting any pair."""
    count, classes, bits = task["count"], task["classes"], 48
    names = ("a", "b", "c")

    def work() -> dict[str, Any]:
        coins = Coins.system()
        runs = local_runs(names, study="0" * 64, run_id="0" * 32, coins=coins, signed=False)

        def party(name: str) -> Any:
            own = coins.derive(name)
            mesh = yield from joint_circuit.connect(runs[name], own)
            others = {other: "peers" for other in names if other != name}
            sessions = yield from agree_all(runs[name], others, b"", own)
            shares = own.words(count * (classes - 1)).reshape(count, classes - 1, 1) & np.uint64((1 << bits) - 1)
            return (yield from compare(runs[name], shares, bits, sessions, mesh, names, own))

        return {"done": len(run_in_memory({name: party(name) for name in names}).outputs["a"])}

    return work


@dataclass
class Peer:
    """One comparison."""

    name: str
    what: str
    ours: Callable[[dict[str, Any]], Once]
    task: dict[str, Any]
    requires: tuple[str, ...]
    note: str = ""
    absent: str = ""
    home: str = ""  # whose environment it shares
    times: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)


PEERS = [
    Peer(
        "scikit-learn",
        "GaussianNB, fit and predict, 50,000 x 10",
        plain,
        TABLE,
        ("scikit-learn==1.9.1",),
        "ours reads and checks values against a codebook, and sums whole numbers exactly",
    ),
    Peer(
        "diffprivlib",
        "the same at epsilon 1, 2,000 x 10",
        private,
        SMALL,
        ("diffprivlib==0.6.6", "scikit-learn==1.5.2"),  # it does not import under scikit-learn 1.9
        "it does not import under scikit-learn 1.9, and its loss is above the epsilon that it claims",
    ),
    Peer(
        "python-paillier",
        "100 encryptions, 2,048 bits",
        paillier,
        {"bits": 2048, "count": 100},
        ("phe==1.5.0", "gmpy2"),
        "ours takes short exponents from a table that is made once per key",
    ),
    Peer(
        "openmined.psi",
        "5,000 and 5,000 identifiers",
        matched,
        {"count": 5000},
        ("openmined.psi==2.0.6",),
        "it opens the size, ours (matching) which identifiers are shared; joined_sums opens neither",
    ),
    *(
        Peer(
            name,
            f"{what}, CHEETAH",
            lambda task: _never,
            task,
            ("spu==0.9.5",),
            "two processes each; its default two-party mode is not safe by its own documentation",
            home="SPU",
        )
        for name, what, task in (
            ("SPU", "training in shares, 20,000 rows x 50 columns x 3 classes", {"rows": 20_000}),
            ("SPU at size", "training in shares, 1,000,000 rows x 50 columns x 3 classes", {"rows": 1_000_000}),
            ("SPU categorical", "10,000 instances, 10 categorical attributes", {"kind": 0, "batch": 10_000}),
            ("SPU mixed", "10,000 instances, 5 categorical and 5 Gaussian attributes", {"kind": 1, "batch": 10_000}),
        )
    ),
    Peer(
        "MPyC",
        "largest of 3 shared scores, 100 instances, 3 parties",
        compared,
        {"count": 100, "classes": 3},
        ("mpyc==0.11", "gmpy2", "numpy"),
        "MPyC takes an honest majority; ours bears all but one",
    ),
    Peer(
        "OpenDP",
        "discrete Laplace noise of scale 10 on 10,000 counts",
        noise,
        {"scale": 10.0, "count": 10_000},
        ("opendp==0.16.0",),
    ),
    Peer(
        "DecLearn",
        "Joye-Libert encryption of 200 counts, 2,048 bits",
        oblivious,
        {"count": 200},
        ("declearn==2.9.1",),
        "ours packs 32 counts into a plaintext; its default modulus has 1,024 bits, and its primes stand in the source",
    ),
]


def _never() -> dict[str, Any]:
    raise SystemExit("SPU has a program of its own")


def environment(peer: Peer, folder: Path) -> Path | None:
    """The python of a peer's environment, made if need be; None, with the reason, if it cannot be had."""
    home = folder / (peer.home or peer.name)
    python, mark = home / "bin" / "python", home / ".ready"
    if mark.exists() and mark.read_text() == "\n".join(peer.requires):
        return python
    made = subprocess.run([sys.executable, "-m", "venv", str(home)], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requires]
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    if made.returncode:
        peer.absent = "not installed: " + (made.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
        return None
    mark.write_text("\n".join(peer.requires))
    return python


class Worker:
    """The peer's side, in a process of its own that waits for its turn."""

    def __init__(self, peer: Peer, python: Path) -> None:
        command = [str(python), str(HERE / "theirs.py"), peer.name, json.dumps(peer.task)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._read()

    def __call__(self) -> dict[str, Any]:
        if self._process.stdin is None:
            raise RuntimeError("the peer's process has no input")
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        if self._process.stdout is None or self._process.stderr is None:
            raise RuntimeError("the peer's process has no output")
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise RuntimeError((self._process.stderr.read().strip().splitlines() or ["it ended"])[-1][:200])

    def close(self) -> None:
        """Let it end."""
        self._process.terminate()
        self._process.wait()


def spu_sides(python: Path, task: dict[str, int]) -> tuple[Once, Once]:
    """Ours and SPU's, by the program that knows both: training, or classification of one kind of instances."""
    rows, batch, kind = task.get("rows"), task.get("batch", 0), task.get("kind", 0)
    nominal, gaussian = spu_columns.KINDS[kind]
    book = spu_columns.ours.codebook(nominal, 4, gaussian, spu_columns.CODE_BITS if gaussian else 2)
    wide = spu_columns.ours.codebook(45, 2, 5, spu_columns.CODE_BITS)

    spu_columns.ours.warm(wide if rows is not None else book)

    def mine() -> dict[str, Any]:
        if rows is not None:
            return {"cpu": sum(side["cpu"] for side in spu_columns.ours.train(rows, wide, True).values())}
        return {"cpu": spu_columns.ours.classify([batch], book, f"kind {kind}", 10)[batch]["cpu"]}

    def theirs() -> dict[str, Any]:
        if rows is not None:
            found = spu_columns.theirs(str(python), [rows], [], 1)
            return {"cpu": sum(side["train"][str(rows)]["cpu"] for side in found)}
        found = spu_columns.theirs(str(python), [], [batch], 1, spu_columns.KINDS[kind : kind + 1])
        return {"cpu": sum(side["classify"][0][str(batch)]["cpu"] for side in found)}

    return mine, theirs


def clocked(work: Once) -> Once:
    """With the CPU seconds that it took."""

    def run() -> dict[str, Any]:
        begun = time.process_time()
        found = work()
        return {"cpu": time.process_time() - begun, **found}

    work()
    return run


def machine() -> str:
    """What it ran on."""
    name = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    return f"{name or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def page(peers: list[Peer], rounds: int) -> str:
    """The table, for the documentation."""
    lines = [
        "# Beside others",
        "",
        "Written by `make peers`: our work and each peer's in turn, in one run, with the peer in an environment of its own.",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}; {machine()}; {rounds} rounds. CPU seconds of all parties, medians; the",
        "ratio is theirs to ours within a round: its median, least and largest. Below 1 we are behind.",
        "",
        "| peer | work | theirs, s | ours, s | theirs / ours | accuracy, theirs and ours | remarks |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer in peers:
        versions = ", ".join(peer.requires)
        if peer.absent:
            lines.append(f"| {peer.name} | {peer.what} | | | | | **{peer.absent}** ({versions}) |")
            continue
        mine, others = ([pair[at]["cpu"] for pair in peer.times] for at in (0, 1))
        ratios = sorted(other / own for own, other in zip(mine, others, strict=True))
        right = ""
        if "accuracy" in peer.times[0][0]:
            right = " and ".join(f"{median(pair[at]['accuracy'] for pair in peer.times):.3f}" for at in (1, 0))
        spread = f"{median(ratios):.3g} ({ratios[0]:.3g} to {ratios[-1]:.3g})"
        figures = f"{median(others):.3g} | {median(mine):.3g} | {spread} | {right}"
        lines.append(f"| {peer.name} | {peer.what} | {figures} | {peer.note + '; ' if peer.note else ''}{versions} |")
    return "\n".join(lines) + "\n"


def replaced(page: str, some: str) -> str:
    """A page with the rows of some peers measured again; rows that are new stand last."""
    known = [line for line in page.splitlines() if line.strip()]
    for line in some.splitlines():
        head = line.split(" | ", 2)[:2]
        if not line.startswith("| ") or line.startswith("| peer "):
            continue
        at = next((index for index, old in enumerate(known) if old.split(" | ", 2)[:2] == head), len(known))
        known[at : at + 1] = [line]
    first = next(index for index, line in enumerate(known) if line.startswith("| peer "))
    return "\n".join([known[0], "", *known[1:first], "", *known[first:]]) + "\n"


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--only", nargs="+", choices=[peer.name for peer in PEERS], help="some of the peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--environments", type=Path, default=Path(".peers"))
    parser.add_argument("--out", type=Path, default=Path("docs/peers.md"))
    chosen = parser.parse_args()
    peers = [peer for peer in PEERS if chosen.only is None or peer.name in chosen.only]
    for peer in peers:
        if peer.name == "DecLearn":
            peer.task["modulus"] = str(int(deal_modulus(2048, Coins.system())))
    sides: dict[str, tuple[Once, Once]] = {}
    workers: list[Worker] = []
    for peer in peers:
        print(f"{peer.name}: environment", flush=True)
        python = environment(peer, chosen.environments)
        if python is None:
            continue
        try:
            if peer.home == "SPU":
                sides[peer.name] = spu_sides(python.absolute(), peer.task)
            else:
                workers.append(Worker(peer, python))
                sides[peer.name] = clocked(peer.ours(peer.task)), workers[-1]
        except (RuntimeError, OSError) as problem:
            peer.absent = f"does not run: {problem}"
    for number in range(chosen.rounds):
        for peer in peers:
            if peer.absent:
                continue
            mine, theirs = sides[peer.name]
            try:
                peer.times.append((mine(), theirs()))
            except (RuntimeError, SystemExit) as problem:
                peer.absent = f"does not run: {problem}"
                continue
            own, other = peer.times[-1]
            print(f"round {number + 1}, {peer.name}: ours {own['cpu']:.3g} s, theirs {other['cpu']:.3g} s", flush=True)
    for worker in workers:
        worker.close()
    text = page(peers, chosen.rounds)
    if chosen.only and chosen.out.exists():
        text = replaced(chosen.out.read_text(encoding="utf-8"), text)
    chosen.out.write_text(text, encoding="utf-8")
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
