"""Attacks on the sums and on the site agents that once went through, or nearly did. Each test is one attack."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent.approvals.summary import require_study
from blindbayes.agent.runs.release import write_release
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.net.driver import Finished, outcome_of
from blindbayes.net.envelope import EnvelopePair, pack
from blindbayes.net.identity import Card, Identity
from blindbayes.net.journal import Begun, Journal
from blindbayes.protocols import registry
from blindbayes.protocols.core import Send
from blindbayes.protocols.memory import local_runs
from blindbayes.protocols.pair_keys import digest_of, sign_keys
from blindbayes.protocols.secure_sum.messages import MaskedVectorSent
from blindbayes.study.file import StudyFile
from blindbayes.study.simulation.site import MemorySite
from blindbayes.wire import Message, decode, opening_of
from blindbayes.wire.transcript import PartyCost
from blindbayes_papers.huai2015.oblivious_sum.messages import (
    CorrectionsSent,
    KeyAnnounced,
    ModulusDealt,
    RosterNamed,
    SharesSealed,
)
from blindbayes_papers.huai2015.oblivious_sum.terms import ObliviousSumSetup
from blindbayes_papers.primitives.paillier import generate_keypair
from support.sites import BOOK, Office, bounded, paper_policy

SEED = bytes(range(32))


def test_a_miner_cannot_make_a_contributor_deal_twice_under_the_same_keys() -> None:
    """The same roster named twice would seal two sets of shares under one key and nonce: the forbidden use of AES-GCM."""
    names = ("a", "b", "c", "d")
    protocol = registry.load("oblivious_sum")
    setting = registry.SumSetup(names, 2, 3, bound=100, options={"scheme": "ristretto"})
    coins = Coins.seeded(SEED)
    runs = local_runs(protocol.roster(setting), run_id="run", coins=coins.derive("identities"))
    vector = coins.words(2) >> 60
    roles = {name: protocol.role(runs[name], setting, vector, coins.derive(name)) for name in names}
    announced: dict[str, KeyAnnounced] = {}
    for name, role in roles.items():
        effect = next(role)
        assert isinstance(effect, Send)
        assert isinstance(effect.message, KeyAnnounced)
        announced[name] = effect.message
    others = [announced[name] for name in names if name != "a"]
    terms = ObliviousSumSetup(runs["miner"], setting)
    scope = terms.scope(terms.scheme(None))
    miner = AgreementKey.generate(coins.derive("miner")).public
    keys = digest_of({name: announced[name].public for name in names})
    signature = sign_keys(runs["miner"], scope, miner, terms.roster_digest(names, keys, miner))
    publics, signatures = tuple(k.public for k in others), tuple(k.signature for k in others)
    roster = RosterNamed(names, miner, keys, signature, publics, signatures, (), False)
    next(roles["a"])
    first = roles["a"].send(roster)
    assert isinstance(first, Send)
    assert isinstance(first.message, SharesSealed)
    next(roles["a"])
    with pytest.raises(PeerProtocolError, match="roster"):
        roles["a"].send(roster)


@pytest.mark.parametrize("filler", [b"\x90", b"\x80", b"\x00", b"\xc4\x00", b"\x91\xc4\x00"])
@pytest.mark.parametrize(
    ("kind", "name"), [(MaskedVectorSent, "vector_masked"), (ModulusDealt, "modulus"), (CorrectionsSent, "elements")]
)
def test_a_frame_cannot_unfold_into_far_more_memory_than_it_has_bytes(kind: type[Message], name: str, filler: bytes) -> None:
    """Empty lists took 66 bytes of memory for each byte on the wire: 4 GB for one frame within the limit."""
    many = 1_200_000
    frame = opening_of(kind) + msgspec.msgpack.encode(name) + b"\xdd" + many.to_bytes(4, "big") + filler * many
    tracemalloc.start()
    try:
        with pytest.raises(PeerProtocolError):
            decode(frame, kind)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def _card(identity: Identity, certificate: bytes, address: str = "") -> Card:
    unsigned = dataclasses.replace(identity.card, certificate=certificate, address=address)
    return dataclasses.replace(unsigned, signature=identity.signing.sign(unsigned._signed_bytes()))


def test_a_card_holds_one_certificate_and_nothing_that_its_words_leave_out() -> None:
    """The words cover the first certificate; the TLS roots took whatever stood behind it as well."""
    mine, other = Identity.generate("evil"), Identity.generate("other")
    good = mine.card.certificate
    assert Card.from_toml(_card(mine, good, "host:1").to_toml()).words == mine.card.words
    for certificate in (good + other.card.certificate, b"\n" + good, b'"""\nname = "x"\n' + good, good + b"\n"):
        with pytest.raises(ConfigError, match="not a site's card"):
            Card.from_toml(_card(mine, certificate).to_toml())
    with pytest.raises(ConfigError, match="the address on a card must not hold control characters"):
        Card.from_toml(_card(mine, good, "host:1\x1b[2J").to_toml())


@pytest.mark.parametrize(
    "change", [{"title": "harmless\x1b[2K\rApproved"}, {"title": "two\nlines"}, {"estimation": {"alpha": math.nan}}]
)
def test_a_study_cannot_write_over_the_screen_of_who_approves_it(change: dict[str, Any]) -> None:
    parties = [{"name": name, "identity": f"{number:064x}"} for number, name in enumerate(("a", "b", "c"), 1)]
    fields = {"title": "t", "parties": parties, "codebook": BOOK.to_dict(), "hosts": {"server": "a"}}
    assert len(StudyFile.from_dict(fields).sha256) == 64
    with pytest.raises(ConfigError):
        StudyFile.from_dict({**fields, **change}).sha256  # noqa: B018


def test_offers_leave_nothing_on_the_screen_that_a_terminal_obeys(tmp_path: Path) -> None:
    """A pinned site chooses the study's hash and the run id of its offers; both are shown to people here."""

    async def attack() -> None:
        async with Office(tmp_path, ("north", "south", "west")) as office:
            study = office.net.make_study(BOOK)
            office.net.approve(study)
            south, north = office.net.sites["south"], office.agents["north"]
            assert north.home.approvals.all() == [study]  # read once, so that an offer is answered at once
            for run_id in ("\x1b[2J" * 8, "../" * 10):
                pair = EnvelopePair(
                    study.sha256, run_id, "south", "north", north.identity.card.identity, south.identity.signing
                )
                north.router.frame_arrived("south", pack(pair.offer(AgreementKey.generate(Coins.system()))))
                unknown = dataclasses.replace(pair, study=("\x1b[2J" * 16))
                north.router.frame_arrived("south", pack(unknown.offer(AgreementKey.generate(Coins.system()))))
            assert north.proposed_studies == {}
            assert north.home.audit.path.read_text().isascii()
            assert all(str(entry.get("run", "")).isprintable() for entry in north.home.audit.entries())
            assert [entry["run"] for entry in north.home.audit.entries() if entry["event"] == "refused"] != []

    bounded(attack)


def test_a_release_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A site's folder that was there before may be open to all; the exact sum in it must not be."""
    tmp_path.chmod(0o755)
    study = StudyFile.from_dict(
        {
            "title": "t",
            "parties": [{"name": name, "identity": f"{number:064x}"} for number, name in enumerate(("a", "b", "c"), 1)],
            "codebook": BOOK.to_dict(),
            "hosts": {"server": "a"},
        }
    )
    finished = Finished(None, (), {}, (), PartyCost())
    outcome, job = outcome_of({"a": finished}), study.task.at(MemorySite("a"), "ab" * 16)
    write_release(tmp_path / "releases", "ab" * 16, study, lambda: job.result(outcome))
    assert (tmp_path / "releases").stat().st_mode & 0o077 == 0


def test_a_flood_of_empty_messages_meets_the_quota_before_it_fills_the_memory(tmp_path: Path) -> None:
    """An empty message is 51 bytes on disk and 280 in memory: 4 GB of journal were 23 GB of memory."""
    begun = Begun("s", "ab" * 16, "me", SEED, b"", "c")
    journal = Journal.create(tmp_path / "me", begun, SEED, quota=1024**2)
    for _ in range(255):
        journal.receive("peer", "KeysListed", b"")
    with pytest.raises(LocalProtocolError, match="quota"):
        journal.receive("peer", "KeysListed", b"")
    journal.close()
    again = Journal.open(tmp_path / "me", begun.run_id, SEED, quota=1024**2)
    with pytest.raises(LocalProtocolError, match="quota"):
        again.receive("peer", "KeysListed", b"")
    again.close()


def test_a_study_cannot_bring_a_modulus_whose_factors_its_author_knows() -> None:
    """Miner and dealer must be apart; a modulus in the study's options would make the author both."""
    modulus = generate_keypair(2048, Coins.seeded(SEED)).public.n
    study = StudyFile.from_dict(
        {
            "title": "t",
            "parties": [{"name": name, "identity": f"{number:064x}"} for number, name in enumerate(("a", "b", "c"), 1)],
            "codebook": BOOK.to_dict(),
            "protocol": "oblivious_sum",
            "hosts": {"miner": "a"},
            "options": {"scheme": "joye_libert", "modulus": f"{int(modulus):x}"},
        }
    )
    with pytest.raises(PrivacyError, match="modulus"):
        require_study(paper_policy(), study)
