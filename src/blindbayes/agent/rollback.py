"""Sites keep each other's logs honest: each shows the heads of its own, and remembers the newest it was shown.

A head is a number and a hash, signed by its site over the session in which it was shown. A site whose ledger or audit log has a
smaller number than before, or another hash at the same number, came back from a backup, or runs twice from copies of one
folder. Its peers refuse the run; and since each shows it the head that it last signed, it finds that its own logs lack
that entry, and stops before it can spend. `blindbayes site forget` is the way out, at each peer, after people have talked.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.dp.accounting.ledger import Head
from blindbayes.errors import BlindbayesError, IntegrityError, LedgerError, PeerProtocolError
from blindbayes.io.chain import GENESIS
from blindbayes.io.untrusted import read_json_table
from blindbayes.net.envelope import require_heads_proof
from blindbayes.net.identity import Identity

_MAX_BYTES = 1024
_HELD = 8  # heads that a site showed before the last one


class _Seen(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a site showed, as the one that was shown it keeps it."""

    seat: str
    heads: bytes
    exchange: bytes
    proof: bytes


class PeerLogHeads:
    """See the module's docstring."""

    def __init__(self, home: SiteFolder, identity: Identity) -> None:
        self._home, self._identity = home, identity

    def heads(self) -> bytes:
        """Of this site's own logs, now."""
        joined = self._home.audit.where("event", "joined")[-_HELD - 1 :]
        number, head = (joined[-1]["number"], joined[-1]["hash"]) if joined else self._home.audit.numbered_head
        held = [f"{entry['number']}:{entry['hash'][:16]}" for entry in joined[:-1]]
        shown = {"audit": head, "audit_number": number, "held": held, "ledger": str(self._home.ledger.head)}
        return json.dumps(shown, separators=(",", ":")).encode()

    def require_ledger(self) -> None:
        """Raise unless the ledger holds what the audit log last saw of it: one of the two may come from a backup."""
        joined = self._home.audit.where("event", "joined")[-1:]
        head = Head.parse(joined[0]["ledger"]) if joined and "ledger" in joined[0] else None
        if head is not None and self._home.ledger.hash_at(head.n) != head.hash:
            raise LedgerError(f"the ledger lacks entry {head.n}, which this site's audit log has seen: was it replaced?")

    def witness(self, site: str, seat: str, run_id: str, heads: bytes, exchange: bytes, proof: bytes) -> None:
        """Another site showed its heads: keep them, with its signature. Raises if it showed newer ones before."""
        if site == self._identity.name:
            return
        try:
            shown, held = _read(heads), _held(heads)
        except (BlindbayesError, KeyError, TypeError, ValueError):
            raise PeerProtocolError("does not show the heads of its logs", party=site) from None
        for name, before, now in self._older(site, shown, held):
            self._home.audit.append("older log", run=run_id, site=site, log=name, before=before, now=now)
            kind = "older" if now <= before else "other"
            raise PeerProtocolError(
                f"shows an {kind} {name} than it showed before (entry {before}, now {now}): it came back from a backup, or "
                f"runs twice. Ask its people; `blindbayes site forget {site}` if all agree to go on",
                party=site,
            )
        self._home.audit.append(
            "witnessed",
            run=run_id,
            site=site,
            seat=seat,
            head=shown["audit log"][1],
            heads=heads.decode(),
            exchange=exchange.hex(),
            proof=proof.hex(),
        )

    def _older(self, site: str, shown: dict[str, tuple[int, str]], held: dict[int, str] | None) -> list[tuple[str, int, int]]:
        """Logs that were further before. Within runs under way heads may overtake each other: only other hashes count there.

        A site that came back and wrote more than it lost shows a larger number. It also says which heads it showed last, and
        the one that was seen here is not among them.
        """
        found = []
        for entry, is_over in self._home.history.witnessed(site):
            before = _read(entry["heads"].encode())
            number, head = before["audit log"]
            if held is not None and number < shown["audit log"][0] and _held(entry["heads"].encode()) is not None:
                covers = len(held) < _HELD or number >= min(held)
                if covers and held.get(number) != head[:16]:
                    found.append(("audit log", number, shown["audit log"][0]))
            for name, (number, head) in before.items():
                now, hash_now = shown[name]
                if (is_over and now < number) or (now == number and hash_now != head):
                    found.append((name, number, now))
        return sorted(found, key=lambda each: -each[1])

    def seen(self, site: str) -> bytes:
        """What another site showed last, with its signature."""
        shown = [entry for entry, _ in self._home.history.witnessed(site) if "seat" in entry]
        if site == self._identity.name or not shown:
            return b""
        last = max(shown, key=lambda entry: _read(entry["heads"].encode())["audit log"][0])
        exchange, proof = bytes.fromhex(last["exchange"]), bytes.fromhex(last["proof"])
        return msgspec.msgpack.encode(_Seen(last["seat"], last["heads"].encode(), exchange, proof))

    def recall(self, site: str, seen: bytes) -> None:
        """Another site shows what this one signed before. Raises if this site's logs do not hold it."""
        if not seen:
            return
        try:
            shown = msgspec.msgpack.decode(seen, type=_Seen)
            require_heads_proof(self._identity.card.identity, shown.exchange, shown.seat, shown.heads, shown.proof)
            heads = _read(shown.heads)
        except (msgspec.MsgspecError, IntegrityError, BlindbayesError, KeyError, TypeError, ValueError):
            return  # not this site's own word: no reason to stop
        for name, held in (("audit log", self._home.audit.hash_at), ("ledger", self._home.ledger.hash_at)):
            number, head = heads[name]
            if head != GENESIS and held(number) != head:
                raise LedgerError(
                    f"this site's {name} lacks entry {number}, which {site} has seen with this site's signature: the folder "
                    "came back from a backup, or another copy of it runs. Nothing is spent; stop the other copy, or bring back "
                    f"the newest folder, or ask the people of {site} to `blindbayes site forget` this site"
                )


def _held(heads: bytes) -> dict[int, str] | None:
    """The heads that a site says it showed before, by number; None: of a release that does not say."""
    told = read_json_table(heads, "heads", max_bytes=_MAX_BYTES).get("held")
    if told is None:
        return None
    pairs = [str(each).partition(":") for each in told]
    return {int(number): head for number, _, head in pairs}


def _read(heads: bytes) -> dict[str, tuple[int, str]]:
    """Number and hash of each log."""
    shown: dict[str, Any] = read_json_table(heads, "heads", max_bytes=_MAX_BYTES)
    ledger = Head.parse(shown["ledger"])
    number, head = shown.get("audit_number", 0), str(shown["audit"])[:64]
    if type(number) is not int or not 0 <= number < 2**53:
        raise ValueError("number")
    return {"audit log": (number, head), "ledger": (ledger.n, ledger.hash)}
