"""oblivious_sum: what a contributor's standing key opens, stolen after the runs have ended, for who kept the ciphertexts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.huai2015.oblivious_sum.messages import CiphertextsSent
from blindbayes_papers.huai2015.oblivious_sum.session import KeySession
from blindbayes_papers.huai2015.oblivious_sum.terms import ObliviousSumSetup
from support.sums import names

VICTIM, BOUND = "site1", 1000


@pytest.mark.parametrize("keys", ["standing", "pairwise"])
def test_a_stolen_standing_key_opens_what_its_site_sent_and_a_key_of_the_run_is_gone(keys: str) -> None:
    options = {"scheme": "ristretto", "keys": keys}
    setting = registry.SumSetup(names(4), 3, bound=BOUND, options=options)
    protocol, coins = registry.load("oblivious_sum"), Coins.seeded(bytes(32))
    runs = local_runs(protocol.roster(setting), coins=coins.derive("identities"))
    vectors = {name: coins.derive(name).words(3) % 100 for name in names(4)}
    kept = run_in_memory(registry.simulate_roles(protocol, runs, setting, vectors, coins), keep=Keep.FRAMES).transcript
    sent = {each.sender: each.frame for each in kept.entries if each.kind is CiphertextsSent}

    def read(site: str) -> list[int]:
        """By the victim's identity and standing key, and what is public: its coins of that run are gone."""
        terms = ObliviousSumSetup(runs[VICTIM], replace(setting, options={**options, "keys": "standing"}))
        scheme = terms.scheme(None)
        thief = KeySession(terms, scheme, Coins.seeded(bytes([9]) * 32))
        thief.stand()
        masks = scheme.masks(-thief.zero_key, terms.label(thief.digest, "sum"), 3)
        frame = sent[site]
        assert frame is not None
        opened = scheme.open(scheme.multiply([decode(frame, CiphertextsSent).elements, masks]))
        return scheme.packing(3, BOUND).unpack(opened)

    if keys == "standing":
        assert read(VICTIM) == vectors[VICTIM].tolist()
    for other in [name for name in names(4) if name != VICTIM or keys == "pairwise"]:
        with pytest.raises((IntegrityError, PeerProtocolError)):
            read(other)
