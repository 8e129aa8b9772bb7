"""A party's share of a model by the paper's own route, and its file.

It holds shares of scaled probabilities, means and variances (integers under masks 64 bits wider than what they hide), the
party's own Paillier key, since the other keeps ciphertexts under it, and the other's modulus. Neither file alone says anything
about the other party's columns; without either, the model is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from blindbayes.errors import ConfigError, DataError, PeerProtocolError
from blindbayes.naive_bayes.shares import KeptShare, read_share
from blindbayes_papers.primitives.paillier import PrivateKey, PublicKey
from blindbayes_papers.vaidya2008.scalar_product import HeldShare, ScalarProductSetup
from blindbayes_papers.vaidya2008.scalar_product.training import Moments


class _Moments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    means: list[bytes]
    variances: list[bytes]


class _Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal["blindbayes.printed_share/1"]
    study: str
    party: str
    public: dict[str, Any]
    terms: dict[str, Any]
    nominal: dict[str, list[list[bytes]]]
    numeric: dict[str, _Moments]
    class_counts: list[int] | None
    tables: dict[str, list[bytes]]
    key: tuple[bytes, bytes]
    modulus: bytes
    local: dict[str, Any] | None
    queries: int | None


@dataclass(slots=True)
class PrintedShare(KeptShare):
    """One party's share. `public` and `terms` are what both agreed on; the rest never leaves the party."""

    study: str
    party: str
    public: Mapping[str, Any]
    terms: ScalarProductSetup
    parameters: HeldShare = field(repr=False)
    key: PrivateKey | None = field(repr=False)
    other_key: PublicKey
    local: Mapping[str, Any] | None = field(repr=False)  # statistics of own columns, if the class is known
    queries: int | None = None
    path: Path | None = None
    _spent: int = 0
    _destroyed: bool = False

    @property
    def agreed(self) -> tuple[Any, ...]:
        """Return what the shares of one model have in common."""
        return self.study, dict(self.public), self.terms.facts()

    @property
    def own_key(self) -> PrivateKey:
        """The party's Paillier key."""
        self.require_alive()
        if self.key is None:
            raise ConfigError(f"{self.party}: this share of the model was destroyed; train again")
        return self.key

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrintedShare:
        """Read a share file. A damaged one, or one that others may read, is refused."""
        record = read_share(path, _Record)
        try:
            terms = ScalarProductSetup(**record.terms)
            key = PrivateKey(*(int.from_bytes(prime, "big") for prime in record.key), toy_keys=terms.toy_keys)
            other = PublicKey.from_bytes(record.modulus, toy_keys=terms.toy_keys)
            packed = {
                name: [other.unpack_ciphertexts(row, len(row) // other.ciphertext_bytes) for row in rows]
                for name, rows in record.tables.items()
            }
        except (TypeError, ConfigError, PeerProtocolError):
            raise DataError("the share file holds keys or terms that do not fit") from None
        parameters = HeldShare(
            {name: [_integers(row) for row in rows] for name, rows in record.nominal.items()},
            {name: Moments(_integers(own.means), _integers(own.variances)) for name, own in record.numeric.items()},
            record.class_counts,
            packed,
        )
        return cls(
            record.study, record.party, record.public, terms, parameters, key, other, record.local, record.queries, Path(path)
        )

    def body(self) -> bytes:
        """The file's content, without its frame."""
        parameters, other = self.parameters, self.other_key
        moments = {name: _Moments(_signed(own.means), _signed(own.variances)) for name, own in parameters.numeric.items()}
        return msgspec.msgpack.encode(
            _Record(
                "blindbayes.printed_share/1",
                self.study,
                self.party,
                dict(self.public),
                self.terms.to_dict(),
                {name: [_signed(row) for row in rows] for name, rows in parameters.nominal.items()},
                moments,
                parameters.class_counts,
                {name: [other.pack_ciphertexts(row) for row in rows] for name, rows in parameters.tables.items()},
                self.own_key.primes,
                other.to_bytes(),
                None if self.local is None else dict(self.local),
                self.queries,
            )
        )

    def wipe(self) -> None:
        """Forget what is secret. Python's integers cannot be overwritten; the file is."""
        self.parameters, self.key, self.local = HeldShare(), None, None


def _signed(values: Iterable[int]) -> list[bytes]:
    return [value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True) for value in values]


def _integers(values: Iterable[bytes]) -> list[int]:
    return [int.from_bytes(value, "big", signed=True) for value in values]
