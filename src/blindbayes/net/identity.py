"""Identity of a site: its keys, a TLS certificate, the card it hands out, and the cards it has pinned.

One secret gives an Ed25519 key (the identity), an ML-DSA key (which signs beside it what is read for years) and a hybrid key of
X25519 and ML-KEM-768 (for the pairs of sums, and for notices). The card shows the public keys, and its words cover them all.

There is no certificate authority: two sites exchange cards, compare the fingerprint words by telephone, and pin. The TLS
certificate is self-signed and never expires, since the clock is not trusted and the pin is what counts.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import tomlkit
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from blindbayes.crypto.aead import seal, unseal
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import SEED_BYTES, HybridKey, is_proper
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import KEY_BYTES, derive_key, expand_bytes
from blindbayes.crypto.signatures import LASTING_PUBLIC_BYTES, SigningKey, verify
from blindbayes.errors import ConfigError, IntegrityError
from blindbayes.io.files import make_private_folder, read_private, write_whole
from blindbayes.io.untrusted import NAME, read_limited, read_toml, require_seen

_SCRYPT_LOG_N = 16
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_PLAIN, _SCRYPT = b"bb1p", b"bb1s"
_FIELDS = frozenset(("name", "address", "identity", "agreement", "ml_dsa", "signature", "certificate"))
_EARLIER = _FIELDS - {"ml_dsa"}
_COLUMNS = 76  # of keys on a card: mail breaks or refuses longer lines
_CONSONANTS, _VOWELS = "bdfghjklmnprstvz", "aiou"


def require_name(name: str) -> str:
    """Return a valid site name: it is a file name and a metric label everywhere."""
    if not NAME.fullmatch(name):
        raise ConfigError("a site's name starts with a small letter and has at most 40 small letters, digits or dashes")
    return name


def speak(digest: bytes) -> str:
    """Encode bytes as words that can be read out by telephone (proquints: five letters per 16 bits)."""
    words = []
    for at in range(0, len(digest), 2):
        bits = int.from_bytes(digest[at : at + 2], "big")
        words.append(
            _CONSONANTS[bits >> 12]
            + _VOWELS[bits >> 10 & 3]
            + _CONSONANTS[bits >> 6 & 15]
            + _VOWELS[bits >> 4 & 3]
            + _CONSONANTS[bits & 15]
        )
    return "-".join(words)


def framed(*parts: bytes) -> bytes:
    """Concatenate the parts, each behind its length: no two lists give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@dataclass(frozen=True, slots=True)
class Card:
    """The public card of a site, signed by its identity. `address` is empty for a site that only dials out."""

    name: str
    identity: bytes
    certificate: bytes  # PEM
    address: str = ""
    signature: bytes = b""
    agreement: bytes = b""  # X25519 and ML-KEM-768, for keys that stand over many runs
    ml_dsa: bytes = b""  # signs beside the identity what is read for years

    def _signed_bytes(self) -> bytes:
        parts = (self.name.encode(), self.identity, self.certificate, self.address.encode())
        return framed(b"blindbayes card v2", *parts, self.agreement, self.ml_dsa)

    def fits(self, identity: str, key: str | None) -> bool:
        """Return True if a party of a study, whose card may have no key in it, has the keys of this card."""
        return self.identity.hex() == identity and key in (None, self.key)

    @property
    def key(self) -> str:
        """The SHA-256 of the keys beside the identity, by which a study names them."""
        return hashlib.sha256(framed(b"blindbayes card keys v1", self.agreement, self.ml_dsa)).hexdigest()

    @property
    def lasting_public(self) -> bytes:
        """Both keys that sign what is read for years."""
        return self.identity + self.ml_dsa

    @property
    def certificate_digest(self) -> bytes:
        """SHA-256 of the certificate's DER form, which connections are checked against."""
        return x509.load_pem_x509_certificate(self.certificate).fingerprint(hashes.SHA256())

    @property
    def fingerprint(self) -> bytes:
        """The first 128 bits of a hash of the name and all keys. The address is left out, since it may change."""
        keys = (self.identity, self.agreement, self.ml_dsa, self.certificate_digest)
        parts = framed(b"blindbayes fingerprint v2", self.name.encode(), *keys)
        return hashlib.sha256(parts).digest()[:16]

    @property
    def words(self) -> str:
        """The fingerprint as words, to be compared by telephone."""
        return speak(self.fingerprint)

    def require_words(self, words: str, place: str = "card.toml") -> None:
        """Raise unless these are the words of this card; spaces stand for dashes. `place` names where its site reads them."""
        if "-".join(words.lower().replace("-", " ").split()) != self.words:
            raise ConfigError(
                f"the words are not those of this card: ask {self.name} to read them out again from its own {place}; if they "
                "still differ, the card was changed on its way: do not trust it"
            )

    @property
    def tls_name(self) -> str:
        """The random name in the certificate, which a dialling site asks for. Anyone can read it at the port."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return names.get_values_for_type(x509.DNSName)[0]

    def to_toml(self) -> str:
        document = tomlkit.document()
        document.add(tomlkit.comment(f"card of {self.name}: compare these words by telephone before you pin it"))
        document.add(tomlkit.comment(self.words))
        document["name"] = self.name
        document["address"] = self.address
        document["identity"] = self.identity.hex()
        document["agreement"] = _wrapped(self.agreement)
        document["ml_dsa"] = _wrapped(self.ml_dsa)
        document["signature"] = self.signature.hex()
        document["certificate"] = tomlkit.string(self.certificate.decode(), multiline=True)
        return tomlkit.dumps(document)

    @classmethod
    def from_toml(cls, text: str | bytes) -> Card:
        """Read and verify a card."""
        try:
            table = read_toml(text, "the card")
            if set(table) == _EARLIER:
                raise ConfigError(
                    f"the card of {require_name(table['name'])} is of an earlier version, without keys of ML-KEM and ML-DSA: "
                    "`blindbayes site rotate` there makes a new one; compare its words and pin it with --replace"
                )
            if set(table) != _FIELDS:
                raise ConfigError(
                    "this is no card: a card has name, address, identity, agreement, ml_dsa, signature and certificate, "
                    "nothing else; each site hands out the card.toml of its folder"
                )
            card = cls(
                name=require_name(table["name"]),
                identity=bytes.fromhex(table["identity"]),
                certificate=table["certificate"].encode(),
                address=str(table["address"]),
                signature=bytes.fromhex(table["signature"]),
                agreement=_unwrapped(table["agreement"]),
                ml_dsa=_unwrapped(table["ml_dsa"]),
            )
            if not is_proper(card.agreement) or len(card.lasting_public) != LASTING_PUBLIC_BYTES:
                raise ValueError("no key")
            if not card.tls_name:
                raise ValueError("no name")
            shown = x509.load_pem_x509_certificate(card.certificate).public_bytes(serialization.Encoding.PEM)
            if shown != card.certificate:  # a second one would be trusted too, and the words do not cover it
                raise ValueError("more than one certificate")
            if len(card.address) > 300 or len(require_seen(card.address, "the address on a card")) != len(table["address"]):
                raise ValueError("no address")
        except ConfigError:
            raise
        except Exception as cause:  # libraries raise many kinds of errors for malformed certificates
            raise ConfigError("this is not a site's card") from cause
        try:
            verify(card.identity, card._signed_bytes(), card.signature)
        except IntegrityError as cause:
            raise ConfigError(f"the card of {card.name} is not signed by its own identity") from cause
        return card


@dataclass(frozen=True, slots=True)
class Identity:
    """The keys and card of this site."""

    card: Card
    signing: SigningKey = field(repr=False)
    tls_key: bytes = field(repr=False)  # PEM
    storage_key: bytes = field(repr=False)  # wraps what the site keeps for itself, such as journal keys
    agreement: HybridKey = field(repr=False)  # stands over many runs

    @property
    def name(self) -> str:
        return self.card.name

    @classmethod
    def generate(cls, name: str, *, address: str = "", coins: Coins | None = None) -> Identity:
        """Make fresh keys and a signed card, in memory only."""
        return cls._fresh(name, address, coins or Coins.system())[0]

    @classmethod
    def _fresh(cls, name: str, address: str, coins: Coins) -> tuple[Identity, bytes]:
        require_name(name)
        secret = coins.bytes(32)
        tls_private = ec.derive_private_key(1 + coins.below(_P256_ORDER - 1), ec.SECP256R1())
        certificate = _self_signed(f"{coins.bytes(8).hex()}.blindbayes", tls_private, serial=1 + coins.bits(150))
        return cls._assemble(name, address, secret, _pem(tls_private), certificate), secret

    @classmethod
    def _assemble(cls, name: str, address: str, secret: bytes, tls_key: bytes, certificate: bytes) -> Identity:
        signing = SigningKey(derive_key(secret, "identity"))
        curve = AgreementKey(derive_key(secret, "standing"))
        agreement = HybridKey(curve, expand_bytes(derive_key(secret, "standing lattice"), SEED_BYTES))
        ml_dsa = signing.lasting_public[len(signing.public) :]
        unsigned = Card(name, signing.public, certificate, address, agreement=agreement.public, ml_dsa=ml_dsa)
        card = replace(unsigned, signature=signing.sign(unsigned._signed_bytes()))
        return cls(card, signing, tls_key, derive_key(secret, "storage"), agreement)

    @classmethod
    def create(cls, home: Path, name: str, *, address: str = "", passphrase: str | None = None) -> Identity:
        """Make keys in `home`/keys and the card in `home`/card.toml. Never overwrites keys."""
        coins = Coins.system()
        identity, secret = cls._fresh(name, address, coins)
        keys = make_private_folder(home / "keys")
        write_whole(keys / "identity.key", _lock(secret, passphrase, coins), replace=False)
        write_whole(keys / "tls.key", _lock(identity.tls_key, passphrase, coins), replace=False)
        write_whole(home / "card.toml", identity.card.to_toml().encode(), private=False)
        return identity

    @classmethod
    def load(cls, home: Path, *, passphrase: str | None = None) -> Identity:
        """Load the keys in `home`. Refuse key files that others may read, and a card of other keys."""
        secret = _identity_secret(home, passphrase)
        tls_key = _unlock(home / "keys" / "tls.key", passphrase)
        card = read_card(home / "card.toml")
        identity = cls._assemble(card.name, card.address, secret, tls_key, card.certificate)
        try:
            private = serialization.load_pem_private_key(tls_key, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigError("keys/tls.key is damaged: `blindbayes site rotate` makes a new one") from None
        if identity.card.identity != card.identity or (
            x509.load_pem_x509_certificate(card.certificate).public_key() != private.public_key()
        ):
            raise ConfigError("card.toml does not belong to the keys of this site")
        return identity

    @classmethod
    def rotate(cls, home: Path, *, passphrase: str | None, new_passphrase: str | None) -> Identity:
        """Make new connection keys and a new card for the same identity; lock the keys with the new passphrase.

        An interrupted rotation can be repeated: it needs the identity's key alone. The card may be of an earlier version.
        """
        coins, (name, address, public) = Coins.system(), _own_lines(home / "card.toml")
        secret = _identity_secret(home, passphrase)
        private = ec.derive_private_key(1 + coins.below(_P256_ORDER - 1), ec.SECP256R1())
        certificate = _self_signed(f"{coins.bytes(8).hex()}.blindbayes", private, serial=1 + coins.bits(150))
        identity = cls._assemble(name, address, secret, _pem(private), certificate)
        if identity.card.identity != public:
            raise ConfigError("card.toml does not belong to the keys of this site")
        write_whole(home / "keys" / "tls.key", _lock(identity.tls_key, new_passphrase, coins))
        write_whole(home / "card.toml", identity.card.to_toml().encode(), private=False)
        write_whole(home / "keys" / "identity.key", _lock(secret, new_passphrase, coins))
        return identity

    def with_address(self, address: str) -> Identity:
        """Return the same keys, with a card that names another address."""
        unsigned = replace(self.card, address=address)
        return replace(self, card=replace(unsigned, signature=self.signing.sign(unsigned._signed_bytes())))


def read_card(path: Path) -> Card:
    try:
        return _verified(read_limited(path))
    except FileNotFoundError:
        raise ConfigError(f"{path.name} is missing") from None


@functools.lru_cache(maxsize=512)
def _verified(content: bytes) -> Card:
    """Verify a card once: an agent reads those of its peers with every notice that arrives."""
    return Card.from_toml(content)


def _own_lines(path: Path) -> tuple[str, str, bytes]:
    """Return the name, address and identity on a site's own card, of this version or an earlier one."""
    try:
        table = read_toml(read_limited(path), "the card")
        if set(table) not in (_FIELDS, _EARLIER):
            raise ValueError("no card")
        return require_name(table["name"]), str(table["address"]), bytes.fromhex(table["identity"])
    except FileNotFoundError:
        raise ConfigError(f"{path.name} is missing") from None
    except (KeyError, TypeError, ValueError):
        raise ConfigError("card.toml is damaged: restore it from a backup") from None


def pin(home: Path, card: Card, *, replace: bool = False) -> None:
    """Trust a card from now on. A pinned name is replaced only on demand."""
    folder = make_private_folder(home / "peers")
    path = folder / f"{card.name}.toml"
    if path.exists() and not replace and read_card(path).fingerprint != card.fingerprint:
        raise ConfigError(
            f"another card of {card.name} is pinned already: ask {card.name} whether it made new keys, compare the words of "
            "the new card, and pin it with --replace"
        )
    write_whole(path, card.to_toml().encode(), private=False)


def pinned(home: Path) -> dict[str, Card]:
    """Return all pinned cards by name. Two names may not share an identity or a certificate."""
    cards = {path.stem: read_card(path) for path in sorted((home / "peers").glob("*.toml"))}
    for name, card in cards.items():
        if name != card.name:
            raise ConfigError(f"peers/{name}.toml is the card of {card.name}")
    if len({card.identity for card in cards.values()}) != len(cards):
        raise ConfigError("two pinned cards have the same identity")
    if len({card.certificate_digest for card in cards.values()}) != len(cards):
        raise ConfigError("two pinned cards have the same certificate")
    return cards


def _wrapped(key: bytes) -> tomlkit.items.String:
    """Return the key in base64, in lines that mail leaves alone."""
    text = base64.b64encode(key).decode()
    lines = [text[at : at + _COLUMNS] for at in range(0, len(text), _COLUMNS)]
    return tomlkit.string("\n".join(["", *lines, ""]), multiline=True)


def _unwrapped(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _self_signed(tls_name: str, private: ec.EllipticCurvePrivateKey, *, serial: int) -> bytes:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, tls_name)])
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(serial)
        .not_valid_before(datetime.datetime(2000, 1, 1))
        .not_valid_after(datetime.datetime(9999, 12, 31, 23, 59, 59))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(private, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def _pem(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def _stretch(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, n=1 << _SCRYPT_LOG_N, r=8, p=1).derive(passphrase.encode())


def _lock(secret: bytes, passphrase: str | None, coins: Coins) -> bytes:
    if passphrase is None:
        return _PLAIN + secret
    salt = coins.bytes(16)
    return _SCRYPT + salt + seal(_stretch(passphrase, salt), secret, associated=_SCRYPT + salt)


def _identity_secret(home: Path, passphrase: str | None) -> bytes:
    secret = _unlock(home / "keys" / "identity.key", passphrase)
    if len(secret) != KEY_BYTES:
        raise ConfigError("keys/identity.key is damaged: restore it from a backup")
    return secret


def _unlock(path: Path, passphrase: str | None) -> bytes:
    stored = read_private(path)
    form, body = stored[:4], stored[4:]
    if form == _PLAIN:
        return body
    if form != _SCRYPT:
        raise ConfigError(f"keys/{path.name} is damaged: restore it from a backup")
    if passphrase is None:
        raise ConfigError("the keys of this site have a passphrase: give it with --passphrase-file")
    try:
        return unseal(_stretch(passphrase, body[:16]), body[16:], associated=_SCRYPT + body[:16])
    except IntegrityError:
        raise ConfigError("the passphrase does not open the keys of this site") from None
