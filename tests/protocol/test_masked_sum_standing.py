"""Standing keys of masked_sum: later runs, members who are lost, come, go or are set back, and what a leak or a server gets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from nacl import bindings

from blindbayes import kernels
from blindbayes.errors import ConfigError, ProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.prg import keys_of
from blindbayes.protocol import registry
from blindbayes.protocol.core import Role, Send, receive_all
from blindbayes.protocol.masked_sum import contributor, keys, messages, ratchet
from blindbayes.transport.memory import Fault, KeptInMemory, Outcome, Replace, Vanish, local_runs, run_in_memory
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.sums import cost, names, pooled, random_vectors

SENDS_VECTOR = 4


class Living:
    """A study that runs again and again: each party has its identity and what it keeps."""

    def __init__(self, parties: Sequence[str]) -> None:
        self.kept = {name: KeptInMemory() for name in parties}
        self.count = itertools.count()

    def run(
        self,
        parties: Sequence[str] | None = None,
        quorum: int | None = None,
        faults: Sequence[Fault] = (),
        *,
        seed: bytes | None = None,
        server: Callable[[keys.MaskedSumSetup], Role[Any]] | None = None,
        **how: Any,
    ) -> tuple[dict[str, np.ndarray], Outcome]:
        sites = tuple(self.kept if parties is None else parties)
        number = next(self.count)
        vectors = random_vectors(sites, 3, seed=bytes(31) + bytes([number]))
        setting = registry.SumSetup(sites, 3, quorum, options={"keys": "standing"})
        protocol = registry.load("masked_sum")
        coins = Coins.seeded(seed or bytes(30) + b"c" + bytes([number]))
        ids = local_runs(sorted({*self.kept, "server"}), coins=Coins.seeded(bytes(32)))  # the same in every run
        runs = {
            name: replace(ids[name], run_id=f"run {number}", parties=(*sites, "server"), kept=self.kept.get(name))
            for name in (*sites, "server")
        }
        roles = registry.simulate_roles(protocol, runs, setting, vectors, coins)
        if server is not None:
            roles["server"] = server(keys.MaskedSumSetup(runs["server"], setting))
        return vectors, run_in_memory(roles, faults=faults, check=False, **how)

    def chains(self, name: str) -> ratchet.Chains:
        found = ratchet.read(self.kept[name].state)
        assert found is not None
        return found


def key_of(chains: ratchet.Chains, other: str) -> bytes:
    found = chains.of((other,))
    assert found is not None
    return found


def right(found: tuple[Mapping[str, np.ndarray], Outcome], lost: Collection[str] = ()) -> bool:
    vectors, outcome = found
    if outcome.error is not None:
        raise outcome.error
    total = outcome.outputs["server"]
    assert set(total.included) == set(vectors) - set(lost)
    return bool(np.array_equal(total.words, pooled(vectors, total.included)))


def agreed(outcome: Outcome) -> int:
    """How many fresh keys were advertised."""
    sizes = [entry.size for entry in outcome.transcript.entries if entry.kind is messages.KeysAdvertised]
    return sum(size > 180 for size in sizes)


# -- later runs ------------------------------------------------------------------------------------------------------------


def test_keys_are_agreed_once_and_step_on_in_every_run() -> None:
    study = Living(names(5))
    first = study.run()
    assert right(first)
    assert agreed(first[1]) == 5
    seen = [study.chains("site0")]
    for _ in range(3):
        later = study.run()
        assert right(later)
        assert agreed(later[1]) == 0
        assert (later[1].cost.rounds, later[1].cost.messages) == (10, 50)
        seen.append(study.chains("site0"))
    assert [each.epoch for each in seen] == [1, 2, 3, 4]
    assert len({each.name for each in seen}) == 1
    assert len({key_of(each, "site1") for each in seen}) == 4
    for one, other in itertools.combinations(names(5), 2):
        assert key_of(study.chains(one), other) == key_of(study.chains(other), one)


@pytest.mark.parametrize("parties", [5, 12])
def test_a_later_run_costs_what_the_spec_says(parties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    study, done = Living(names(parties)), Counter[str]()
    study.run()
    for name in ("crypto_scalarmult", "crypto_sign_open", "crypto_sign"):

        def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
            return lambda *args: (done.update([name]), real(*args))[1]

        monkeypatch.setattr(bindings, name, counted(getattr(bindings, name), name))
    with kernels.using("off"):
        _, outcome = study.run()
    spec = registry.spec("masked_sum")
    sent = outcome.cost.parties["site0"].sent_bytes
    assert 0 < sent - cost(spec, "payload_up", parties, 3, stands=1) < 290
    assert done["crypto_scalarmult"] == cost(spec, "agreements", parties, 3, stands=1) == 0
    assert done["crypto_sign_open"] == cost(spec, "verifications", parties, 3, stands=1) == 0
    assert done["crypto_sign"] == 1  # the server's


def test_without_cards_in_the_roster_every_signature_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    count = Counter[str]()

    def verified(*args: Any, real: Any = bindings.crypto_sign_open) -> Any:
        count["verified"] += 1
        return real(*args)

    monkeypatch.setattr(bindings, "crypto_sign_open", verified)
    vectors = random_vectors(names(4), 3)
    setting = registry.SumSetup(names(4), 3)
    runs = local_runs((*names(4), "server"), coins=Coins.seeded(bytes(32)))
    bare = {name: replace(run, keys={}, agreement=None) for name, run in runs.items()}
    protocol = registry.load("masked_sum")
    outcome = run_in_memory(registry.simulate_roles(protocol, bare, setting, vectors, Coins.seeded(bytes(32))))
    assert np.array_equal(outcome.outputs["server"].words, pooled(vectors, names(4)))
    spec = registry.spec("masked_sum")
    assert count["verified"] == 4 * cost(spec, "verifications", 4, 3, cards=0) + 4
    mixed = {**bare, "site0": runs["site0"], "site1": runs["site1"]}  # as if two of the cards had keys
    cards = {name: runs[name].keys[name] for name in ("site0", "site1")}
    mixed = {name: replace(run, keys=cards) for name, run in mixed.items()}
    outcome = run_in_memory(registry.simulate_roles(protocol, mixed, setting, vectors, Coins.seeded(bytes(32))))
    assert np.array_equal(outcome.outputs["server"].words, pooled(vectors, names(4)))


def test_an_agreement_ends_after_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ratchet, keys):
        monkeypatch.setattr(module, "LIFE", 3)
    study = Living(names(3))
    fresh = []
    for _ in range(7):
        found = study.run()
        assert right(found)
        fresh.append(agreed(found[1]) > 0)
    assert fresh == [True, False, False, True, False, False, True]


def test_standing_keys_are_refused_on_a_sparse_graph() -> None:
    with pytest.raises(ConfigError, match="standing keys"):
        registry.load("masked_sum").check(registry.SumSetup(names(100), 3, 95, options={"keys": "standing"}))


# -- lost, gone, come, set back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(11))
def test_whoever_is_lost_in_a_later_run_is_recovered_and_comes_back(moment: int) -> None:
    study = Living(names(4))
    assert right(study.run(quorum=3))
    lost = {"site1"} if moment <= SENDS_VECTOR else set()
    assert right(study.run(quorum=3, faults=[Vanish("site1", moment)]), lost)
    behind = study.chains("site0").epoch - study.chains("site1").epoch
    assert behind == (1 if moment <= 1 else 0)
    back = study.run(quorum=3)
    assert right(back)
    assert agreed(back[1]) == 0
    assert study.chains("site0").epoch == study.chains("site1").epoch


def test_after_a_leave_the_others_go_on_and_after_a_join_all_agree_anew() -> None:
    study = Living(names(5))
    assert right(study.run(names(4)))
    left = study.run(names(3))
    assert right(left)
    assert agreed(left[1]) == 0
    assert set(study.chains("site0").others) == {"site1", "site2"}
    joined = study.run((*names(3), "site4"))
    assert right(joined)
    assert agreed(joined[1]) == 4
    again = study.run((*names(3), "site4"))
    assert right(again)
    assert agreed(again[1]) == 0


def test_a_member_without_its_keys_makes_all_agree_anew() -> None:
    study = Living(names(4))
    study.run()
    study.run()
    for state in (b"", b"garbage", ratchet.write(msgspec.structs.replace(study.chains("site2"), name=bytes(16)))):
        study.kept["site2"].state = state
        found = study.run()
        assert right(found)
        assert agreed(found[1]) == 4


def test_a_folder_that_was_set_back_steps_on_and_uses_no_stream_twice() -> None:
    """The same chain keys serve again, and every mask is another: the seeds to which all committed are new."""
    study = Living(names(4))
    study.run()
    before = {name: kept.state for name, kept in study.kept.items()}
    used = [masks_of(study)]
    for name in ("site1",), names(4):
        for each in name:
            study.kept[each].state = before[each]
        used.append(masks_of(study))
    assert study.chains("site0").epoch == study.chains("site1").epoch
    everything = [key for each in used for key in each]
    assert len(everything) == 3 * (4 + 4 * 3)
    assert max(Counter(everything).values()) == 2  # a pair's, once at each end; of one's own, once


def masks_of(study: Living, *faults: Fault) -> list[bytes]:
    """All keys of masks of one run."""
    found: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        real = contributor.add_masks

        def add_masks(vector: Any, plus: bytes, minus: bytes) -> Any:
            found.extend(keys_of(plus + minus))
            return real(vector, plus, minus)

        patch.setattr(contributor, "add_masks", add_masks)
        ended = study.run(faults=faults)
    assert faults or right(ended)
    assert found
    return found


def test_a_crash_after_the_step_and_before_the_send_repeats_nothing() -> None:
    """A run that died is another run when it is tried again: with the chain stepped on, or not, its masks are others."""
    study = Living(names(3))
    study.run()
    for lost in (True, False):  # whether the step reached the disk
        kept = study.kept["site0"].state
        first = masks_of(study, Vanish("site0", SENDS_VECTOR))
        if lost:
            study.kept["site0"].state = kept
        assert not set(first) & set(masks_of(study))


# -- what leaks, and what a server may do --------------------------------------------------------------------------------------


def test_recovering_a_lost_member_tells_the_secrets_of_that_run_alone() -> None:
    """Power: the same search finds the run's own secrets."""
    study = Living(names(4))
    study.run(quorum=3)
    opened: list[bytes] = []
    derived: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        shipped, run_keys = keys.MaskedSumSetup.mask_keys, keys.MaskedSumSetup.run_keys

        def mask_keys(self: Any, secrets: bytes) -> Any:
            if self.run.me == "server":
                opened.extend(keys_of(secrets))
            return shipped(self, secrets)

        def noted(self: Any, pairs: bytes, *rest: Any) -> Any:
            made = run_keys(self, pairs, *rest)
            derived.extend(key for joined in (pairs, *made) for key in keys_of(joined))
            return made

        patch.setattr(keys.MaskedSumSetup, "mask_keys", mask_keys)
        patch.setattr(keys.MaskedSumSetup, "run_keys", noted)
        assert right(study.run(quorum=3, faults=[Vanish("site1", SENDS_VECTOR)]), {"site1"})
        assert len(opened) == 3
        assert set(opened) <= set(derived)
        derived.clear()
        assert right(study.run(quorum=3))
    assert not set(opened) & set(derived)
    assert not any(secret in kept.state for kept in study.kept.values() for secret in opened)


def test_the_keys_of_a_past_run_do_not_follow_from_what_is_kept() -> None:
    study = Living(names(3))
    study.run()
    before = key_of(study.chains("site0"), "site1")
    study.run()
    after = key_of(study.chains("site0"), "site1")
    assert after == ratchet.forward(before, 1)
    assert all(ratchet.forward(after, steps) != before for steps in range(64))
    assert before not in study.kept["site0"].state


def lists(change: Callable[[Any], Any], to: str | None) -> Replace:
    return Replace(lambda entry: entry.kind is messages.KeysListed and to in (None, entry.to), change)


def altered(at: int) -> Callable[[Any], Any]:
    def change(message: Any) -> Any:
        said = bytearray(message.standing)
        said[at] ^= 1
        return msgspec.structs.replace(message, standing=bytes(said))

    return change


@pytest.mark.parametrize("at", [0, 40, 64, 79, 80], ids=["run key", "seed", "name", "name's end", "count"])
@pytest.mark.parametrize("to", [None, "site0", "site2"])
def test_a_server_that_alters_what_others_said_gets_no_vector(at: int, to: str | None) -> None:
    study = Living(names(3))
    study.run()
    _, outcome = study.run(faults=[lists(altered(at), to)])
    assert isinstance(outcome.error, ProtocolError)
    assert "server" in outcome.error.suspects
    assert set(outcome.opened.values()) == {()}
    assert not any(entry.kind is messages.SharesGiven for entry in outcome.transcript.entries)


def test_a_server_that_lists_nobody_only_makes_keys_fresh() -> None:
    study = Living(names(3))
    study.run()
    emptied: set[str] = set()

    def server(terms: keys.MaskedSumSetup) -> Role[Any]:
        said = yield from receive_all(terms.setting.contributors, messages.KeysAdvertised)
        for name in said:
            yield Send(name, messages.KeysListed(()))
        fresh = yield from receive_all(terms.setting.contributors, messages.KeysAdvertised)
        emptied.update(name for name, each in fresh.items() if each.public and each.commitments == said[name].commitments)
        for name in said:  # and to list nobody again is to show too few
            yield Send(name, messages.KeysListed(()))

    _, outcome = study.run(server=server)
    assert emptied == set(names(3))
    assert isinstance(outcome.error, ProtocolError)
    assert outcome.error.party == "server"


def test_a_list_of_an_earlier_run_is_of_no_use() -> None:
    study = Living(names(3))
    study.run()
    _, old = study.run(keep=Keep.FRAMES)
    shown = {entry.to: entry.frame for entry in old.transcript.entries if entry.kind is messages.KeysListed}
    replayed = lists(lambda message: decode(shown["site0"] or b"", messages.KeysListed, sender="server"), "site0")
    _, outcome = study.run(faults=[replayed])
    assert isinstance(outcome.error, ProtocolError)
    assert "server" in outcome.error.suspects
    assert set(outcome.opened.values()) == {()}


@pytest.mark.parametrize("standing", [b"x", bytes(17), bytes(16) + b"\xff", bytes(18)])
def test_a_contributor_that_says_nonsense_of_its_keys_ends_no_honest_ones(standing: bytes) -> None:
    """It is named, or it makes all agree anew and is named for a fresh key that it does not bring."""
    study = Living(names(3))
    study.run()

    def lie(message: Any) -> Any:
        return msgspec.structs.replace(message, standing=standing)

    fault = Replace(lambda entry: entry.kind is messages.KeysAdvertised and entry.sender == "site1" and entry.size < 180, lie)
    vectors, outcome = study.run(faults=[fault])
    if outcome.error is None:
        assert right((vectors, outcome))
        assert agreed(outcome) == 3
    else:
        assert isinstance(outcome.error, ProtocolError)
        assert set(outcome.error.suspects) <= {"site1"}


def test_who_counts_on_keys_that_it_does_not_hold_is_named_with_the_server() -> None:
    """It says the right name and count, and makes up the chain."""
    study = Living(names(3))
    study.run()
    own = study.chains("site1")
    forged = msgspec.structs.replace(own, keys=bytes(len(own.keys)))
    study.kept["site1"].state = ratchet.write(forged)
    _, outcome = study.run()
    assert isinstance(outcome.error, ProtocolError)
    assert set(outcome.error.suspects) & {"site1", "server"}
    assert set(outcome.opened.values()) == {()}


def test_a_lost_member_that_lied_about_a_mask_is_a_suspect_beside_its_neighbour() -> None:
    """Not in the sum, and the sum would be wrong: the other end's check tells."""
    study = Living(names(4))
    study.run(quorum=3)

    def lie(message: Any) -> Any:
        return msgspec.structs.replace(message, secrets=bytes(len(message.secrets)))

    fault = Replace(lambda entry: entry.kind is messages.SharesDealt and entry.sender == "site1", lie)
    _, outcome = study.run(quorum=3, faults=[fault, Vanish("site1", SENDS_VECTOR)])
    assert isinstance(outcome.error, ProtocolError)
    assert "site1" in outcome.error.suspects
    assert len(outcome.error.suspects) == 2
    assert set(outcome.opened.values()) == {()}
