"""What a coalition signs again after it has changed a message: everything for which one of its members has the key.

Written for the shipped form of the messages and, so that the kit can be turned on an older tree, for the form before names and
keys went into every pair's key.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from adversary.names import CHAIN, MASKED_SETUP, MINER, OBLIVIOUS_SETUP
from blindbayes.crypto.key_agreement import AgreementKey

try:
    from blindbayes.protocols import pair_keys
except ImportError:
    pair_keys = None


def masked_sum(arena: Any, fight: Any, sender: str, to: str, message: Any) -> Any:
    from blindbayes.protocols.secure_sum import keys

    kind = type(message).__name__

    def signed(owner: str, advertised: Any) -> Any:
        if owner not in fight.coalition:
            return advertised
        terms = MASKED_SETUP(arena.runs[owner], arena.setting)
        if hasattr(advertised, "public"):
            sent = fight.heard.get("KeysAdvertised", {}).get(
                owner, advertised
            )  # a list shows the signature, and passes this on
            parts = (advertised.public, advertised.commitments, advertised.encapsulated or sent.encapsulated)
        else:
            parts = (advertised.mask_key, advertised.channel_key, advertised.commitment)
        if pair_keys is not None:
            return replace(advertised, signature=pair_keys.sign_keys(terms.run, terms.context, *parts))
        return replace(advertised, signature=terms.sign(b"keys", keys.keys_payload(owner, *parts)))

    if kind == "KeysAdvertised":
        return signed(sender, message)
    if kind == "KeysListed" and len(message.neighbours) == len(message.advertised):
        try:
            owners = [arena.contributors[index] for index in message.neighbours]
        except IndexError:
            return message
        return replace(message, advertised=tuple(map(signed, owners, message.advertised)))
    if kind == "SurvivorsEchoed":
        return _vouch(arena, fight, sender, message)
    if kind == "SurvivorsNamed":
        terms = MASKED_SETUP(arena.runs[sender], arena.setting)
        if pair_keys is None:
            return replace(message, signature=terms.sign(b"survivors", message.survivors))
        roster = _shown_roster(arena, fight, terms, to) or message.roster
        return replace(message, roster=roster, signature=terms.sign(b"survivors", roster + message.survivors))
    return message


def _vouch(arena: Any, fight: Any, sender: str, message: Any) -> Any:
    """A colluder's tags: it vouches to everybody for whatever the server showed them, where the server is in the coalition."""
    from blindbayes.protocols.secure_sum import graph

    named = fight.shown.get(("SurvivorsNamed", sender))
    advertised = fight.heard.get("KeysAdvertised", {})
    if named is None or sender not in advertised:
        return message
    terms = MASKED_SETUP(arena.runs[sender], arena.setting)
    me = arena.contributors.index(sender)
    flags = graph.unpack_bits(named.survivors, len(arena.contributors))
    tags = []
    for other in terms.neighbours(me):
        name = arena.contributors[other]
        if flags is None or not flags[other] or name not in advertised:
            continue
        shown = fight.shown.get(("SurvivorsNamed", name), named)
        if hasattr(terms, "echoes"):
            tags.append(_tag(arena, fight, terms, me, other, shown))
            continue
        key = advertised[name].channel_key
        mine = AgreementKey(fight.ledger.privates[advertised[sender].channel_key])
        if pair_keys is None:
            tags.append(terms.echo(mine.agree(key), me, other, shown.survivors))
        else:
            tags.append(terms.echo(terms.channel(mine, me, other, key), me, other, shown.roster + shown.survivors))
    return replace(message, tags=b"".join(tags)) if len(b"".join(tags)) == len(message.tags) else message


def _tag(arena: Any, fight: Any, terms: Any, me: int, other: int, shown: Any) -> bytes:
    """A colluder's tag for what its neighbour was shown, under the key that the neighbour has by the list it was shown."""
    advertised, name = fight.heard["KeysAdvertised"], arena.contributors[other]
    listed = fight.shown.get(("KeysListed", name))
    roster = _shown_roster(arena, fight, terms, name) or shown.roster
    own = dict(zip(listed.neighbours, listed.advertised, strict=True)).get(me) if listed is not None else None
    private = fight.ledger.privates.get((own or advertised[arena.contributors[me]]).public)
    if private is None or not any(private in fight.ledger.made.get(each, ()) for each in fight.coalition):
        private = bytes(32)  # the key that it showed is another's
    mine, cards = AgreementKey(private), terms.run.keys
    vouched = {name: fight.ledger.vouched[cards[terms.run.me], cards[name]]}
    pairs = terms.agree(mine, {other: advertised[name]}, vouched)
    _, to_them, _ = terms.run_keys(pairs, me, [other], roster)
    tag: bytes = terms.echoes(to_them, [me], shown.roster + shown.survivors).tobytes()
    return tag


def _shown_roster(arena: Any, fight: Any, terms: Any, to: str) -> bytes | None:
    """The hash that the receiver computes of what it was shown: the best the server can name to it."""
    listed = fight.shown.get(("KeysListed", to))
    own = fight.heard.get("KeysAdvertised", {}).get(to)
    if listed is None or own is None or len(listed.neighbours) != len(listed.advertised):
        return None
    found = dict(zip(listed.neighbours, listed.advertised, strict=True)) | {arena.contributors.index(to): own}
    if not all(0 <= index < len(arena.contributors) for index in found):
        return None
    digest: bytes = terms.roster(dict(sorted(found.items())))
    return digest


def oblivious_sum(arena: Any, fight: Any, sender: str, to: str, message: Any) -> Any:
    kind = type(message).__name__
    if kind not in ("KeyAnnounced", "RosterNamed"):
        return message
    terms = OBLIVIOUS_SETUP(arena.runs[sender], arena.setting, *(arena.purpose if pair_keys is not None else ()))
    scheme = terms.scheme(None)

    def signature(owner: str, public: bytes, given: bytes) -> bytes:
        if owner not in fight.coalition:
            return given
        run = arena.runs[owner]
        if pair_keys is not None:
            return pair_keys.sign_keys(run, terms.scope(scheme), public)
        from blindbayes_papers.huai2015.oblivious_sum.session import announcement

        return run.signer.sign(announcement(terms, owner, public))

    if kind == "KeyAnnounced":
        return replace(message, signature=signature(sender, message.public, message.signature))
    known = [name for name in arena.contributors if name in message.names]
    if list(message.names) != known or to not in known:
        return message
    neighbours = terms.groups(known).neighbours(to)
    if not len(neighbours) == len(message.publics) == len(message.signatures):
        return message
    publics = dict(zip(neighbours, message.publics, strict=True))
    votes = tuple(map(signature, neighbours, message.publics, message.signatures))
    message = replace(message, signatures=votes)
    if pair_keys is None:
        return message
    keys = message.keys
    own = fight.heard.get("KeyAnnounced", {}).get(to)
    if terms.groups(known).is_complete and own is not None:
        publics[to] = own.public
        keys = pair_keys.digest_of({name: publics[name] for name in known})
    digest = terms.roster_digest(known, keys, message.miner)
    return replace(message, signature=pair_keys.sign_keys(arena.runs[MINER], terms.scope(scheme), message.miner, digest))


def chain_sum(arena: Any, fight: Any, sender: str, to: str, message: Any) -> Any:
    from blindbayes_papers.azimian2022.chain_sum import roles

    kind, run = type(message).__name__, arena.runs[sender]

    def signature(owner: str, key: bytes, given: bytes) -> bytes:
        if owner not in fight.coalition:
            return given
        own = arena.runs[owner]
        if pair_keys is not None:
            return pair_keys.sign_keys(own, roles.key_scope(own), key)
        return own.signer.sign(roles.key_payload(own.context("chain key"), owner, key))

    if kind == "KeyAnnounced":
        return replace(message, signature=signature(sender, message.key, message.signature))
    if kind == "LinkSent":
        listed = fight.shown.get(("RosterListed", to)) or fight.heard.get("RosterListed", {}).get("builder")
        if listed is None:
            return message
        digest = roles.roster_digest(run, listed.modulus, listed.builder_key, listed.keys_digest)
        return replace(message, signature=run.signer.sign(roles.link_payload(run, sender, to, digest, message.sealed)))
    if kind != "RosterListed":
        return message
    digest = roles.roster_digest(run, message.modulus, message.builder_key, message.keys_digest)
    plan = CHAIN(digest, arena.contributors, len(arena.contributors) - 1)
    peers = plan.peers(to)
    own = fight.heard.get("KeyAnnounced", {}).get(to)
    keys = [message.keys[at : at + 32] for at in range(0, len(message.keys), 32)]
    if len(keys) == len(peers) and own is not None:  # the complete graph: all keys are here
        everybody = dict(zip(peers, keys, strict=True)) | {to: own.key}
        message = replace(message, keys_digest=roles.digest_keys([everybody[name] for name in arena.contributors]))
        digest = roles.roster_digest(run, message.modulus, message.builder_key, message.keys_digest)
        announced = {name: heard.signature for name, heard in fight.heard.get("KeyAnnounced", {}).items()}
        checked = CHAIN(digest, arena.contributors, len(arena.contributors) - 1).checked(to)
        votes = [signature(name, everybody[name], announced.get(name, bytes(64))) for name in checked]
        message = replace(message, signatures=b"".join(votes))
    return replace(message, signature=run.signer.sign(run.context("chain roster", sender) + digest))


REFITS = {"masked_sum": masked_sum, "oblivious_sum": oblivious_sum, "chain_sum": chain_sum}
