"""Certificates of an authority, for consortia that have one: in addition to the pins, never in place of them.

The authority signs the TLS key and the name on a site's card. A connection is accepted if the certificate comes from the
authority, is in its dates, and belongs to a pinned card: by key at the listening side, by name at the dialling side. The
authority adds dates and the power to end them. It cannot forge messages: the envelope knows pins only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from blindbayes.errors import ConfigError
from blindbayes.net.identity import Card, Identity


@dataclass(frozen=True, slots=True)
class Authority:
    """The roots that a site trusts to certify TLS keys, and its own chain, in PEM."""

    roots: bytes
    chain: bytes

    @classmethod
    def load(cls, identity: Identity, roots: Path, chain: Path) -> Authority:
        """Read both files; the chain must certify this site's own key and name."""
        try:
            authority = cls(roots.read_bytes(), chain.read_bytes())
            x509.load_pem_x509_certificates(authority.roots)
            own = x509.load_pem_x509_certificates(authority.chain)[0]
            names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except OSError as cause:
            raise ConfigError(f"[tls] in site.toml: a file cannot be read: {cause.strerror}") from None
        except (ValueError, x509.ExtensionNotFound) as cause:
            raise ConfigError("[tls] in site.toml: these are not PEM certificates with a name") from cause
        card = identity.card
        if key_digest(own) != key_digest(x509.load_pem_x509_certificate(card.certificate)):
            raise ConfigError("[tls] in site.toml: the certificate is not of this site's key; see `blindbayes site request`")
        if card.tls_name not in names.get_values_for_type(x509.DNSName):
            raise ConfigError("[tls] in site.toml: the certificate lacks the name on this site's card")
        return authority


def key_digest(certificate: x509.Certificate) -> bytes:
    """Return SHA-256 of the public key."""
    digest = hashes.Hash(hashes.SHA256())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    digest.update(certificate.public_key().public_bytes(serialization.Encoding.DER, form))
    return digest.finalize()


def key_names(cards: Mapping[str, Card]) -> dict[bytes, str]:
    return {key_digest(x509.load_pem_x509_certificate(card.certificate)): name for name, card in cards.items()}


def request(identity: Identity) -> bytes:
    """Return a signing request (PEM) for this site's TLS key under the name on its card."""
    name = identity.card.tls_name
    key = serialization.load_pem_private_key(identity.tls_key, None)
    built = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    return built.public_bytes(serialization.Encoding.PEM)
