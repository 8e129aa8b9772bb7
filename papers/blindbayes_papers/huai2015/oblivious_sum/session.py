"""One contributor's secrets in a run: its keys, and its shares of the others'. No effects here; the roles send and receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blindbayes.crypto import aead
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols import pair_keys
from blindbayes_papers.huai2015.oblivious_sum.membership import Groups
from blindbayes_papers.huai2015.oblivious_sum.messages import RosterNamed
from blindbayes_papers.huai2015.oblivious_sum.terms import MINER, ObliviousEncryption, ObliviousSumSetup


def channel(mine: AgreementKey, public: bytes, *, me: str, other: str, scope: bytes, roster: bytes) -> bytes:
    """Return what two parties of one roster share."""
    return pair_keys.pair_key(mine, public, me=me, other=other, scope=scope + roster, purpose="oblivious_sum channel")


def edge_key(scheme: ObliviousEncryption, channel: bytes) -> int:
    """The key of an edge of the key graph."""
    return scheme.pair_key(pair_keys.shared_key(channel, "oblivious_sum zero key"))


class KeySession:
    """See the module. Secrets do not show in `repr`."""

    def __init__(self, terms: ObliviousSumSetup, scheme: ObliviousEncryption, coins: Coins) -> None:
        if terms.run.signer is None:
            raise ConfigError("pairwise keys need identities: give the run a signer, or use dealt keys")
        self.terms = terms
        self.scheme = scheme
        self.me = terms.run.me
        self._coins = coins
        self._agreement = terms.agreement(coins)
        self.public = self._agreement.public
        self._scope = terms.scope(scheme)
        self.signature = pair_keys.sign_keys(terms.run, self._scope, self.public)
        self.names: tuple[str, ...] = ()
        self.groups = Groups((), 2)
        self.digest = b""
        self._channels: dict[str, bytes] = {}
        self.zero_key = 0
        self.blind = 0
        self._held: dict[str, tuple[int, int]] = {}
        self._attempt = 0
        self._shown: tuple[tuple[str, ...], bytes, bytes] = ((), b"", b"")

    def __repr__(self) -> str:
        return "Session(<redacted>)"

    # -- keys --------------------------------------------------------------------------------------------------------

    def adopt(self, roster: RosterNamed) -> None:
        """Take the miner's roster: check it, agree a key with every neighbour, and make the zero-sum key (3)."""
        setting = self.terms.setting
        known = [name for name in setting.contributors if name in set(roster.names)]
        if list(roster.names) != known or self.me not in known or len(known) < setting.quorum_size:
            raise PeerProtocolError("the roster is not a quorum of the contributors in order", party=MINER)
        if self.names and not set(known) < set(self.names):
            # The keys that seal shares follow from the roster: dealing twice for one would use a key and nonce twice.
            raise PeerProtocolError("the next roster is not smaller", party=MINER)
        self.names = tuple(known)
        self.groups = self.terms.groups(known)
        neighbours = self.groups.neighbours(self.me)
        if not len(roster.publics) == len(roster.signatures) == len(neighbours):
            raise PeerProtocolError("the roster has the wrong number of keys", party=MINER)
        run, publics = self.terms.run, dict(zip(neighbours, roster.publics, strict=True))
        keys = roster.keys
        if self.groups.is_complete:
            everybody = {**publics, self.me: self.public}
            keys = pair_keys.digest_of({name: everybody[name] for name in known})
        self.digest = self.terms.roster_digest(self.names, keys, roster.miner)
        self._shown = (roster.names, roster.miner, roster.keys)
        # All of this the miner must have checked before; so whatever is wrong here is the miner's doing.
        miner = () if self.terms.stands else ((MINER, roster.miner),)  # a site's one standing key serves each of its seats
        pair_keys.require_keys([*publics.items(), *miner], own=(self.public,), blame=MINER)
        pair_keys.verify_keys(run, self._scope, MINER, (roster.miner, self.digest), roster.signature, blame=MINER)
        for (name, public), signature in zip(publics.items(), roster.signatures, strict=True):
            pair_keys.verify_keys(run, self._scope, name, (public,), signature, blame=MINER)
        standing = self.terms.standing if self.terms.stands else {}
        if standing and any(standing[name] != public for name, public in {**publics, MINER: roster.miner}.items()):
            raise PeerProtocolError("a key is not the one in the signed roster", party=MINER)
        self._meet({**publics, MINER: roster.miner})

    def stand(self) -> None:
        """Take everybody's key from the signed roster: nothing is sent."""
        known, keys = self.terms.setting.contributors, self.terms.standing
        self.names, self.groups = known, self.terms.groups(known)
        self.digest = self.terms.standing_digest()
        self._meet({name: keys[name] for name in (*self.groups.neighbours(self.me), MINER)})

    def _meet(self, publics: Mapping[str, bytes]) -> None:
        self._channels = {
            name: channel(self._agreement, public, me=self.me, other=name, scope=self._scope, roster=self.digest)
            for name, public in publics.items()
        }
        edges = {name: edge_key(self.scheme, key) for name, key in self._channels.items()}
        # The lesser name of a pair adds the key, the greater subtracts it; the miner holds minus the sum of its edges.
        self.zero_key = self.scheme.total(key if name == MINER or self.me < name else -key for name, key in edges.items())

    def is_same(self, roster: RosterNamed) -> bool:
        """Return whether it is the roster that was adopted."""
        return (roster.names, roster.miner, roster.keys) == self._shown

    # -- shares ------------------------------------------------------------------------------------------------------

    def _sealing_key(self, name: str, sender: str, receiver: str) -> bytes:
        return pair_keys.directed_key(self._channels[name], "oblivious_sum share", sender, receiver)

    def _share_bytes(self) -> int:
        segment = self.groups.segment_of(self.me)
        max_count = max_holders(self.groups)
        bits = self.scheme.share_bits(max_count, self.terms.threshold(self.groups, segment), len(self.names) + 1)
        return bits // 8 + 2  # and a sign

    def deal(self) -> tuple[bytes, ...]:
        """A fresh blind; shares of it and of the zero-sum key, sealed for every holder in order, own one left empty (4)."""
        self._attempt += 1
        coins = self._coins.derive(f"deal {self._attempt}")
        segment = self.groups.segment_of(self.me)
        holders = self.groups.around(segment)
        threshold, max_count = self.terms.threshold(self.groups, segment), max_holders(self.groups)
        self.blind = self.scheme.random_key(coins)
        blinds = self.scheme.split(self.blind, max_count, threshold, coins)
        zeros = self.scheme.split(self.zero_key, max_count, threshold, coins, count=len(self.names) + 1)
        size = self._share_bytes()
        sealed = []
        for at, name in enumerate(holders):
            if name == self.me:
                self._held = {self.me: (blinds[at], zeros[at])}
                sealed.append(b"")
                continue
            plain = blinds[at].to_bytes(size, "little", signed=True) + zeros[at].to_bytes(size, "little", signed=True)
            sealed.append(aead.seal(self._sealing_key(name, self.me, name), plain, associated=b""))
        return tuple(sealed)

    def owners(self) -> tuple[str, ...]:
        """Return whose shares I hold, besides mine, in order: those whose neighbourhood I am in."""
        return tuple(name for name in self.names if name != self.me and name in self._channels)

    def take(self, inbox: Sequence[bytes]) -> None:
        """The shares that the others dealt to me (5)."""
        owners = self.owners()
        if len(inbox) != len(owners):
            raise PeerProtocolError("the wrong number of shares", party=MINER)
        for name, sealed in zip(owners, inbox, strict=True):
            try:
                plain = aead.unseal(self._sealing_key(name, name, self.me), sealed, associated=b"")
            except IntegrityError as cause:  # its author or the miner that passed it on
                raise IntegrityError(suspects=(name, MINER)) from cause
            half = len(plain) // 2
            if len(plain) % 2 or half > self._share_bytes() + 8:
                raise PeerProtocolError("a share has the wrong size", party=name)
            blind, zero = (int.from_bytes(part, "little", signed=True) for part in (plain[:half], plain[half:]))
            self._held[name] = (blind, zero)

    def corrections(self, survivors: Sequence[str], label: bytes, count: int) -> tuple[tuple[bytes, ...], ...]:
        """My share of the mask that is left on the survivors' product: their blinds less the zero-sum keys of the lost (10)."""
        left = set(survivors)
        if not self._held:
            raise LocalProtocolError("there are no shares to correct with", party=self.me)
        elements = []
        for block in self.groups.held_by(self.me):
            exponent = self.scheme.total(
                self._held[name][0] if name in left else -self._held[name][1] for name in self.groups.blocks[block]
            )
            elements.append(tuple(self.scheme.masks(exponent, label, count)))
        self._held = {}  # one correction per label, and one label per session
        return tuple(elements)


def max_holders(groups: Groups) -> int:
    """The largest number of share holders of any segment: it fixes the scale of recovered masks."""
    return max(len(groups.around(block)) for block in range(len(groups.blocks)))
