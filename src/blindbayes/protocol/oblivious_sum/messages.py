"""Messages of the oblivious sum. Numbers are the steps of SPEC.md."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Big, Message, Trust


class ModulusDealt(Message, frozen=True):
    """1: the dealer's modulus."""

    trust: ClassVar[Trust] = Trust.KEY
    modulus: Big


class KeyDealt(Message, frozen=True):
    """1, with dealt keys: the receiver's own key, which no other party gets."""

    trust: ClassVar[Trust] = Trust.KEY
    key: Big
    negative: bool


class KeyAnnounced(Message, frozen=True):
    """2: a contributor's public key for this run, signed."""

    trust: ClassVar[Trust] = Trust.KEY
    public: bytes
    signature: bytes


class RosterNamed(Message, frozen=True):
    """3 and 5: who takes part, with the public keys of the receiver's neighbours; when `final`, the shares dealt to it. The
    miner signs its own key and the hash of all keys, which is sent only to those who do not see all keys."""

    trust: ClassVar[Trust] = Trust.KEY
    names: tuple[str, ...]
    miner: bytes
    keys: bytes
    signature: bytes
    publics: tuple[bytes, ...]
    signatures: tuple[bytes, ...]
    inbox: tuple[bytes, ...]
    final: bool


class SharesSealed(Message, frozen=True):
    """4: shares of the sender's two keys, each sealed for one holder."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    sealed: tuple[bytes, ...]


class CiphertextsSent(Message, frozen=True):
    """6: the sender's vector, packed and encrypted."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    elements: tuple[bytes, ...]


class SurvivorsNamed(Message, frozen=True):
    """7: whose ciphertexts the miner has received."""

    trust: ClassVar[Trust] = Trust.CLEAR
    names: tuple[str, ...]


class SurvivorsSigned(Message, frozen=True):
    """8: the sender will help to open the sum over this set, and no other."""

    trust: ClassVar[Trust] = Trust.KEY
    signature: bytes


class SurvivorsConfirmed(Message, frozen=True):
    """9: who signed."""

    trust: ClassVar[Trust] = Trust.KEY
    names: tuple[str, ...]
    signatures: tuple[bytes, ...]


class CorrectionsSent(Message, frozen=True):
    """10: for each segment whose keys the sender holds shares of, its share of the mask that is left, per ciphertext."""

    trust: ClassVar[Trust] = Trust.SHARE
    elements: tuple[tuple[bytes, ...], ...]


class BitSent(Message, frozen=True):
    """Maximum, 2: a random number, or zero, encrypted."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    element: bytes


class BitShown(Message, frozen=True):
    """Maximum, 3: the next binary digit of the maximum."""

    trust: ClassVar[Trust] = Trust.CLEAR
    bit: bool
