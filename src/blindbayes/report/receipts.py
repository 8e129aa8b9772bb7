"""Receipts: signatures of the roles that took part in a run.

A release names its contributors, and a forged one can name anybody. A receipt is a party's own signature, by the key of its
identity, that its role ended in this run under this roster, and which contributors are not in the result, as far as the role
learns that. The hash of the roster covers the study (and so what may be opened) and every earlier roster. The roles send each
other their receipts as the last message of a run; a site writes those that it received into its release, as `receipts.json`.

A receipt does not vouch for the result: parties that learn it sign `common.json`. It also reveals
nothing that the messages of its role did not: a party whose result turns out to be wrong signs the same receipt.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import msgspec

from blindbayes.crypto.signatures import SigningKey, verify
from blindbayes.errors import DataError, IntegrityError
from blindbayes.io import typed
from blindbayes.io.untrusted import convert, read_json_table

RECEIPTS = "receipts.json"
_CONTEXT = b"blindbayes receipt v1\n"
_MAX_BYTES = 64 * 1024


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One role's signed statement about its run."""

    left_out: tuple[str, ...] | None  # contributors that are not in the result; None: the role does not learn that
    signature: str = ""

    def _payload(self, roster: str, run: str, role: str) -> bytes:
        stated = {"roster": roster, "run": run, "role": role, "left_out": self.left_out}
        return _CONTEXT + json.dumps(stated, sort_keys=True, separators=(",", ":")).encode()

    def sign(self, roster: str, run: str, role: str, key: SigningKey) -> Receipt:
        """Return the receipt with the signature of the party that runs the role."""
        return msgspec.structs.replace(self, signature=key.sign(self._payload(roster, run, role)).hex())

    def require_signed(self, roster: str, run: str, role: str, identity: bytes) -> None:
        """Raise `IntegrityError` unless this identity signed the receipt for that role of that run."""
        try:
            signature = bytes.fromhex(self.signature)
        except ValueError:
            raise IntegrityError(party=role) from None
        verify(identity, self._payload(roster, run, role), signature, party=role)


def pack(receipt: Receipt) -> bytes:
    """Return the bytes that a role sends."""
    return msgspec.msgpack.encode(receipt)


def receipts_text(
    roster: str,
    run: str,
    identities: Mapping[str, bytes],
    received: Mapping[str, bytes],
    left_out: Collection[str] | None = None,
) -> bytes:
    """Return `receipts.json`; None: the site learned none.

    It has the receipts, as the roles sent them, that are well formed, signed by their roles and for the result that leaves out
    these contributors.
    """
    entries = {}
    for role, raw in sorted(received.items()):
        try:
            receipt = typed.decode(raw[:_MAX_BYTES], Receipt)
            receipt.require_signed(roster, run, role, identities[role])
        except (msgspec.MsgspecError, UnicodeDecodeError, IntegrityError):
            continue  # as if it had sent none: the release lists it as missing
        if None not in (left_out, receipt.left_out) and set(left_out or ()) != set(receipt.left_out or ()):
            continue
        entries[role] = msgspec.to_builtins(receipt)
    return (json.dumps(entries, indent=2, sort_keys=True) + "\n").encode()


def read_receipts(raw: bytes, roster: str, run: str, identities: Mapping[str, bytes]) -> dict[str, Receipt]:
    """Return the receipts of a release folder by role. Raises `DataError` for one that its role did not sign for this run."""
    receipts = {}
    for role, entry in read_json_table(raw, RECEIPTS, error=DataError, hint="ask for the release again").items():
        if role not in identities:
            raise DataError(f"{RECEIPTS} names a role that the study does not have; do not rely on this folder")
        receipts[role] = convert(entry, Receipt, RECEIPTS)
        try:
            receipts[role].require_signed(roster, run, role, identities[role])
        except IntegrityError:
            raise DataError(f"the receipt of {role} is not signed by it for this run; do not rely on this folder") from None
    return receipts
