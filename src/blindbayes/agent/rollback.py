"""Rollback detection: sites show each other the heads of their logs, and remember the newest that they were shown.

A head is a number and a hash, signed by its site over the session in which it was shown. A site whose ledger or audit log has a
smaller number than before, or another hash at the same number, came back from a backup, or runs twice from copies of one
folder. Its peers refuse the run. Each peer also shows it the head that it last signed, so that it notices itself that its logs
lack that entry, and stops before it can spend. `blindbayes site forget` is the way out, at each peer, after people have talked.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.disclosure.charges import parse_head
from blindbayes.errors import BlindbayesError, IntegrityError, LedgerError, PeerProtocolError
from blindbayes.io import typed
from blindbayes.io.chain import GENESIS
from blindbayes.io.untrusted import read_json_table
from blindbayes.net.envelope import require_heads_proof
from blindbayes.net.identity import Identity

_MAX_BYTES = 1024
_SHOWN = 8  # heads before the last one that a site shows


class _Seen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Heads that a site showed, with its signature."""

    role: str
    heads: bytes
    exchange: bytes
    proof: bytes


class PeerLogHeads:
    """The log heads that this site shows, and those that it was shown."""

    def __init__(self, home: SiteFolder, identity: Identity) -> None:
        self._home, self._identity = home, identity

    def heads(self) -> bytes:
        """Return the heads of this site's own logs, now."""
        joined = self._home.audit.where("event", "joined")[-_SHOWN - 1 :]
        number, head = (joined[-1]["number"], joined[-1]["hash"]) if joined else self._home.audit.numbered_head
        earlier = [f"{entry['number']}:{entry['hash'][:16]}" for entry in joined[:-1]]
        shown = {"audit": head, "audit_number": number, "held": earlier, "ledger": str(self._home.ledger.head)}
        return json.dumps(shown, separators=(",", ":")).encode()

    def require_ledger(self) -> None:
        """Raise unless the ledger contains the heads that the audit log saw last, before and after a charge.

        One of the two files may come from a backup, or have lost its last lines.
        """
        for event in ("joined", "computing"):
            last = self._home.audit.where("event", event)[-1:]
            number, head = parse_head(last[0]["ledger"]) if last and "ledger" in last[0] else (-1, "")
            if head and self._home.ledger.hash_at(number) != head:
                raise LedgerError(
                    f"the ledger lacks entry {number}, which this site's audit log has seen: was it cut or replaced? Bring "
                    "back its newest copy, or the whole site with `blindbayes site restore`"
                )

    def store_heads(self, site: str, role: str, run_id: str, heads: bytes, exchange: bytes, proof: bytes) -> None:
        """Store the heads that another site showed, with its signature. Raises if it showed newer ones before."""
        if site == self._identity.name:
            return
        try:
            shown, earlier = _read(heads)
        except (BlindbayesError, KeyError, TypeError, ValueError):
            raise PeerProtocolError("does not show the heads of its logs", party=site) from None
        for name, before, now in self._older(site, shown, earlier):
            self._home.audit.append("older log", run=run_id, site=site, log=name, before=before, now=now)
            kind = "older" if now <= before else "other"
            raise PeerProtocolError(
                f"shows an {kind} {name} than it showed before (entry {before}, now {now}): it came back from a backup, or "
                f"runs twice. Ask its staff; `blindbayes site forget {site}` if all agree to go on",
                party=site,
            )
        self._home.audit.append(
            "witnessed",
            run=run_id,
            site=site,
            role=role,
            head=shown["audit log"][1],
            heads=heads.decode(),
            exchange=exchange.hex(),
            proof=proof.hex(),
        )

    def _older(self, site: str, shown: dict[str, tuple[int, str]], earlier: dict[int, str]) -> list[tuple[str, int, int]]:
        """Return the logs that were further before: (name, number before, number now), the newest first.

        Within runs under way heads may overtake each other, so only other hashes count there. A site that came back and wrote
        more than it lost shows a larger number; but it also shows its last heads, and the one seen here is not among them.
        """
        older = []
        for entry, is_over in self._home.history.witnessed(site):
            before, _ = _read(entry["heads"].encode())
            number, head = before["audit log"]
            if number < shown["audit log"][0]:
                covers = len(earlier) < _SHOWN or number >= min(earlier)
                if covers and earlier.get(number) != head[:16]:
                    older.append(("audit log", number, shown["audit log"][0]))
            for name, (number, head) in before.items():
                now, hash_now = shown[name]
                if (is_over and now < number) or (now == number and hash_now != head):
                    older.append((name, number, now))
        return sorted(older, key=lambda each: -each[1])

    def seen(self, site: str) -> bytes:
        """Return the newest heads that another site showed, with its signature; empty before the first."""
        shown = [entry for entry, _ in self._home.history.witnessed(site)]
        if site == self._identity.name or not shown:
            return b""
        last = max(shown, key=lambda entry: _read(entry["heads"].encode())[0]["audit log"][0])
        exchange, proof = bytes.fromhex(last["exchange"]), bytes.fromhex(last["proof"])
        return msgspec.msgpack.encode(_Seen(last["role"], last["heads"].encode(), exchange, proof))

    def check_own_heads(self, site: str, seen: bytes) -> None:
        """Compare this site's logs with heads that it signed before and another site shows. Raises if an entry is missing."""
        if not seen:
            return
        try:
            shown = typed.decode(seen, _Seen)
            require_heads_proof(self._identity.card.identity, shown.exchange, shown.role, shown.heads, shown.proof)
            heads, _ = _read(shown.heads)
        except (msgspec.MsgspecError, IntegrityError, BlindbayesError, KeyError, TypeError, ValueError):
            return  # this site did not sign it: no reason to stop
        for name, hash_at in (("audit log", self._home.audit.hash_at), ("ledger", self._home.ledger.hash_at)):
            number, head = heads[name]
            if head != GENESIS and hash_at(number) != head:
                raise LedgerError(
                    f"this site's {name} lacks entry {number}, which {site} has seen with this site's signature: the folder "
                    "came back from a backup, or another copy of it runs. Nothing is spent; stop the other copy, or bring back "
                    f"the newest folder, or ask the staff of {site} to `blindbayes site forget` this site"
                )


def _read(heads: bytes) -> tuple[dict[str, tuple[int, str]], dict[int, str]]:
    """Return the number and the hash of each log's head, and the audit log's earlier heads by number."""
    shown: dict[str, Any] = read_json_table(heads, "heads", max_bytes=_MAX_BYTES)
    number, head = shown["audit_number"], str(shown["audit"])[:64]
    if type(number) is not int or not 0 <= number < 2**53:
        raise ValueError("number")
    pairs = [str(each).partition(":") for each in shown["held"]]
    earlier = {int(number): head for number, _, head in pairs}
    return {"audit log": (number, head), "ledger": parse_head(shown["ledger"])}, earlier
