"""Messages of the oblivious sum. Numbers are the steps of SPEC.md."""

from __future__ import annotations

from blindbayes.wire import Big, ClearMessage, EncryptedMessage, KeyMessage, ShareMessage


class ModulusDealt(KeyMessage, frozen=True):
    """1: the dealer's modulus."""

    modulus: Big


class KeyDealt(KeyMessage, frozen=True):
    """1, with dealt keys: the receiver's own key, which no other party gets."""

    key: Big
    negative: bool


class KeyAnnounced(KeyMessage, frozen=True):
    """2: a contributor's public key for this run, signed."""

    public: bytes
    signature: bytes


class RosterNamed(KeyMessage, frozen=True):
    """3 and 5: who takes part, with the public keys of the receiver's neighbours; when `final`, the shares dealt to it. The
    miner signs its own key and the hash of all keys, which is sent only to those who do not see all keys."""

    names: tuple[str, ...]
    miner: bytes
    keys: bytes
    signature: bytes
    publics: tuple[bytes, ...]
    signatures: tuple[bytes, ...]
    inbox: tuple[bytes, ...]
    final: bool


class SharesSealed(EncryptedMessage, frozen=True):
    """4: shares of the sender's two keys, each sealed for one holder."""

    sealed: tuple[bytes, ...]


class CiphertextsSent(EncryptedMessage, frozen=True):
    """6: the sender's vector, packed and encrypted, and where one is asked for the proof that a table can have it."""

    elements: tuple[bytes, ...]
    proof: bytes = b""


class SurvivorsNamed(ClearMessage, frozen=True):
    """7: whose ciphertexts the miner has received."""

    names: tuple[str, ...]


class SurvivorsSigned(KeyMessage, frozen=True):
    """8: the sender will help to open the sum over this set, and no other."""

    signature: bytes


class SurvivorsConfirmed(KeyMessage, frozen=True):
    """9: who signed."""

    names: tuple[str, ...]
    signatures: tuple[bytes, ...]


class CorrectionsSent(ShareMessage, frozen=True):
    """10: for each segment whose keys the sender holds shares of, its share of the mask that is left, per ciphertext."""

    elements: tuple[tuple[bytes, ...], ...]


class BitSent(EncryptedMessage, frozen=True):
    """Maximum, 2: a random number, or zero, encrypted."""

    element: bytes


class BitShown(ClearMessage, frozen=True):
    """Maximum, 3: the next binary digit of the maximum."""

    bit: bool
