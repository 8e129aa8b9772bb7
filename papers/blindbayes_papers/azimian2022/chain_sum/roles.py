"""Roles of the chain. Step numbers as in SPEC.md."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from blindbayes.crypto import aead, signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import PUBLIC_BYTES, AgreementKey
from blindbayes.crypto.signatures import SIGNATURE_BYTES
from blindbayes.errors import ConfigError, DataError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all
from blindbayes.protocols.registry import Coalition, Smallest, SumProtocol, SumSetup, Total, require_options, require_vector
from blindbayes.wire import U64Array
from blindbayes_papers.azimian2022.chain_sum.chain_layout import ChainLayout, neighbours_of
from blindbayes_papers.azimian2022.chain_sum.messages import KeyAnnounced, LinkSent, RandomisersDealt, RosterListed
from blindbayes_papers.azimian2022.chain_sum.params import ChainSumParams
from blindbayes_papers.primitives import unsafe_keys
from blindbayes_papers.primitives.packing import Packing
from blindbayes_papers.primitives.paillier import PublicKey, generate_keypair

BUILDER = "builder"
_STATISTICAL_BITS = 128  # a mask is this much wider than N before it is reduced: bias 2^-128


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a chain that a study chooses."""

    key_bits: int
    toy_keys: bool
    neighbours: int
    packing: Packing


def read_options(setting: SumSetup) -> Options:
    """The chain's options, checked. See SPEC.md."""
    options = require_options(setting, msgspec.structs.asdict(ChainSumParams()))
    if BUILDER in setting.contributors:
        raise ConfigError("no contributor of a chain is named 'builder': the model builder brings no vector")
    if len(setting.contributors) < 2:
        raise ConfigError("a chain has at least 2 contributors: the sum of one is its vector")
    ranges = setting.ranges or [(-setting.bound, setting.bound, setting.length)]
    # Every integer below N/2 in absolute value has its own residue, and N has exactly `key_bits` bits.
    packing = Packing(ranges, options["key_bits"] - 2)
    neighbours = neighbours_of(setting, options["neighbours"])
    return Options(options["key_bits"], bool(options["toy_keys"]), neighbours, packing)


# -- what both roles compute -----------------------------------------------------------------------------------------


def digest_keys(keys: Sequence[bytes]) -> bytes:
    """Binds the run keys of all contributors, in the setting's order."""
    return hashlib.sha256(b"".join(keys)).digest()


def roster_digest(run: Run, modulus: bytes, builder_key: bytes, keys_digest: bytes) -> bytes:
    """Binds everything after step 2 to one modulus and one list of keys."""
    size = len(modulus).to_bytes(4, "big")
    return hashlib.sha256(run.context("chain roster") + size + modulus + builder_key + keys_digest).digest()


def link_payload(run: Run, sender: str, receiver: str, digest: bytes, sealed: bytes) -> bytes:
    """Return what a link's signature covers: study, run, step, sender, receiver, roster and the sealed link."""
    return run.context("chain link", sender, receiver) + digest + sealed


def channel(run: Run, mine: AgreementKey, other: str, public: bytes, digest: bytes) -> bytes:
    """Return what this party and another share under one signed roster, whose digest binds study and run."""
    return pair_keys.pair_key(mine, public, me=run.me, other=other, scope=digest, purpose="chain channel")


def key_scope(run: Run) -> bytes:
    """Return what run keys and their signatures are bound to."""
    return pair_keys.scope_of(run, "chain_sum v2")


def masks(channel: bytes, public: PublicKey, count: int) -> list[int]:
    """The masks that two contributors share: one integer for each chunk, uniform modulo N."""
    size = (public.bits + _STATISTICAL_BITS + 7) // 8
    stream = hashlib.shake_256(pair_keys.shared_key(channel, "chain mask")).digest(count * size)  # short: cheaper than AES
    return [int.from_bytes(stream[at : at + size], "big") for at in range(0, len(stream), size)]


def seal(run: Run, channel: bytes, step: str, sender: str, receiver: str, digest: bytes, plaintext: bytes) -> bytes:
    """A box from `sender` to `receiver`, for one step."""
    context = run.context(step, sender, receiver) + digest
    return aead.seal(pair_keys.directed_key(channel, step, sender, receiver, digest), plaintext, associated=context)


def unseal(run: Run, channel: bytes, step: str, sender: str, receiver: str, digest: bytes, sealed: bytes) -> bytes:
    """Return what is in such a box."""
    context = run.context(step, sender, receiver) + digest
    key = pair_keys.directed_key(channel, step, sender, receiver, digest)
    return aead.unseal(key, sealed, associated=context, party=sender)


def _sign(run: Run, payload: bytes) -> bytes:
    if run.signer is None:
        raise LocalProtocolError("a chain needs this party's signing key", party=run.me)
    return run.signer.sign(payload)


def _verify(run: Run, party: str, payload: bytes, signature: bytes) -> None:
    if party not in run.identities:
        raise LocalProtocolError("a chain needs every party's identity", party=run.me)
    signatures.verify(run.identities[party], payload, signature, party=party)


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


# -- the contributor -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Joined:
    """A contributor's view of a checked roster."""

    public: PublicKey
    digest: bytes
    before: str | None
    after: str
    channels: dict[str, bytes]  # with the peers and the builder
    neighbours: tuple[tuple[str, int], ...]  # with the sign of the mask


def contributor(run: Run, setting: SumSetup, options: Options, chunks: list[int], coins: Coins) -> Role[None]:
    """Adds its packed vector, masked, to the running sum, once."""
    count = options.packing.chunks
    # 1. A fresh key for this run.
    key = AgreementKey.generate(coins)
    yield Send(BUILDER, KeyAnnounced(key.public, pair_keys.sign_keys(run, key_scope(run), key.public)))
    # 3. The roster: check it, find the neighbours.
    joined = _join(run, setting, options, key, (yield from receive(BUILDER, RosterListed)))
    public, digest, channels = joined.public, joined.digest, joined.channels
    # 4. One fresh encryption of zero for each chunk.
    dealt = yield from receive(BUILDER, RandomisersDealt)
    data = unseal(run, channels[BUILDER], "chain randomisers", BUILDER, run.me, digest, dealt.sealed)
    randomisers = public.unpack_ciphertexts(data, count, party=BUILDER)
    # 5. Add the masks, which cancel modulo N with those of all others, and encrypt.
    masked = list(chunks)
    for peer, sign in joined.neighbours:
        for index, mask in enumerate(masks(channels[peer], public, count)):
            masked[index] += sign * mask
    link = [public.encrypt_with(chunk, randomiser) for chunk, randomiser in zip(masked, randomisers, strict=True)]
    # 6. Multiply into the running sum and pass it on.
    if joined.before is not None:
        running = yield from _receive_link(run, joined.before, channels[joined.before], digest, public, count)
        link = [public.add(own, other) for own, other in zip(link, running, strict=True)]
    sealed = seal(run, channels[joined.after], "chain link", run.me, joined.after, digest, public.pack_ciphertexts(link))
    yield Send(joined.after, LinkSent(sealed, _sign(run, link_payload(run, run.me, joined.after, digest, sealed))))


def _join(run: Run, setting: SumSetup, options: Options, key: AgreementKey, roster: RosterListed) -> _Joined:
    if len(roster.builder_key) != PUBLIC_BYTES or len(roster.keys_digest) != hashlib.sha256().digest_size:
        raise PeerProtocolError("the roster has the wrong size", party=BUILDER)
    digest = roster_digest(run, roster.modulus, roster.builder_key, roster.keys_digest)
    _verify(run, BUILDER, run.context("chain roster", BUILDER) + digest, roster.signature)
    plan = ChainLayout(digest, setting.contributors, options.neighbours)
    before, after = plan.previous(run.me), plan.following(run.me)
    # The first of the chain tests N for everybody: see "Key checks" in SPEC.md.
    public = PublicKey.from_bytes(roster.modulus, toy_keys=options.toy_keys, composite=before is None, party=BUILDER)
    if public.bits != options.key_bits:
        raise PeerProtocolError("the public key has another size than the study says", party=BUILDER)
    peers, checked = plan.peers(run.me), plan.checked(run.me)
    if len(roster.keys) != PUBLIC_BYTES * len(peers) or len(roster.signatures) != SIGNATURE_BYTES * len(checked):
        raise PeerProtocolError("the roster has the wrong size", party=BUILDER)
    keys = dict(zip(peers, _parts(roster.keys, PUBLIC_BYTES), strict=True))
    # All of this the builder must have checked before; so whatever is wrong here is the builder's doing.
    pair_keys.require_keys([*keys.items(), (BUILDER, roster.builder_key)], own=(key.public,), blame=BUILDER)
    scope = key_scope(run)
    for peer, signature in zip(checked, _parts(roster.signatures, SIGNATURE_BYTES), strict=True):
        pair_keys.verify_keys(run, scope, peer, (keys[peer],), signature, blame=BUILDER)
    if plan.complete:  # then all keys are here, and the digest can be checked
        everybody = {**keys, run.me: key.public}
        if digest_keys([everybody[name] for name in setting.contributors]) != roster.keys_digest:
            raise IntegrityError(party=BUILDER)
    everybody = {**keys, BUILDER: roster.builder_key}
    channels = {peer: channel(run, key, peer, public_key, digest) for peer, public_key in everybody.items()}
    me = plan.index(run.me)
    neighbours = tuple((peer, 1 if me < plan.index(peer) else -1) for peer in plan.neighbours(run.me))
    return _Joined(public, digest, before, after or BUILDER, channels, neighbours)


def _receive_link(run: Run, sender: str, channel: bytes, digest: bytes, public: PublicKey, count: int) -> Role[list[Any]]:
    sent = yield from receive(sender, LinkSent)
    _verify(run, sender, link_payload(run, sender, run.me, digest, sent.sealed), sent.signature)
    data = unseal(run, channel, "chain link", sender, run.me, digest, sent.sealed)
    return public.unpack_ciphertexts(data, count, party=sender)


# -- the builder -----------------------------------------------------------------------------------------------------


def builder(run: Run, setting: SumSetup, options: Options, coins: Coins) -> Role[Total]:
    """Holds the Paillier key, lists the roster, deals the randomisers, opens the sum."""
    # 2. Collect the run keys, make the Paillier key.
    announced = yield from receive_all(setting.contributors, KeyAnnounced)
    for name, message in announced.items():
        if len(message.key) != PUBLIC_BYTES or len(message.signature) != SIGNATURE_BYTES:
            raise PeerProtocolError("a run key or its signature has the wrong size", party=name)
    key = AgreementKey.generate(coins.derive("chain agreement"))
    pair_keys.require_keys(((name, message.key) for name, message in announced.items()), own=(key.public,))
    scope = key_scope(run)
    for name, message in announced.items():
        pair_keys.verify_keys(run, scope, name, (message.key,), message.signature, blame=name)
    private = generate_keypair(options.key_bits, coins.derive("chain paillier"), toy_keys=options.toy_keys)
    modulus = private.public.to_bytes()
    keys_digest = digest_keys([announced[name].key for name in setting.contributors])
    digest = roster_digest(run, modulus, key.public, keys_digest)
    signature = _sign(run, run.context("chain roster", BUILDER) + digest)
    plan = ChainLayout(digest, setting.contributors, options.neighbours)
    # 3. and 4. To everybody the roster, and its randomisers.
    dealer = coins.derive("chain randomisers")
    channels = {name: channel(run, key, name, announced[name].key, digest) for name in setting.contributors}
    for name in plan.order:
        keys = b"".join(announced[peer].key for peer in plan.peers(name))
        checked = b"".join(announced[peer].signature for peer in plan.checked(name))
        yield Send(name, RosterListed(modulus, key.public, keys_digest, keys, checked, signature))
        randomisers = private.public.pack_ciphertexts(private.randomisers(options.packing.chunks, dealer))
        yield Send(name, RandomisersDealt(seal(run, channels[name], "chain randomisers", BUILDER, name, digest, randomisers)))
    # 7. The last link: decrypt, unpack, and open only what can be a total.
    last = plan.order[-1]
    link = yield from _receive_link(run, last, channels[last], digest, private.public, options.packing.chunks)
    totals = [private.public.signed(total) for total in private.decrypt_many(link, party=last)]
    try:
        words = np.array([value % 2**64 for value in options.packing.unpack(totals)], dtype=np.uint64)
    except PeerProtocolError:  # a mask or the running sum is wrong, and nothing shows whose
        wrong = PeerProtocolError("the total is not a sum of the contributors' vectors", suspects=setting.contributors)
        return Total(np.zeros(0, np.uint64), setting.contributors, wrong)
    opened = yield from open_value(setting.label, words)
    return Total(opened, setting.contributors)


def pack_words(packing: Packing, vector: U64Array, party: str) -> list[int]:
    """Our own vector, packed; a word outside the bounds of the setting is our error and leaves nothing."""
    try:
        return packing.pack(vector.view(np.int64).tolist())
    except DataError as cause:
        raise LocalProtocolError("a word of the vector is outside the bounds of the setting", party=party) from cause


class ChainSum(SumProtocol):
    """Azimian et al.'s chain, in one pass, with links that only the next hop reads."""

    name = "chain_sum"
    params = ChainSumParams

    def unsafe(self, setting: SumSetup) -> tuple[str, ...]:
        """Return why the options protect nothing."""
        return unsafe_keys(setting.options)

    def check(self, setting: SumSetup) -> None:
        """Refuse a setting that no run can have."""
        read_options(setting)

    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        """The contributors and the builder."""
        return (*setting.contributors, BUILDER)

    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        """The builder alone."""
        return (BUILDER,)

    def bears(self, setting: SumSetup) -> Coalition:
        """Anybody where all share masks with all; else fewer than mask neighbours, and the builder must follow the steps: it
        could choose who shares with whom."""
        options, others = require_options(setting, msgspec.structs.asdict(ChainSumParams())), len(setting.contributors) - 1
        neighbours = neighbours_of(setting, options["neighbours"])
        return (
            Coalition("the builder", others, others) if neighbours >= others else Coalition("the builder", neighbours - 1, -1)
        )

    def resists(self, setting: SumSetup) -> bool:
        """Only where all share masks with all."""
        return self.bears(setting).active >= 0

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """Return the size of the smallest honest part that this many colluders leave."""
        coalition = self.bears(setting)
        return Smallest(
            len(setting.contributors) - corrupt if corrupt <= (coalition.active if malicious else coalition.passive) else 0
        )

    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        """The role of `run.me`."""
        options = read_options(setting)
        if run.me == BUILDER:
            return (yield from builder(run, setting, options, coins))
        chunks = pack_words(options.packing, require_vector(vector, setting, run.me), run.me)
        yield from contributor(run, setting, options, chunks, coins)
        return None


PROTOCOL = ChainSum()
