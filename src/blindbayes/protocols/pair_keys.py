"""All keys that two parties of a protocol share are made here; a test searches the sources for others.

A pair's key is BLAKE2b, keyed with the X25519 secret of the two run keys, of

    protocol and purpose, study, run, what else the protocol fixes, both names and both public keys (the lesser name first).

In masked_sum that secret is joined by the hybrid one of the two cards' keys (`crypto.hybrid`): who breaks the curve later has
the first and not the second.

So no two pairs have a key in common, whatever keys a party chooses: a party that shows another's public key as its own changes
the name beside it, and with it the whole stream. Before a key is used it passes `require_keys`: 32 bytes in canonical form, no
point of small order (the identity among them), not the receiver's own, no key twice. In X25519 a point and its negative have
one encoding, so there is no negated key to refuse; other encodings of a key (the unused bit, u + p) are not canonical. A key
plus a point of small order gives the same curve point, but other bytes, hence other keys.

A party acts only on public keys that their owner signed for this protocol, study, run and role: it signs `announcement`.

Which party a refusal names: a run key is fresh and goes to the reader alone (server, miner, builder), over a sealed link, until
the reader lists it. A copy can thus be made only with the help of the reader or of the owner. A party that receives keys from
their owners names the sender; a party that is shown keys by the reader, which should have refused them, names the reader.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from blindbayes.crypto import signatures
from blindbayes.crypto.key_agreement import PUBLIC_BYTES, AgreementKey
from blindbayes.crypto.prg import derive_key, derive_many
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Run

_PRIME = 2**255 - 19
SMALL_ORDER = frozenset(
    point.to_bytes(PUBLIC_BYTES, "little")
    for point in (
        0,  # the identity's image, and the point of order 2
        1,  # order 4, as is -1
        _PRIME - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,  # order 8
        39382357235489614581723060781553021112529911719440698176882885853963445705823,  # order 8
    )
)
"""The canonical encodings of all points of small order on the curve and its twist."""


def _framed(*parts: bytes) -> bytes:
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def scope_of(run: Run, protocol: str, *facts: str) -> bytes:
    """Hash everything that keys and announcements of a run are bound to: study, run, protocol, other agreed facts."""
    return hashlib.sha256(run.context(protocol, *facts)).digest()


def pair_key(key: AgreementKey, public: bytes, *, me: str, other: str, scope: bytes, purpose: str) -> bytes:
    """Return the 32-byte key of a pair for one purpose: the same for both, and for no other pair, run or purpose.

    Raise `IntegrityError` naming `other` for a public key of small order or wrong size.
    """
    return pair_keys(key, {other: public}, me=me, scope=scope, purpose=purpose)[0]


def pair_keys(
    key: AgreementKey,
    publics: Mapping[str, bytes],
    *,
    me: str,
    scope: bytes,
    purpose: str,
    vouched: Mapping[str, bytes] | None = None,
) -> list[bytes]:
    """Return `pair_key` with each of the parties that have these public keys.

    `vouched` are the secrets of this party's card with those of some of them, whose keys stand in the roster that all signed.
    Nobody can make the key of such a pair without one of the two private keys of the cards, even if the run keys were made up
    or altered.
    """
    secrets = key.agree_many(list(publics.values()), list(publics))
    vouched = vouched or {}
    derived = []
    for (other, public), secret in zip(publics.items(), secrets, strict=True):
        low, high, keys = (me, other, key.public + public) if me < other else (other, me, public + key.public)
        # Two names after their lengths, then parts whose lengths are fixed or, for the scope, named: one reading only.
        names = f"pair key v1 {len(scope)} {len(low)} {len(high)} {low}{high}"
        both = mixed(secret, vouched[other]) if other in vouched else secret
        derived.append(derive_key(both, purpose, names.encode() + scope + keys))
    return derived


def mixed(secret: bytes, other: bytes) -> bytes:
    """Derive one key from two: without either of them it is unknown."""
    return derive_key(secret, "of two secrets", other)


def shared_key(channel: bytes, purpose: str, context: bytes = b"") -> bytes:
    """Derive a key for one more purpose from a pair's channel key."""
    return derive_key(channel, purpose, context)


def further_keys(keys: bytes, purpose: str, count: int, context: bytes = b"") -> list[bytes]:
    """Derive `count` keys from the key of each of many pairs: all the first ones, all the second, ..."""
    return derive_many(keys, purpose, count, context)


def directed_key(channel: bytes, purpose: str, sender: str, receiver: str, context: bytes = b"") -> bytes:
    """Derive a key for one purpose and one direction from a pair's channel key."""
    return derive_key(channel, purpose, f"{len(sender)} {len(receiver)} {sender}{receiver}".encode() + context)


def announcement(scope: bytes, name: str, *parts: bytes) -> bytes:
    """Return the bytes that a party signs to announce its run keys, for one protocol, study, run and role."""
    return _framed(b"blindbayes run key v1", scope, name.encode(), *parts)


def sign_keys(run: Run, scope: bytes, *parts: bytes) -> bytes:
    """Sign this party's run keys for the role `run.me`."""
    if run.signer is None:
        raise LocalProtocolError("pairwise keys need identities: give the run a signer", party=run.me)
    return run.signer.sign(announcement(scope, run.me, *parts))


def verify_keys(run: Run, scope: bytes, name: str, parts: Iterable[bytes], signature: bytes, *, blame: str) -> None:
    """Raise `IntegrityError` naming `blame` unless `name` signed these run keys for its role in this run."""
    signatures.verify(run.identities.get(name, b""), announcement(scope, name, *parts), signature, party=blame)


def is_proper(public: bytes) -> bool:
    """Return True if the bytes are a public key in canonical form and not of small order."""
    if len(public) != PUBLIC_BYTES or public[-1] > 0x7F or public in SMALL_ORDER:
        return False
    return public[-1] < 0x7F or int.from_bytes(public, "little") < _PRIME


def require_keys(listed: Iterable[tuple[str, bytes]], *, own: Iterable[bytes] = (), blame: str | None = None) -> None:
    """Refuse malformed keys, keys of small order, this party's own key, and repeated keys, given as (owner, key) pairs.

    The error names `blame`, the party that listed them; without it, the sender (of two equal keys the second).
    """
    seen = set(own)
    for name, public in listed:
        if not is_proper(public):
            raise PeerProtocolError("a public key is malformed or of small order", party=blame or name)
        if public in seen:
            raise PeerProtocolError("a public key stands twice, or is the receiver's own", party=blame or name)
        seen.add(public)


def digest_of(publics: Mapping[str, bytes]) -> bytes:
    """Hash the public keys and their owners, in the order given."""
    parts = [part for name, public in publics.items() for part in (name.encode(), public)]
    return hashlib.sha256(_framed(b"blindbayes key roster v1", *parts)).digest()
