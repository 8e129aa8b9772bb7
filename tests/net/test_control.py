"""Control frames of a peer that deviates end in a typed error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.net.control import Confirm, read_confirm
from blindbayes.net.envelope import EnvelopePair, Session, fresh_key
from blindbayes.net.identity import Identity


def test_a_confirmation_with_text_that_is_not_utf_8_names_the_peer() -> None:
    session = cast(Session, SimpleNamespace(pair=SimpleNamespace(peer="south")))
    body = msgspec.msgpack.encode([b"proof", 0, b"", 0, b"", b"", {"wire": "1"}]).replace(b"wire", b"\xff\xfe\xfd\xfc")
    with pytest.raises(PeerProtocolError, match="not well formed") as error:
        read_confirm(session, body)
    assert error.value.party == "south"


def test_a_confirmation_with_the_proof_of_another_is_refused() -> None:
    """The heads in it could be anybody's."""
    north, south, west = (Identity.generate(name) for name in ("north", "south", "west"))
    coins = Coins.seeded(bytes(32))
    keys = fresh_key(coins), fresh_key(coins)
    pair = EnvelopePair("ab" * 32, "cd" * 16, "north", "south", south.card.identity, north.signing)
    session = Session(pair, keys[0], keys[1].public)
    for name, signer in (("south", south), ("west", west)):
        theirs = Session(EnvelopePair(pair.study, pair.run_id, "south", "north", b"", signer.signing), keys[1], keys[0].public)
        body = msgspec.msgpack.encode(Confirm(theirs.proof(b"heads"), 0, b"", 0, b"heads"))
        if name == "south":
            assert read_confirm(session, body).heads == b"heads"
        else:
            with pytest.raises(IntegrityError):
                read_confirm(session, body)
