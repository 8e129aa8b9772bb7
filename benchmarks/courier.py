"""What it costs to run between processes instead of in memory, on loopback.

    python benchmarks/courier.py              round trips, a 100 MB exchange, Adult over three sites
    python benchmarks/courier.py --quick      round trips only

Two processes, mutual TLS. `courier` is gRPC alone; `link` adds the envelope, numbering, acknowledgements, the journal with
its fsync before every dependent message, and a thread for the role's own work. Medians; shared machines vary.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

from _measured import Options

from blindbayes.crypto.coins import Coins
from blindbayes.net.driver import RoleDriver
from blindbayes.net.envelope import EnvelopePair
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity, pinned
from blindbayes.net.journal import Begun, Journal
from blindbayes.net.link import Link
from blindbayes.net.router import Router
from blindbayes.net.sessions import Timing
from blindbayes.protocols.core import Role, Run, Send, receive
from blindbayes.wire import Message, Trust

STUDY, RUN = "ab" * 32, "cd" * 16
ROUNDS = 400
PIECES, PIECE_BYTES = 100, 1_000_000


class Ping(Message, frozen=True):
    """A payload there."""

    trust: ClassVar[Trust] = Trust.CLEAR
    payload: bytes


class Pong(Message, frozen=True):
    """A payload back."""

    trust: ClassVar[Trust] = Trust.CLEAR
    payload: bytes


def asks(other: str, times: list[float], growth: list[int]) -> Role[None]:
    """Ping-pong, then the large exchange."""
    payload = bytes(1024)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        yield Send(other, Ping(payload))
        yield from receive(other, Pong)
        times.append(time.perf_counter() - begun)
    before = peak()
    large, begun = bytes(PIECE_BYTES), time.perf_counter()
    for _ in range(PIECES):
        yield Send(other, Ping(large))
    yield from receive(other, Pong)
    times.append(time.perf_counter() - begun)
    growth.append(peak() - before)


def answers(other: str, growth: list[int]) -> Role[None]:
    """The other side."""
    for _ in range(ROUNDS):
        ping = yield from receive(other, Ping)
        yield Send(other, Pong(ping.payload))
    before = peak()
    for _ in range(PIECES):
        yield from receive(other, Ping)
    growth.append(peak() - before)
    yield Send(other, Pong(b""))


def peak() -> int:
    """Largest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


class Echo:
    """A courier's listener: the dialling side answers, the listening side counts."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.courier: GrpcCourier | None = None
        self.arrived: asyncio.Queue[bytes] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        if self.answer and self.courier is not None:
            task = asyncio.ensure_future(self.courier.send(sender, frame))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            self.arrived.put_nowait(frame)

    def peer_up(self, peer: str) -> None: ...

    def peer_down(self, peer: str) -> None: ...


async def courier_side(folder: Path, name: str) -> dict[str, Any]:
    """Round trips over gRPC alone."""
    identity = Identity.load(folder / name)
    listener = Echo(answer=name == "south")
    courier = listener.courier = GrpcCourier(
        identity, pinned(folder / name), listen=identity.card.address if name == "north" else None
    )
    await courier.start(listener)
    if name == "south":
        await asyncio.to_thread(sys.stdin.read)
        await courier.stop()
        return {}
    while not courier.is_up("south"):
        await asyncio.sleep(0.01)
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        await courier.send("south", bytes(1024))
        await listener.arrived.get()
        times.append(time.perf_counter() - begun)
    await courier.stop()
    return {"courier_round_trip_ms": 1000 * statistics.median(times)}


async def link_side(folder: Path, name: str) -> dict[str, Any]:
    """Round trips of roles, with envelope and journal."""
    identity = Identity.load(folder / name)
    peers = pinned(folder / name)
    other = next(iter(peers))
    identities = {name: identity.card.identity, other: peers[other].identity}
    run = Run(STUDY, RUN, ("north", "south"), name, identities, identity.signing)
    board = Router(name, GrpcCourier(identity, peers, listen=identity.card.address if name == "north" else None))
    begun = Begun(STUDY, RUN, name, Coins.fresh_seed(), b"", "benchmark")
    journal = Journal.create(folder / name / "run", begun, identity.storage_key)
    timing = Timing(step=60, join=60, run=600)
    pair = EnvelopePair(STUDY, RUN, name, other, identities[other], identity.signing)
    link = Link(pair, journal, board.route(other, name), timing)
    board.attach(other, link)
    times: list[float] = []
    growth: list[int] = []
    role = asks(other, times, growth) if name == "north" else answers(other, growth)
    driver = RoleDriver(run, role, journal, {other: link}, timing, required=2)
    await board.courier.start(board)
    cpu = time.process_time()
    await driver.drive()
    cpu = time.process_time() - cpu
    await link.close()
    await board.courier.stop()
    found: dict[str, Any] = {"memory_growth_mb": growth[0], "cpu_seconds": round(cpu, 2)}
    if name == "north":
        found |= {"link_round_trip_ms": 1000 * statistics.median(times[:-1]), "exchange_100_mb_seconds": times[-1]}
    return found


def two_processes(kind: str) -> dict[str, Any]:
    """Run both sides; the listening side's figures, the other's memory."""
    from blindbayes.net.identity import pin
    from blindbayes.testing.loopback import free_port

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        address = {"north": f"127.0.0.1:{free_port()}", "south": ""}
        made = {name: Identity.create(folder / name, name, address=address[name]) for name in address}
        pin(folder / "north", made["south"].card)
        pin(folder / "south", made["north"].card)
        command = [sys.executable, __file__, "--side", kind, "--folder", scratch, "--name"]
        south = subprocess.Popen([*command, "south"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        north = subprocess.run([*command, "north"], stdout=subprocess.PIPE, check=True)
        output, _ = south.communicate()
        found: dict[str, Any] = json.loads(north.stdout)
        theirs = json.loads(output)
        if "memory_growth_mb" in theirs:
            found["receiver_memory_growth_mb"] = theirs["memory_growth_mb"]
        return found


def adult() -> dict[str, Any]:
    """Adult over three sites, `masked_sum`: what the protocol takes beyond counting."""
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from blindbayes.codebook import Codebook
    from blindbayes.study.file import Deadlines
    from blindbayes.testing.loopback import Loopback, open_policy
    from blindbayes_papers.datasets import dataset_path

    table: pa.Table = pacsv.read_csv(dataset_path("adult"))
    target = "income" if "income" in table.column_names else table.column_names[-1]
    book = Codebook.from_frame(table, target=target)
    runs = 3
    with tempfile.TemporaryDirectory() as scratch:
        folder, rows = Path(scratch), {}
        for at, name in enumerate(("north", "south", "west")):
            part = table.slice(at * table.num_rows // 3, table.num_rows // 3)
            pq.write_table(part, folder / f"{name}.parquet")
            rows[name] = str(folder / f"{name}.parquet")
        with Loopback(folder / "sites", rows, policy=open_policy(max_runs_per_day=1000)) as net:
            study = net.make_study(book, deadlines=Deadlines(step=60, join=60, run=120))
            net.approve(study, runs=runs)
            seconds, protocol, cpu = [], [], []
            for _ in range(runs):
                ended = net.run(study)
                if {run["state"] for run in ended.values()} != {"done"}:
                    raise SystemExit(f"a run failed: {ended}")
                seconds.append(max(run["seconds"] for run in ended.values()))
                protocol.append(min(run["protocol_seconds"] for run in ended.values()))
                cpu.append(sum(seat["cpu_seconds"] for run in ended.values() for seat in run["roles"].values()))
    return {
        "adult_words": study.setting.length,
        "adult_protocol_seconds": min(protocol),
        "adult_whole_run_seconds": min(seconds),
        "adult_role_cpu_seconds": min(cpu),
    }


def main() -> None:
    """Print one JSON object."""
    parser = Options(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--side", choices=["courier", "links"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--name")
    chosen = parser.parse_args()
    if chosen.side is not None:
        side = courier_side if chosen.side == "courier" else link_side
        print(json.dumps(asyncio.run(side(chosen.folder, chosen.name))))
        return
    found = two_processes("courier") | two_processes("links")
    if not chosen.quick:
        found |= adult()
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
