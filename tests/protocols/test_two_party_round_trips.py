"""How often two parties wait for each other: counted on a line that holds every byte, and on the whole of a classification."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import mark, require_mark
from blindbayes.protocols.memory import run_in_memory
from blindbayes.protocols.shared_training import columns as roles
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.protocols.two_party.transfer import roles as transfer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import columns

    return columns


@pytest.mark.parametrize(("batch", "most"), [(1, 5), (40, 5)])
def test_a_batch_on_a_warm_line_takes_two_and_a_half_round_trips(bench, batch, most):
    book = bench.codebook(3, 4, 1, 6)
    setup = ColumnsSetup(book, 1000, {"class": (), "attributes": book.names}, ("class",))
    plan, block, found = setup.plan, bench.synthetic(book, batch, 7), {}
    own = {name: plan.features[name] for name in book.names}
    tables = {
        name: np.zeros((each.selectors, each.entries, plan.classes - 1, plan.limbs), dtype=np.uint64)
        for name, each in own.items()
    }
    listener = socket.create_server(("127.0.0.1", 0))
    chains = []

    def party(name: str, proxy) -> None:
        sock = listener.accept()[0] if name == "class" else socket.create_connection(("127.0.0.1", proxy.port))
        line, coins, run = bench.Line(sock, bench.Meter()), Coins.system(), bench.run_for(name, "trips")
        sender = name == "class"
        make = transfer.ot_sender if sender else transfer.ot_receiver
        links = bench.drive(make(run, run.others[0], coins), line)
        sessions = bench.drive(transfer.agree_all(run, dict.fromkeys(run.others, "classify"), b"", coins), line)
        bench.together(name, line, 0.02)
        if sender:
            chains.append(proxy.chain)
        run, query = transfer.standing(run, sessions, "batch"), setup.query(batch)
        if sender:
            zero = np.zeros((batch, plan.classes))
            role = roles.predict_class_holder(run, query, zero, {"attributes": tables}, {"attributes": links}, coins)
        else:
            role = roles.predict_attribute_holder(run, query, tables, roles.Instances(block.columns), links, coins)
        found[name] = bench.drive(role, line)
        if sender:
            chains.append(proxy.chain)
        line.close()
        sock.close()

    with bench.Delaying(listener.getsockname()[1], 0.02) as proxy:
        both = [threading.Thread(target=party, args=(name, proxy)) for name in bench.PARTIES]
        for each in both:
            each.start()
        for each in both:
            each.join(30)
    listener.close()
    assert found["class"].tolist() == found["attributes"].tolist()
    assert chains[1] - chains[0] <= most


def test_a_slow_line_goes_on_after_a_call_that_nobody_took_yet(bench):
    """Agents start together: one may call before the other listens."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with bench.Delaying(port, 0.002) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as early:
            assert early.recv(1) == b""
        with socket.create_server(("127.0.0.1", port)) as late, socket.create_connection(("127.0.0.1", proxy.port)) as again:
            late.settimeout(10)
            taken = late.accept()[0]
            again.sendall(b"x")
            assert taken.recv(1) == b"x"
            taken.close()


def agreed(facts: dict[str, bytes]):
    runs = {name: transfer.standing(run, {other: bytes(32)}, "p") for name, other, run in pairs()}
    return run_in_memory(
        {name: transfer.agree(runs[name], other, "step", facts[name], Coins.system()) for name, other, _ in pairs()}
    )


def pairs():
    from blindbayes.protocols.core import Run

    return [(me, other, Run("0" * 64, "r", ("a", "b"), me)) for me, other in (("a", "b"), ("b", "a"))]


def test_what_follows_from_an_agreed_session_is_sent_by_nobody_and_bound_to_the_facts():
    same = agreed({"a": b"10 rows", "b": b"10 rows"})
    assert same.cost.messages == 0
    assert same.outputs["a"] == same.outputs["b"]
    other = agreed({"a": b"10 rows", "b": b"11 rows"}).outputs
    assert other["a"] != other["b"]
    kind = transfer.CoinsAnswered
    with pytest.raises(PeerProtocolError, match="another session"):
        require_mark(kind(mark(other["a"], kind, 0), b""), other["b"], 0, "a")


def test_two_parts_of_one_session_have_names_of_their_own():
    (_, other, run), _ = pairs()
    names = {transfer.standing(run, {other: bytes(32)}, f"batch {at}").standing[other] for at in range(20)}
    assert len(names) == 20
