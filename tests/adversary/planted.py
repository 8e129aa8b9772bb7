"""The defences, one by one, as they were missing before: what the kit must find when they are taken away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from blindbayes.crypto import prg
from blindbayes.crypto.hybrid import curve_of
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import IntegrityError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.secure_sum import contributor, keys, server


def unbound_keys(patch: pytest.MonkeyPatch) -> None:
    """Keys of a pair from their secret and the scope alone, without names; in masked_sum those of masks are from the fresh keys
    alone, and those of boxes from the sites' cards, so that who copies a fresh key can still open what is sealed to it."""

    def found(key: AgreementKey, publics: Mapping[str, bytes], *, scope: bytes, purpose: str, **_: Any) -> list[bytes]:
        return [derive_key(key.agree(public, party=other), purpose, scope) for other, public in publics.items()]

    shipped = keys.MaskedSumSetup.run_keys

    def agree(self: Any, mine: AgreementKey, theirs: Mapping[int, Any], vouched: Any = None, **_: Any) -> bytes:
        names = {self.name(index): each.public for index, each in theirs.items()}
        cards = [self.run.agreement.curve.agree(curve_of(self.run.keys[name])) for name in names]
        object.__setattr__(self, "cards", b"".join(cards))
        return b"".join(found(mine, names, scope=self.context, purpose="masked_sum pair"))

    def run_keys(self: Any, pairs: bytes, me: int, others: Sequence[int], shown: bytes) -> tuple[bytes, bytes, bytes]:
        return (shipped(self, pairs, me, others, self.context)[0], *shipped(self, self.cards, me, others, self.context)[1:])

    patch.setattr(pair_keys, "pair_keys", found)
    patch.setattr(keys.MaskedSumSetup, "agree", agree)
    patch.setattr(keys.MaskedSumSetup, "run_keys", run_keys)


def unchecked_keys(patch: pytest.MonkeyPatch) -> None:
    """No key is refused."""
    patch.setattr(pair_keys, "require_keys", lambda *given, **named: None)


def blamed_authors(patch: pytest.MonkeyPatch) -> None:
    """A box that does not open names its author alone, and a wrong tag the server alone."""

    shipped = contributor._unseal

    def unseal(terms: keys.MaskedSumSetup, pairs: bytes, boxes: Any, authors: tuple[int, ...]) -> Any:
        try:
            return shipped(terms, pairs, boxes, authors)
        except IntegrityError as error:
            raise IntegrityError(party=error.suspects[0]) from error

    def require_tag(expected: bytes, given: bytes, suspects: tuple[str, ...]) -> None:
        keys.require_tag(expected, given, suspects[:1])

    patch.setattr(contributor, "_unseal", unseal)
    patch.setattr(contributor, "require_tag", require_tag)


def patient_server(patch: pytest.MonkeyPatch) -> None:
    """A server that lists neighbourhoods below the threshold."""
    patch.setattr(server, "_require_enough", lambda *given: None)


def one_seed_for_all(patch: pytest.MonkeyPatch) -> None:
    """All pairs have the same mask."""
    shipped = keys.MaskedSumSetup.mask_keys

    def mask_keys(self: keys.MaskedSumSetup, secrets: bytes) -> tuple[bytes, bytes]:
        masks, checks = shipped(self, secrets)
        return derive_key(bytes(32), "one for all") * (len(masks) // 32), checks

    patch.setattr(keys.MaskedSumSetup, "mask_keys", mask_keys)


def no_own_mask(patch: pytest.MonkeyPatch) -> None:
    """No mask of one's own: a vector that is declared lost is bare."""

    def without(vector: Any, plus: bytes, minus: bytes) -> Any:
        return prg.add_masks(vector, plus[32:], minus)

    patch.setattr(contributor, "add_masks", without)
