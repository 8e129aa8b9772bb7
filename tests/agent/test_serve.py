"""Sites as operating-system processes on loopback, each with its own DuckDB file: exact, and through faults."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.store.folder import sole_agent
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from blindbayes.testing.loopback import Loopback, LoopbackSite
from support.sites import BOOK, make_rows, paper_policy

NAMES = ("north", "south", "west")
EASY = paper_policy(max_runs_per_day=1000)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("net")
    with Loopback(folder / "sites", make_rows(folder, NAMES), policy=EASY) as sites:
        yield sites


@pytest.fixture(autouse=True)
def all_running(net: Loopback) -> Iterator[None]:
    """Whatever a test did to the processes, the next one finds them running; none is left over."""
    yield
    for site in net.sites.values():
        if site.process is not None:
            site.process.send_signal(signal.SIGCONT)
        if site.process is None or site.process.poll() is not None:
            site.stop()
            site.launch()
            site.wait_ready()


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.001)
    raise AssertionError("did not happen in time")


def study_of(net: Loopback, **fields: Any) -> StudyFile:
    study = net.make_study(BOOK, **{"deadlines": Deadlines(step=40, join=60, run=120), **fields})
    net.approve(study, runs=100)
    return study


def states(ended: dict[str, dict[str, Any]]) -> dict[str, str]:
    """By site: done, or what went wrong there."""
    return {name: run.get("message", run["state"]) for name, run in ended.items()}


def expected_model(net: Loopback, study: StudyFile, folder: Path) -> str:
    sources = {name: net.sites[name].home.config.rows.source for name in study.contributors}  # type: ignore[union-attr]
    return (study.study.simulate(sources).save(folder) / "model.json").read_text()


def models(net: Loopback, run_id: str) -> set[str]:
    found = [site.home.folder / "releases" / run_id / "model.json" for site in net.sites.values()]
    return {path.read_text() for path in found if path.exists()}


@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum"])
def test_processes_give_exactly_the_result_in_memory(net: Loopback, tmp_path: Path, protocol: str) -> None:
    study = study_of(net, protocol=protocol)
    ended = net.run(study)
    assert states(ended) == dict.fromkeys(NAMES, "done")
    assert models(net, ended["north"]["run"]) == {expected_model(net, study, tmp_path / "simulated")}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum", "chain_sum", "oblivious_sum"])
def test_ten_processes_give_exactly_the_result_in_memory(tmp_path: Path, protocol: str) -> None:
    names = tuple(f"site-{number}" for number in range(10))
    with Loopback(tmp_path / "sites", make_rows(tmp_path, names), policy=EASY) as ten:
        study = study_of(ten, protocol=protocol, deadlines=Deadlines(step=30, join=60, run=120))
        ended = ten.run(study)
        assert set(states(ended).values()) == {"done"}
        assert models(ten, ended["site-0"]["run"]) == {expected_model(ten, study, tmp_path / "simulated")}


def wait_for(net: Loopback, study: StudyFile, run_id: str, site: str) -> bool:
    """Whether a role elsewhere cannot go on without this site."""
    for other in set(net.sites) - {site}:
        with contextlib.suppress(ConfigError):  # it has not heard of the run
            roles = net.sites[other].operator.call("GET", f"/runs/{run_id}")["roles"].values()
            waiting = [name for role in roles if role["state"] in ("joining", "running") for name in role["waiting_for"]]
            if site in map(study.host, waiting):
                return True
    return False


def begin_and_freeze(net: Loopback, study: StudyFile, frozen: str, *, size: int = 320, needed: bool = False) -> str:
    """Begin a run and stop one process in its midst, `needed`: while others cannot go on without it. The run id."""
    for _ in range(5):
        run_id: str = net.sites["north"].operator.call("POST", "/runs", {"study": study.sha256})["run"]
        journal = net.sites[frozen].home.runs.folder(run_id) / frozen / "journal"
        with contextlib.suppress(AssertionError):
            until(lambda journal=journal: journal.exists() and journal.stat().st_size > size)
        net.sites[frozen].kill(signal.SIGSTOP)

        def over(run_id: str = run_id) -> bool:
            return any(net.sites[name].home.runs.outcome(run_id) is not None for name in NAMES)

        if needed:
            until(lambda run_id=run_id, over=over: over() or wait_for(net, study, run_id, frozen))
        if not over():
            return run_id
        net.sites[frozen].kill(signal.SIGCONT)  # it was over before we came
        net.follow(run_id)
    raise AssertionError("every run was over before it could be stopped")


def test_kill_9_in_the_midst_and_the_run_goes_on_and_pays_once(net: Loopback) -> None:
    study = study_of(net, privacy=Privacy(epsilon=0.5), title="killed")
    run_id = begin_and_freeze(net, study, "west")
    net.sites["south"].kill(signal.SIGKILL)
    net.sites["south"].start()
    net.sites["west"].kill(signal.SIGCONT)
    ended = net.follow(run_id)
    assert states(ended) == dict.fromkeys(NAMES, "done")
    assert len(models(net, run_id)) == 1
    for site in net.sites.values():
        charges = [entry for entry in site.home.ledger.entries() if entry.kind == "charge"]
        assert [entry.fields["run"] for entry in charges].count(run_id) == 1
        site.home.audit.verify()
        site.home.ledger.verify()


@pytest.mark.slow
@pytest.mark.parametrize("size", [300, 700, 1100, 1500])
@pytest.mark.parametrize("victim", NAMES)
def test_kill_9_of_each_site_at_several_points(net: Loopback, tmp_path: Path, victim: str, size: int) -> None:
    study = study_of(net, title="killed at several points")
    frozen = "west" if victim != "west" else "south"
    run_id = begin_and_freeze(net, study, frozen, size=size)
    until(lambda: net.sites[victim].home.runs.has_begun(run_id))  # one that was joined and has no journal yet is burned
    net.sites[victim].kill(signal.SIGKILL)
    net.sites[victim].start()
    net.sites[frozen].kill(signal.SIGCONT)
    assert states(net.follow(run_id)) == dict.fromkeys(NAMES, "done")
    assert models(net, run_id) == {expected_model(net, study, tmp_path / "simulated")}


@pytest.mark.slow
def test_kill_9_of_the_servers_host_shuts_nobody_out_of_later_sums(tmp_path: Path) -> None:
    """Its host dies before a vector has left: once no other site could take part in an exact sum ever again."""
    names = (*NAMES, "east")
    with Loopback(tmp_path / "sites", make_rows(tmp_path, names), policy=EASY) as four:
        study = study_of(four, deadlines=Deadlines(step=4, join=20, run=60))
        assert study.host("server") == "north"
        run_id = begin_and_freeze(four, study, "west")
        four.sites["north"].kill(signal.SIGKILL)
        four.sites["west"].kill(signal.SIGCONT)
        for name in ("south", "west", "east"):
            client = four.sites[name].operator
            party = client.follow(client.call("GET", f"/runs/{run_id}"))["party"]
            assert study.host(party) == "north"  # its role or the server's, whichever was waited for
        four.sites["north"].start()
        assert states(four.run(study)) == dict.fromkeys(names, "done")


@pytest.mark.slow
@pytest.mark.parametrize("victim", NAMES)
def test_sigstop_of_each_site_is_named(net: Loopback, victim: str) -> None:
    study = study_of(net, deadlines=Deadlines(step=5, join=60, run=90), title="each stopped")
    run_id = begin_and_freeze(net, study, victim, needed=True)
    for name in set(NAMES) - {victim}:
        ended = net.sites[name].operator.follow(net.sites[name].operator.call("GET", f"/runs/{run_id}"))
        assert ended["error"] == "PeerLost"
        assert ended["party"] in (victim, "server")


def test_sigstop_is_named_within_the_deadline_and_sigcont_hurts_nobody(net: Loopback) -> None:
    study = study_of(net, deadlines=Deadlines(step=5, join=60, run=900), title="stopped")
    run_id = begin_and_freeze(net, study, "west", needed=True)
    begun = time.monotonic()
    for name in ("north", "south"):
        ended = net.sites[name].operator.follow(net.sites[name].operator.call("GET", f"/runs/{run_id}"))
        assert ended["error"] == "PeerLost"
        assert ended["party"] == "west"
        assert ended["exit_code"] == 8
    assert time.monotonic() - begun < 120  # by the step's deadline, not the run's
    net.sites["west"].kill(signal.SIGCONT)
    ended = until(lambda: net.sites["west"].home.runs.outcome(run_id))
    assert ended["state"] == "failed"
    assert not (net.sites["west"].home.folder / "releases" / run_id).exists()


def test_a_disk_that_fills_up_ends_in_a_typed_error_everywhere(net: Loopback) -> None:
    study = study_of(net, deadlines=Deadlines(step=5, join=600, run=900), title="full")
    run_id = begin_and_freeze(net, study, "west", needed=True)
    south = net.sites["south"]
    assert south.process is not None
    resource.prlimit(south.process.pid, resource.RLIMIT_FSIZE, (600, resource.RLIM_INFINITY))  # no file grows beyond
    net.sites["west"].kill(signal.SIGCONT)
    ended = net.follow(run_id)
    assert ended["south"]["error"] in ("LocalProtocolError", "LedgerError")  # the journal, or the log before it
    assert re.search("(cannot|could not) be written", ended["south"]["message"])
    for name in ("north", "west"):
        assert (ended[name]["error"], ended[name]["party"]) == ("PeerLost", "south")
    run = net.sites["north"].operator.call("POST", "/runs", {"study": study.sha256})
    again = until(lambda: net.sites["south"].operator.call("GET", "/status")["runs"])
    assert run["run"] not in [each["run"] for each in again]  # a site that cannot write its log joins nothing
    begun, north = time.monotonic(), net.sites["north"].operator
    told = north.follow(north.call("GET", f"/runs/{run['run']}"))
    assert (told["error"], told["party"]) == ("PeerLost", "south")
    assert time.monotonic() - begun < 300  # the others were told; once they waited for the deadline of joining
    south.kill(signal.SIGKILL)  # the limit goes with the process
    south.start()
    net.follow(run["run"])


def test_another_study_under_the_same_title_is_not_joined(net: Loopback) -> None:
    ours = net.make_study(BOOK, title="differs", deadlines=Deadlines(step=4, join=4, run=20))
    theirs = net.make_study(BOOK, title="differs", deadlines=Deadlines(step=4, join=5, run=20))
    for name, study in (("north", ours), ("west", ours), ("south", theirs)):
        net.sites[name].home.approvals.approve(study)
    run = net.sites["north"].operator.call("POST", "/runs", {"study": ours.sha256})
    ended = net.sites["north"].operator.follow(run)
    assert (ended["error"], ended["party"]) == ("PeerLost", "south")
    proposed = net.sites["south"].operator.call("GET", "/status")["proposed"]
    assert ours.sha256 in [each["study"] for each in proposed]


def flood(net: Loopback, frames: int) -> None:
    """As the pinned site `west`, whose process is down: garbage, truncated and mutated true frames, oversize."""
    site = net.sites["west"]
    site.stop()
    coins = Coins.seeded(b"fuzz".ljust(32, b"."))
    recorded = [b"\x01" + bytes([0x96]) + coins.bytes(60), b"\x01\x97\x01" + coins.bytes(100), b"", b"\x02", b"\x01"]

    async def send() -> None:
        class Deaf:
            def frame_arrived(self, sender: str, frame: bytes) -> None:
                if len(recorded) < 50:
                    recorded.append(frame)

            def peer_up(self, peer: str) -> None: ...

            def peer_down(self, peer: str) -> None: ...

        courier = GrpcCourier(
            site.identity,
            {"north": net.sites["north"].identity.card, "south": net.sites["south"].identity.card},
            listen=site.home.config.listen,
        )
        await courier.start(Deaf())
        async with asyncio.timeout(300):
            while not courier.is_up("north"):
                await asyncio.sleep(0.02)
            for _ in range(frames):
                base = bytearray(recorded[coins.below(len(recorded))])
                for _ in range(coins.below(4)):
                    if base:
                        base[coins.below(len(base))] = coins.below(256)
                with contextlib.suppress(BlindbayesError):
                    await courier.send(
                        "north", bytes(base[: coins.below(len(base) + 1)]) if coins.below(3) == 0 else bytes(base)
                    )
        await courier.stop()

    asyncio.run(send())


def memory_of(site: LoopbackSite) -> int:
    assert site.process is not None
    text = Path(f"/proc/{site.process.pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


@pytest.mark.parametrize("frames", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_fuzzing_the_port_neither_crashes_nor_leaks(net: Loopback, frames: int) -> None:
    flood(net, 300)
    before = memory_of(net.sites["north"])
    flood(net, frames)
    assert net.sites["north"].process is not None
    assert net.sites["north"].process.poll() is None
    assert memory_of(net.sites["north"]) - before < 30_000  # kB: what allocators and gRPC's caches move, not what frames leave
    assert b"Traceback" not in (net.sites["north"].home.folder / "agent.err").read_bytes()
    net.sites["west"].start()
    ended = net.run(study_of(net, title="after the flood"))
    assert states(ended) == dict.fromkeys(NAMES, "done")


def test_a_second_agent_of_one_folder_is_refused(net: Loopback) -> None:
    with pytest.raises(ConfigError, match="running already"), sole_agent(net.sites["north"].home.folder):
        pass


def test_the_operators_port_asks_for_the_token_and_for_loopback(net: Loopback) -> None:
    client = net.sites["north"].operator
    host, _, port = client.address.rpartition(":")

    def ask(headers: dict[str, str], path: str = "/api/status") -> int:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
        connection.close()
        return status

    token = (net.sites["north"].home.folder / "operator.token").read_text().split()[1]
    assert ask({"Authorization": f"Bearer {token}"}) == 200
    assert ask({}) == 401
    assert ask({"Authorization": "Bearer wrong"}) == 401
    assert ask({"Authorization": f"Bearer {token}", "Host": "evil.example"}) == 403
    assert ask({"Authorization": f"Bearer {token}"}, "/api/nothing") == 404
    assert (net.sites["north"].home.folder / "operator.token").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_site_with_other_keys_is_nobody(net: Loopback) -> None:
    """Right name, wrong certificate: the port says nothing, and the run names the missing site."""
    site = net.sites["west"]
    site.stop()
    stranger = Identity.generate("west")

    async def knock() -> bool:
        courier = GrpcCourier(stranger, {"north": net.sites["north"].identity.card})

        class Ears:
            heard = False

            def frame_arrived(self, sender: str, frame: bytes) -> None:
                Ears.heard = True

            def peer_up(self, peer: str) -> None:
                Ears.heard = True

            def peer_down(self, peer: str) -> None: ...

        await courier.start(Ears())
        await asyncio.sleep(1)
        await courier.stop()
        return Ears.heard

    assert not asyncio.run(knock())
    study = study_of(net, deadlines=Deadlines(step=15, join=15, run=60), title="stranger")
    ended = net.sites["north"].operator.follow(net.sites["north"].operator.call("POST", "/runs", {"study": study.sha256}))
    assert (ended["error"], ended["party"]) == ("PeerLost", "west")
