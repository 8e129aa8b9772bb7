"""The chain: exact, as its SPEC says, closed to attacks that open the printed form, and clean when somebody misbehaves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError
from blindbayes.protocols.memory import Drop, Duplicate, Fault, Outcome, Replace, Tamper, Vanish, local_runs, run_in_memory
from blindbayes.protocols.registry import SumSetup, simulate_roles, spec
from blindbayes.wire import Message, U64Array, decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.azimian2022.chain_sum import BUILDER, PROTOCOL, roles
from blindbayes_papers.azimian2022.chain_sum.chain_layout import ChainLayout
from blindbayes_papers.azimian2022.chain_sum.messages import KeyAnnounced, LinkSent, RandomisersDealt, RosterListed
from blindbayes_papers.primitives.packing import Packing
from blindbayes_papers.primitives.paillier import PrivateKey, PublicKey, generate_keypair
from support.sums import error_of

TOY = {"key_bits": 512, "toy_keys": True}


def coins(number: int = 0) -> Coins:
    return Coins.seeded(number.to_bytes(32, "big"))


def names(count: int) -> tuple[str, ...]:
    return tuple(f"c{index}" for index in range(count))


def words(values: list[int]) -> U64Array:
    return np.array([value % 2**64 for value in values], dtype=np.uint64)


def play(
    vectors: dict[str, U64Array],
    *,
    options: dict[str, Any] | None = None,
    bound: int = 2**63 - 1,
    ranges: tuple[tuple[int, int, int], ...] = (),
    seed: int = 0,
    run_id: str = "local",
    faults: tuple[Fault, ...] = (),
    check: bool = True,
) -> Outcome:
    length = len(next(iter(vectors.values())))
    setting = SumSetup(tuple(vectors), length, bound=bound, options={**TOY, **(options or {})}, ranges=ranges)
    runs = local_runs(PROTOCOL.roster(setting), coins=coins(99), run_id=run_id)
    parties = simulate_roles(PROTOCOL, runs, setting, vectors, coins(seed))
    return run_in_memory(parties, faults=faults, keep=Keep.FRAMES, check=check)


def total(outcome: Outcome) -> U64Array:
    found: U64Array = outcome.outputs[BUILDER].words
    return found


def counts(parties: int, length: int = 7) -> dict[str, U64Array]:
    rng = np.random.default_rng(parties)
    vectors = {name: rng.integers(0, 1000, length).astype(np.uint64) for name in names(parties)}
    vectors["c0"] = np.zeros(length, np.uint64)  # an empty party
    vectors["c1"] = np.eye(1, length, 2, dtype=np.uint64)[0]  # a party of one row
    return vectors


# -- exactness -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3, 5, 20])
def test_the_builder_gets_the_exact_sum_and_nobody_else_gets_anything(parties: int) -> None:
    vectors = counts(parties)
    outcome = play(vectors)
    assert (total(outcome) == sum(vectors.values())).all()
    assert outcome.outputs[BUILDER].included == tuple(vectors)
    assert all(outcome.outputs[name] is None for name in vectors)
    assert outcome.opened == {BUILDER: ("sum",), **dict.fromkeys(vectors, ())}


@pytest.mark.parametrize(("parties", "neighbours"), [(40, None), (40, 4), (9, 2), (9, 8), (9, 100)])
def test_sparse_masks_cancel_too(parties: int, neighbours: int | None) -> None:
    vectors = counts(parties)
    assert (total(play(vectors, options={"neighbours": neighbours})) == sum(vectors.values())).all()


def test_signed_totals_at_their_bounds_are_exact() -> None:
    low, high = -(2**62), 2**62
    vectors = {
        "a": words([high, low, -1, 1, 0, 5]),
        "b": words([0, 0, 1, -1, 0, -5]),
        "c": words([-high, -low, -1, 0, low, 7]),
    }
    expected = words([0, 0, -1, 0, low, 7])
    assert (total(play(vectors, bound=2**62)) == expected).all()


def test_narrow_bounds_take_fewer_ciphertexts_and_give_the_same_sum() -> None:
    vectors = counts(4, 40)
    wide = play(vectors)
    narrow = play(vectors, ranges=((0, 4000, 30), (0, 4000, 10)))
    assert (total(wide) == total(narrow)).all()
    sizes = [sum(entry.size for entry in run.transcript.entries if entry.kind is LinkSent) for run in (wide, narrow)]
    assert 2 * sizes[1] < sizes[0]


def test_the_sum_is_exact_with_real_key_sizes() -> None:
    vectors = counts(3, 50)
    outcome = play(vectors, options={"key_bits": 2048, "toy_keys": False})
    assert (total(outcome) == sum(vectors.values())).all()


@pytest.mark.slow
@pytest.mark.parametrize("parties", [2, 3, 5, 20])
def test_the_sum_is_exact_with_the_default_key(parties: int) -> None:
    vectors = counts(parties, 300)
    outcome = play(vectors, options={"key_bits": 3072, "toy_keys": False})
    assert (total(outcome) == sum(vectors.values())).all()


@pytest.mark.parametrize("name", ["iris", "car", "adult"])
@pytest.mark.parametrize("parties", [2, 3, *(pytest.param(many, marks=pytest.mark.slow) for many in (5, 20))])
def test_pooled_statistics_are_exact(name: str, parties: int, dataset: Callable[[str], Any]) -> None:
    pandas = pytest.importorskip("pandas")
    from blindbayes import Codebook
    from blindbayes.data import count
    from blindbayes.statistics import Layout, Statistics

    frame = pandas.read_csv(dataset(name), keep_default_na=False, na_values=["?"])[:4000]
    codebook = Codebook.from_frame(frame, target=frame.columns[-1])
    layout = Layout(codebook)
    rng = np.random.default_rng(parties)
    place = rng.integers(0, parties, len(frame))
    place[place == 0] = parties - 1  # c0 is empty
    if parties > 2:
        place[place == 1] = parties - 1
        place[0] = 1  # c1 has one row
    parts = {f"c{index}": frame[place == index].reset_index(drop=True) for index in range(parties)}
    vectors = {party: layout.words(count(part, codebook).vector) for party, part in parts.items()}
    opened = layout.from_words(total(play(vectors)))
    assert Statistics(layout, opened) == count(frame, codebook)


# -- the SPEC --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 5, 40])
def test_labels_and_cost_are_those_of_the_spec(parties: int) -> None:
    written = spec("chain_sum")
    outcome = play(counts(parties))
    assert sorted({label for labels in outcome.opened.values() for label in labels}) == sorted(written["opened"])
    assert outcome.cost.rounds == eval(written["rounds"], {}, {"n": parties})
    assert outcome.cost.messages == eval(written["messages"], {}, {"n": parties})
    assert outcome.unread == 0
    assert written["minimum"] == 2


def test_noisy_vectors_open_a_noisy_sum() -> None:
    vectors = counts(3)
    setting = SumSetup(tuple(vectors), 7, noisy=True, options=TOY)
    runs = local_runs(PROTOCOL.roster(setting), coins=coins(99))
    outcome = run_in_memory(simulate_roles(PROTOCOL, runs, setting, vectors, coins()))
    assert outcome.opened[BUILDER] == ("noisy_sum",)


def test_the_same_coins_and_messages_give_the_same_run() -> None:
    first, second = play(counts(3)), play(counts(3))
    assert [entry.frame for entry in first.transcript.entries] == [entry.frame for entry in second.transcript.entries]


# -- the order and the masks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parties", "neighbours"), [(6, 2), (7, 4), (6, 5), (33, 8)])
def test_a_plan_is_a_permutation_and_a_regular_symmetric_graph(parties: int, neighbours: int) -> None:
    plan = ChainLayout(bytes(32), names(parties), neighbours)
    assert sorted(plan.order) == sorted(names(parties))
    for name in names(parties):
        assert len(plan.neighbours(name)) == neighbours
        assert all(name in plan.neighbours(other) for other in plan.neighbours(name))
        following = plan.following(name)
        assert following is None or plan.previous(following) == name


def test_every_order_comes_up() -> None:
    seen = {ChainLayout(index.to_bytes(32, "big"), names(4), 3).order for index in range(400)}
    assert len(seen) == 24  # one is missed with probability below 24 * (23/24)^400 = 1e-6; the digests are fixed


def test_masks_are_shared_by_two_and_differ_by_chunk_pair_and_run() -> None:
    public = generate_keypair(256, coins(), toy_keys=True).public
    keys = {name: AgreementKey.generate(coins(index)) for index, name in enumerate("abc")}
    runs = {name: local_runs(("a", "b", "c"), run_id=name, coins=coins()) for name in ("one", "other")}

    def made(me: str, other: str, run: str = "one", key: str = "") -> list[int]:
        digest = roles.roster_digest(runs[run][me], b"modulus", bytes(32), bytes(32))
        channel = roles.channel(runs[run][me], keys[me], other, keys[key or other].public, digest)
        return roles.masks(channel, public, 4)

    shared = made("a", "b")
    assert shared == made("b", "a")
    others = [*made("a", "c"), *made("a", "b", run="other"), *made("a", "c", key="b")]
    assert len({mask % int(public.n) for mask in [*shared, *others]}) == 16
    assert min(mask.bit_length() for mask in shared) > public.bits + 64  # much wider than N: uniform once it is reduced


def observed(plan: ChainLayout, corrupt: set[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str]]:
    """What the builder and `corrupt` can compute, as rows over the honest vectors and over the masks between honest ones."""
    honest = [name for name in plan.contributors if name not in corrupt]
    edges = [(a, b) for a, b in itertools.combinations(honest, 2) if b in plan.neighbours(a)]
    segments: list[list[str]] = [[]]
    for name in plan.order:
        if name in corrupt:
            segments.append([])
        else:
            segments[-1].append(name)
    segments = [segment for segment in segments if segment]
    of_vectors = np.array([[float(name in segment) for name in honest] for segment in segments])
    of_masks = np.array([[float(a in segment) - float(b in segment) for a, b in edges] for segment in segments])
    return of_vectors, of_masks.reshape(len(segments), len(edges)), honest


@pytest.mark.parametrize(("parties", "neighbours"), [(5, 4), (6, 2), (7, 2), (8, 4)])
def test_a_coalition_with_the_builder_learns_the_sums_over_the_exposed_components_and_no_more(
    parties: int, neighbours: int
) -> None:
    alone = 0
    for digest in range(3):
        plan = ChainLayout(bytes([digest]) * 32, names(parties), neighbours)
        for size in range(parties):
            for corrupt in itertools.combinations(names(parties), size):
                vectors, masks, honest = observed(plan, set(corrupt))
                exposed = plan.exposed(corrupt)
                assert set().union(*exposed) == set(honest)
                # As many independent combinations without masks as there are components ...
                rank = np.linalg.matrix_rank(masks) if masks.size else 0
                assert len(masks) - rank == len(exposed)
                # ... and each component's sum is one of them.
                for component in exposed:
                    wanted = np.concatenate([[float(name in component) for name in honest], np.zeros(masks.shape[1])])
                    table = np.hstack([vectors, masks])
                    found, *_ = np.linalg.lstsq(table.T, wanted, rcond=None)
                    assert np.allclose(found @ table, wanted)
                if neighbours == parties - 1:
                    assert exposed == {frozenset(honest)}
                alone += sum(len(component) == 1 for component in exposed) if len(honest) > 1 else 0
    assert (alone > 0) == (neighbours < parties - 1)  # the sparse graph has its price, and this test can see it


# -- the subtraction attack ------------------------------------------------------------------------------------------


class Attacker:
    """The builder's key, a copy of every message, and the run keys of the contributors that help."""

    def __init__(
        self, outcome: Outcome, vectors: dict[str, U64Array], neighbours: int, helpers: set[str], seed: int = 0
    ) -> None:
        setting = SumSetup(tuple(vectors), 7, options={**TOY, "neighbours": neighbours})
        self.options = roles.read_options(setting)
        self.run = local_runs(PROTOCOL.roster(setting), coins=coins(99))[BUILDER]
        party = coins(seed).derive(f"party {BUILDER}")
        self.private = generate_keypair(512, party.derive("chain paillier"), toy_keys=True)
        self.keys = {name: AgreementKey.generate(coins(seed).derive(f"party {name}")) for name in helpers}
        self.keys[BUILDER] = AgreementKey.generate(party.derive("chain agreement"))
        rosters = [entry for entry in outcome.transcript.entries if entry.kind is RosterListed]
        roster = decode(rosters[0].frame or b"", RosterListed)
        assert roster.modulus == self.private.public.to_bytes()
        assert roster.builder_key == self.keys[BUILDER].public
        self.digest = roles.roster_digest(self.run, roster.modulus, roster.builder_key, roster.keys_digest)
        self.plan = ChainLayout(self.digest, setting.contributors, self.options.neighbours)
        announced = [entry for entry in outcome.transcript.entries if entry.kind is KeyAnnounced]
        self.public_keys = {entry.sender: decode(entry.frame or b"", KeyAnnounced).key for entry in announced}
        self.public_keys[BUILDER] = roster.builder_key
        self.links = {e.sender: decode(e.frame or b"", LinkSent) for e in outcome.transcript.entries if e.kind is LinkSent}

    def channel(self, mine: str, theirs: str) -> bytes:
        """What a party whose run key the attacker has shares with another."""
        run = replace(self.run, me=mine)
        return roles.channel(run, self.keys[mine], theirs, self.public_keys[theirs], self.digest)

    def opened_link(self, sender: str) -> list[int]:
        """The plaintexts of the running sum after `sender`, if the attacker can unseal it."""
        receiver = self.plan.following(sender) or BUILDER
        mine, theirs = (receiver, sender) if receiver in self.keys else (sender, receiver)
        if mine not in self.keys:
            mine = BUILDER  # the best it can do: every key it has fails
        channel = self.channel(mine, theirs)
        data = roles.unseal(self.run, channel, "chain link", sender, receiver, self.digest, self.links[sender].sealed)
        return self.private.decrypt_many(self.private.public.unpack_ciphertexts(data, self.options.packing.chunks))

    def difference(self, target: str) -> list[int]:
        """What the target added to the running sum, with every mask stripped that the attacker knows."""
        before = self.plan.previous(target)
        start = self.opened_link(before) if before else [0] * self.options.packing.chunks
        added = [after - ahead for after, ahead in zip(self.opened_link(target), start, strict=True)]
        for other in self.plan.neighbours(target):
            if other in self.keys:
                sign = 1 if self.plan.index(target) < self.plan.index(other) else -1
                shared = roles.masks(self.channel(other, target), self.private.public, len(added))
                added = [value - sign * mask for value, mask in zip(added, shared, strict=True)]
        return [self.private.public.signed(value) for value in added]

    def reads(self, target: str, vector: U64Array) -> bool:
        try:
            return self.options.packing.unpack(self.difference(target)) == vector.astype(np.int64).tolist()
        except (IntegrityError, PeerProtocolError):
            return False


def test_the_subtraction_attack_fails_on_the_default() -> None:
    """The builder with every message reads no one, nor with both chain neighbours; with all mask neighbours too, it does."""
    vectors = counts(9)
    outcome = play(vectors, options={"neighbours": 4})
    alone = Attacker(outcome, vectors, 4, set())
    assert not any(alone.reads(target, vectors[target]) for target in vectors)
    for target in vectors:
        if alone.plan.following(target) is not None:
            with pytest.raises(IntegrityError):
                alone.opened_link(target)
        around = {alone.plan.previous(target), alone.plan.following(target)} - {None}
        assert not Attacker(outcome, vectors, 4, around).reads(target, vectors[target])  # type: ignore[arg-type]
        shared = set(alone.plan.neighbours(target))
        for missing in shared:
            few = around | shared - {missing}
            assert Attacker(outcome, vectors, 4, few).reads(target, vectors[target]) == (missing in around)  # type: ignore[arg-type]
        assert Attacker(outcome, vectors, 4, around | shared).reads(target, vectors[target])  # type: ignore[arg-type]


def quotients(outcome: Outcome, vectors: dict[str, U64Array]) -> dict[str, list[int]]:
    """What two hops around a contributor see without the builder's key: the quotient of their links, as if it were (1+N)^m."""
    attacker = Attacker(outcome, vectors, len(vectors) - 1, set(vectors))
    public = attacker.private.public
    found = {}
    for target in attacker.plan.order[1:-1]:
        ends = []
        for sender in (attacker.plan.previous(target), target):
            assert sender is not None
            receiver = attacker.plan.following(sender)
            assert receiver is not None
            data = roles.unseal(
                attacker.run,
                attacker.channel(receiver, sender),
                "chain link",
                sender,
                receiver,
                attacker.digest,
                attacker.links[sender].sealed,
            )
            ends.append(public.unpack_ciphertexts(data, attacker.options.packing.chunks))
        found[target] = [
            int(after * pow(before, -1, public.n_squared) % public.n_squared) for before, after in zip(*ends, strict=True)
        ]
    return found


@pytest.mark.parametrize("mutant", [False, True], ids=["shipped", "without randomisers"])
def test_hops_around_a_contributor_see_fresh_ciphertexts(mutant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant:
        monkeypatch.setattr(PublicKey, "encrypt_with", lambda self, m, randomiser: self.add_plain(1, m))
    vectors = counts(5)
    outcome = play(vectors)
    public = generate_keypair(512, coins().derive(f"party {BUILDER}").derive("chain paillier"), toy_keys=True).public
    for values in quotients(outcome, vectors).values():
        assert all((value % public.n == 1) == mutant for value in values)  # (1+N)^m is 1 modulo N


def test_no_vector_stands_in_the_transcript() -> None:
    canary = 0x1234567890ABCDEF
    vectors = {name: words([canary, canary]) for name in names(3)}
    outcome = play(vectors, bound=2**63 - 1)
    for entry in outcome.transcript.entries:
        for order in ("little", "big"):
            assert canary.to_bytes(8, order) not in (entry.frame or b"")  # type: ignore[arg-type]


# -- bad input -------------------------------------------------------------------------------------------------------


def require_clean_end(outcome: Outcome, *kinds: type[BlindbayesError]) -> Any:
    error = error_of(outcome)
    assert isinstance(error, kinds), error
    assert outcome.opened[BUILDER] == ()
    assert BUILDER not in outcome.outputs or not len(outcome.outputs[BUILDER].words)
    return error


def flip(frame: bytes, at: int) -> bytes:
    changed = bytearray(frame)
    changed[at] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("index", range(12))
@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.999])
def test_a_changed_bit_in_any_message_ends_the_run(index: int, place: float) -> None:
    outcome = play(counts(3), faults=(Tamper(index, lambda frame: flip(frame, int(place * len(frame)))),), check=False)
    require_clean_end(outcome, IntegrityError, PeerProtocolError)


@pytest.mark.parametrize("index", range(12))
def test_a_lost_message_ends_the_run_and_names_somebody(index: int) -> None:
    outcome = play(counts(3), faults=(Drop(index),), check=False)
    error = require_clean_end(outcome, PeerLost, PeerProtocolError)  # the latter if the next message comes in its place
    assert error.party is not None


@pytest.mark.parametrize("index", range(12))
def test_a_repeated_message_changes_nothing_or_ends_the_run(index: int) -> None:
    outcome = play(counts(3), faults=(Duplicate(index),), check=False)
    if outcome.error is None:
        assert (total(outcome) == sum(counts(3).values())).all()
    else:
        require_clean_end(outcome, PeerProtocolError, IntegrityError)


@pytest.mark.parametrize("party", ["c0", "c1", "c2"])
@pytest.mark.parametrize("before", range(5))
def test_a_vanished_contributor_ends_the_run(party: str, before: int) -> None:
    outcome = play(counts(3), faults=(Vanish(party, before),), check=False)
    if outcome.error is None:  # it had nothing left to do
        assert outcome.outputs[BUILDER] is not None
    else:
        require_clean_end(outcome, PeerLost)


@pytest.mark.parametrize("kind", [KeyAnnounced, RosterListed, RandomisersDealt, LinkSent])
def test_a_message_replayed_from_another_run_is_refused(kind: type[Message]) -> None:
    earlier = play(counts(3), run_id="earlier")
    old = next(entry for entry in earlier.transcript.entries if entry.kind is kind)
    fault = Replace(
        lambda entry: entry.kind is kind and entry.sender == old.sender and entry.to == old.to,
        lambda _: decode(old.frame or b"", kind),
    )
    outcome = play(counts(3), run_id="later", faults=(fault,), check=False)
    struck = any(e.kind is kind and (e.sender, e.to) == (old.sender, old.to) for e in outcome.transcript.entries)
    if struck:
        require_clean_end(outcome, IntegrityError, PeerProtocolError)
    else:  # the chain went another way in this run
        assert kind is LinkSent


def test_a_link_replayed_from_another_sender_is_refused() -> None:
    honest = play(counts(4))
    links = [entry for entry in honest.transcript.entries if entry.kind is LinkSent]
    first = decode(links[0].frame or b"", LinkSent)
    for link in links[1:]:
        outcome = play(counts(4), faults=(Replace(link.index, lambda _: first),), check=False)
        assert require_clean_end(outcome, IntegrityError).party == link.sender


def wrong_keys() -> dict[str, Callable[[], PrivateKey]]:
    return {
        "shorter": lambda: generate_keypair(448, coins(5), toy_keys=True),
        "longer": lambda: generate_keypair(640, coins(5), toy_keys=True),
    }


@pytest.mark.parametrize("which", ["shorter", "longer"])
def test_a_modulus_of_another_size_is_refused(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "generate_keypair", lambda *_, **__: wrong_keys()[which]())
    assert require_clean_end(play(counts(3), check=False), PeerProtocolError).party == BUILDER


@pytest.mark.parametrize("which", ["even", "prime", "square", "small factor"])
def test_a_modulus_that_is_no_product_of_large_primes_is_refused(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import gmpy2

    big = int(gmpy2.next_prime(3 << 254))
    bad = {
        "even": (1 << 512) - 2,
        "prime": int(gmpy2.next_prime(1 << 511)),
        "square": big * big,
        "small factor": 3 * int(gmpy2.next_prime(1 << 510)),
    }[which]
    assert bad.bit_length() == 512
    monkeypatch.setattr(PublicKey, "to_bytes", lambda self: bad.to_bytes(64, "big"))
    assert require_clean_end(play(counts(3), check=False), PeerProtocolError).party == BUILDER


@pytest.mark.parametrize("bad", ["zero", "N^2", "multiple of a prime", "short", "long"])
@pytest.mark.parametrize("step", ["chain link", "chain randomisers"])
def test_a_value_outside_the_ring_is_refused(step: str, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    private = generate_keypair(512, coins().derive(f"party {BUILDER}").derive("chain paillier"), toy_keys=True)
    seal = roles.seal
    size = private.public.ciphertext_bytes
    value = {"zero": 0, "N^2": int(private.public.n_squared), "multiple of a prime": int(private._p) * 5}.get(bad)

    def evil(run: Any, secret: bytes, at: str, sender: str, receiver: str, digest: bytes, plaintext: bytes) -> bytes:
        if at == step:
            if value is not None:
                plaintext = value.to_bytes(size, "big") + plaintext[size:]
            else:
                plaintext = plaintext[:-1] if bad == "short" else plaintext + b"\0"
        return seal(run, secret, at, sender, receiver, digest, plaintext)

    monkeypatch.setattr(roles, "seal", evil)
    require_clean_end(play(counts(3), check=False), PeerProtocolError)


def test_masks_that_do_not_cancel_are_noticed_and_nothing_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    masks, calls = roles.masks, []

    def sloppy(*arguments: Any) -> list[int]:
        calls.append(1)
        return [mask + (len(calls) == 1) for mask in masks(*arguments)] if len(calls) > 1 else [0] * arguments[2]

    monkeypatch.setattr(roles, "masks", sloppy)
    require_clean_end(play(counts(3), check=False), PeerProtocolError)


def test_a_total_past_its_bounds_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    for lie in (340, 400 << 60):  # 1,020 in the first of seven fields of 10 bits; past the end of the last
        monkeypatch.setattr(Packing, "pack", lambda self, values, lie=lie: [lie] * self.chunks)
        outcome = play(counts(3), ranges=((0, 1000, 7),), check=False)
        require_clean_end(outcome, PeerProtocolError)


def test_the_last_hop_can_forge_the_total_as_the_spec_says_and_no_other_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever replaces the running sum by an encryption of its own, without masks: noticed, unless nobody adds masks later."""
    vectors = counts(5)
    order = [entry.sender for entry in play(vectors).transcript.entries if entry.kind is LinkSent]
    private = generate_keypair(512, coins().derive(f"party {BUILDER}").derive("chain paillier"), toy_keys=True)
    forged = Packing([(-(2**63 - 1), 2**63 - 1, 7)], 510).pack([1, 2, 3, 4, 5, 6, 7])
    seal = roles.seal
    for liar in order:

        def evil(
            run: Any, secret: bytes, at: str, sender: str, receiver: str, digest: bytes, plaintext: bytes, liar: str = liar
        ) -> bytes:
            if (at, sender) == ("chain link", liar):
                plaintext = private.public.pack_ciphertexts(private.encrypt_many(forged, coins(8)))
            return seal(run, secret, at, sender, receiver, digest, plaintext)

        monkeypatch.setattr(roles, "seal", evil)
        outcome = play(vectors, check=False)
        if liar == order[-1]:
            assert total(outcome).tolist() == [1, 2, 3, 4, 5, 6, 7]
        else:
            require_clean_end(outcome, PeerProtocolError)


def test_a_strangers_key_in_the_roster_is_refused() -> None:
    stranger = AgreementKey.generate(coins(77)).public

    def swap(message: Message) -> Message:
        assert isinstance(message, KeyAnnounced)
        return KeyAnnounced(stranger, message.signature)

    outcome = play(
        counts(3), faults=(Replace(lambda entry: entry.kind is KeyAnnounced and entry.sender == "c1", swap),), check=False
    )
    assert require_clean_end(outcome, IntegrityError).party == "c1"


@pytest.mark.parametrize(("parties", "neighbours"), [(3, None), (9, 4)])
@pytest.mark.parametrize("everywhere", [True, False], ids=["in keys and digest", "in keys"])
def test_a_builder_that_swaps_run_keys_is_noticed_before_the_victim_adds_anything(
    parties: int, neighbours: int | None, everywhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists a key of its own for c1: whoever shares a mask with c1, or sends its link there, misses c1's signature."""
    vectors, options = counts(parties), {"neighbours": neighbours}
    stranger = AgreementKey.generate(coins(77)).public
    announced = [entry for entry in play(vectors, options=options).transcript.entries if entry.kind is KeyAnnounced]
    real = next(decode(entry.frame or b"", KeyAnnounced).key for entry in announced if entry.sender == "c1")
    if everywhere:
        hashed = roles.digest_keys
        monkeypatch.setattr(roles, "digest_keys", lambda keys: hashed([stranger if key == real else key for key in keys]))

    def swap(message: Message) -> Message:
        assert isinstance(message, RosterListed)
        return msgspec.structs.replace(message, keys=message.keys.replace(real, stranger))

    outcome = play(vectors, options=options, faults=(Replace(lambda entry: entry.kind is RosterListed, swap),), check=False)
    assert require_clean_end(outcome, IntegrityError).party == BUILDER
    assert not any(entry.kind is LinkSent and entry.sender == "c1" for entry in outcome.transcript.entries)


def test_a_builder_that_lists_other_keys_than_it_hashed_is_noticed_where_all_share_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed, calls = roles.digest_keys, []

    def wrong_once(keys: Any) -> bytes:
        calls.append(1)
        return bytes(32) if len(calls) == 1 else hashed(keys)

    monkeypatch.setattr(roles, "digest_keys", wrong_once)
    assert require_clean_end(play(counts(3), check=False), IntegrityError).party == BUILDER


# -- our own input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"key_bits": 512, "toy_keys": False},
        {"neighbours": 3},
        {"neighbours": 0},
        {"bounds": [[0, 10, 7]]},  # an author's bounds would test whether a table passes them
        {"unknown": 1},
    ],
)
def test_bad_options_are_refused_before_anything_is_sent(options: dict[str, Any]) -> None:
    outcome = play(counts(9), options=options, check=False)
    require_clean_end(outcome, ConfigError)


@pytest.mark.parametrize("ranges", [((0, 10, 6),), ((5, 10, 7),)])
def test_ranges_that_fit_no_vector_are_refused(ranges: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(ConfigError):
        roles.read_options(SumSetup(names(3), 7, options=TOY, ranges=ranges))


def test_bad_rosters_are_refused() -> None:
    with pytest.raises(ConfigError):
        roles.read_options(SumSetup(("a",), 3, options=TOY))
    with pytest.raises(ConfigError):
        roles.read_options(SumSetup(("a", BUILDER), 3, options=TOY))


def test_our_own_vector_outside_the_bounds_never_leaves() -> None:
    vectors = {"a": words([5]), "b": words([-1])}
    outcome = play(vectors, ranges=((0, 10, 1),), check=False)
    error = require_clean_end(outcome, LocalProtocolError)
    assert outcome.failed == "b"
    assert "-1" not in str(error)
    assert not any(entry.sender == "b" for entry in outcome.transcript.entries)


def test_without_identities_nothing_is_sent() -> None:
    setting = SumSetup(names(3), 7, options=TOY)
    runs = local_runs(PROTOCOL.roster(setting), coins=coins(99), signed=False)
    outcome = run_in_memory(simulate_roles(PROTOCOL, runs, setting, counts(3), coins()), check=False)
    require_clean_end(outcome, LocalProtocolError)
    assert outcome.cost.messages == 0
