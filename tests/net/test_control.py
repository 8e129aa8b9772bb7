"""Control frames of a peer that deviates end in a typed error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from blindbayes.errors import PeerProtocolError
from blindbayes.net.control import read_confirm
from blindbayes.net.envelope import Session


def test_a_confirmation_with_text_that_is_not_utf_8_names_the_peer() -> None:
    session = cast(Session, SimpleNamespace(pair=SimpleNamespace(peer="south")))
    body = msgspec.msgpack.encode([b"proof", 0, b"", 0, b"", b"", {"wire": "1"}]).replace(b"wire", b"\xff\xfe\xfd\xfc")
    with pytest.raises(PeerProtocolError, match="not well formed") as error:
        read_confirm(session, body)
    assert error.value.party == "south"
