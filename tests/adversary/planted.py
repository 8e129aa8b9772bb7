"""The defences, one by one, as they were missing before: what the kit must find when they are taken away."""

from __future__ import annotations

from typing import Any

import pytest

from blindbayes.primitives import prg
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.prg import derive_key
from blindbayes.protocol import pair_keys
from blindbayes.protocol.masked_sum import contributor, keys, server


def unbound_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys of a pair from their secret and the scope alone, without names."""

    def pair_key(key: AgreementKey, public: bytes, *, me: str, other: str, scope: bytes, purpose: str) -> bytes:
        return derive_key(key.agree(public, party=other), purpose, scope)

    patch.setattr(pair_keys, "pair_key", pair_key)


def unchecked_keys(patch: pytest.MonkeyPatch) -> None:
    """No key is refused."""
    patch.setattr(pair_keys, "require_keys", lambda *given, **named: None)


def blamed_authors(patch: pytest.MonkeyPatch) -> None:
    """A box that does not open names its author alone, and a wrong tag the server alone."""

    def unseal(terms: keys.MaskedSumSetup, key: bytes, box: bytes, author: str) -> bytes:
        return contributor.aead.unseal(key, box, associated=terms.context, party=author)

    def require_tag(expected: bytes, given: bytes, suspects: tuple[str, ...]) -> None:
        keys.require_tag(expected, given, suspects[:1])

    patch.setattr(contributor, "_unseal", unseal)
    patch.setattr(contributor, "require_tag", require_tag)


def patient_server(patch: pytest.MonkeyPatch) -> None:
    """A server that lists neighbourhoods below the threshold."""
    patch.setattr(server, "_require_enough", lambda *given: None)


def one_seed_for_all(patch: pytest.MonkeyPatch) -> None:
    """All pairs have the same mask."""
    patch.setattr(keys.MaskedSumSetup, "mask_key", lambda self, *pair: derive_key(bytes(32), "one for all"))


def no_own_mask(patch: pytest.MonkeyPatch) -> None:
    """No mask of one's own: a vector that is declared lost is bare."""

    def without(vector: Any, plus: list[bytes], minus: list[bytes]) -> Any:
        return prg.add_masks(vector, plus[1:], minus)

    patch.setattr(contributor, "add_masks", without)
