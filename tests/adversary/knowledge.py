"""What a coalition knows after a run: a ledger of every secret that was computed, and the linear algebra of masks.

While a run is on, `Ledger.watching()` wraps the primitives and writes down who computed what: agreements, derived keys, shares,
boxes, masks, ciphertexts. `Ledger.determined` then asks what a coalition can compute from its own values and from the messages
that it received:

1. Closure. It knows the secret of an agreement if it knows one of the two private keys; a derived key if it knows what it is
   derived from; what is in a box that it received if it knows the box's key; a shared secret if it holds enough of its shares.
2. Linear algebra. Every masked vector, ciphertext or correction that it received is a row: the honest vectors in it, plus masks
   and keys with their signs. What it knows is struck out. A combination of rows in which all unknown masks cancel determines a
   linear functional of the honest vectors. These functionals, and no others, are what the coalition learns (masks are
   independent and uniform: streams of a block cipher, powers of random points under decisional Diffie-Hellman).

Two masks are the same exactly if their keys are the same bytes: so a key that two pairs have in common shows as one column.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from blindbayes.crypto import aead, prg, shamir
from blindbayes.crypto.hybrid import HybridKey
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum
from blindbayes_papers.primitives.paillier import PublicKey

try:
    from blindbayes.protocols import pair_keys
except ImportError:  # an older tree
    pair_keys = None

PRIME = 2**61 - 1
Form = dict[Any, int]  # what is unknown in a value -> its coefficient


def plus(one: Form, other: Form, factor: int = 1) -> Form:
    """One form plus a multiple of another."""
    found = dict(one)
    for atom, count in other.items():
        found[atom] = found.get(atom, 0) + factor * count
    return {atom: count for atom, count in found.items() if count}


@dataclass(frozen=True)
class Row:
    """A value that was sent: recognised in messages by `image`. Only rows of one `label` share masks."""

    label: Any
    image: bytes
    form: Form  # atoms of masks, and ("x", party) for vectors


@dataclass
class Split:
    """A secret shared among holders."""

    secret: bytes
    threshold: int
    shares: list[bytes]


def flat(value: Any) -> Iterator[bytes]:
    """Every byte string in a message."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, np.ndarray):
        yield value.tobytes()
    elif isinstance(value, tuple | list):
        for part in value:
            yield from flat(part)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from flat(getattr(value, name))


class Ledger:
    """See the module."""

    def __init__(self, contributors: Collection[str]) -> None:
        self.contributors = tuple(contributors)
        self.current: str | None = None  # whose role runs now
        self.received: dict[str, list[bytes]] = {}
        self.made: dict[str, set[bytes]] = {}
        self.privates: dict[bytes, bytes] = {}  # public key -> private key
        self.agreements: list[tuple[bytes, bytes, bytes]] = []  # private, public, secret
        self.derivations: dict[bytes, set[bytes]] = {}  # key -> what it was derived from
        self.vouched: dict[tuple[bytes, bytes], bytes] = {}  # keys of two cards, the reader's first -> their secret
        self.mixtures: dict[bytes, tuple[bytes, bytes]] = {}  # key -> the two secrets that it takes
        self.splits: list[Split] = []
        self.boxes: dict[bytes, tuple[bytes, bytes]] = {}  # sealed -> key, plaintext
        self.rows: list[Row] = []
        self.forms: dict[int, Form] = {}
        self.owners: dict[Any, str | None] = {}  # of atoms that a party drew by itself
        self.ciphers: dict[int, Form] = {}
        self._masks: dict[str | None, list[tuple[Any, list[int]]]] = {}
        self._numbers = itertools.count()
        self._last_key = b""

    # -- recording -----------------------------------------------------------------------------------------------------

    def _note(self, value: bytes) -> bytes:
        self.made.setdefault(self.current or "", set()).add(value)
        return value

    def hear(self, party: str, message: Any) -> None:
        """A party was handed a message."""
        self.received.setdefault(party, []).extend(flat(message))

    def form_of(self, number: int) -> Form:
        """The form of a number that was recorded; of any other, nothing is unknown."""
        if number in self.forms:
            return self.forms[number]
        if -number in self.forms:
            return plus({}, self.forms[-number], -1)
        return {}

    def _fresh(self, kind: str) -> Any:
        atom = (kind, next(self._numbers))
        self.owners[atom] = self.current
        return atom

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record what the primitives do."""
        undo: list[tuple[Any, str, Any]] = []

        wanted: dict[int, tuple[Any, Any]] = {}

        def everywhere(original: Any, wrapped: Any) -> None:
            assert id(original) not in wanted
            wanted[id(original)] = (original, wrapped)

        def method(kind: type, name: str, wrap: Callable[[Any], Any]) -> None:
            original = kind.__dict__[name]
            undo.append((kind, name, original))
            setattr(kind, name, wrap(original))

        self._watch_keys(everywhere, method)
        self._watch_words(everywhere)
        for scheme in (RistrettoSum, JoyeLibert):
            self._watch_scheme(scheme, method)
        self._watch_chain(everywhere, method)
        for name, module in list(sys.modules.items()):
            if module is not None and name.startswith("blindbayes"):
                for attribute, value in list(vars(module).items()):
                    if found := wanted.get(id(value)):
                        undo.append((module, attribute, found[0]))
                        setattr(module, attribute, found[1])
        try:
            yield
        finally:
            for place, name, original in reversed(undo):
                setattr(place, name, original)

    def _watch_keys(self, everywhere: Any, method: Any) -> None:
        def made_key(original: Any) -> Any:
            def init(key: AgreementKey, secret: bytes) -> None:
                original(key, secret)
                self.privates[key.public] = self._note(key.secret_bytes())

            return init

        def agreed(original: Any) -> Any:
            def agree(key: AgreementKey, public: bytes, **named: Any) -> bytes:
                secret = original(key, public, **named)
                self.agreements.append((key.secret_bytes(), public, secret))
                return self._note(secret)

            return agree

        def agreed_many(original: Any) -> Any:
            def agree_many(key: AgreementKey, publics: Any, parties: Any) -> list[bytes]:
                secrets: list[bytes] = original(key, publics, parties)
                for public, secret in zip(publics, secrets, strict=True):
                    self.agreements.append((key.secret_bytes(), public, self._note(secret)))
                return secrets

            return agree_many

        def vouched(original: Any) -> Any:
            def wrapped(key: HybridKey, publics: Any, *rest: Any) -> Any:
                made = original(key, publics, *rest)
                for public, each in zip(publics.values(), made, strict=True):
                    self.vouched[key.public, public] = each if isinstance(each, bytes) else each[0]
                return made

            return wrapped

        def mixed(secret: bytes, other: bytes) -> bytes:
            key: bytes = original_mixed(secret, other)
            self.derivations.pop(key, None)  # from one of the two, as it is made; it takes both
            self.mixtures[key] = (secret, other)
            return key

        def derive_many(keys: bytes, *rest: Any, **named: Any) -> list[bytes]:
            made: list[bytes] = original_many(keys, *rest, **named)
            for at in range(0, len(keys), 32):
                for joined in made:
                    self.derivations.setdefault(joined[at : at + 32], set()).add(keys[at : at + 32])
                    self._note(joined[at : at + 32])
            return made

        def seal_many(keys: bytes, texts: Any, **named: Any) -> Any:
            boxes = original_seal_many(keys, texts, **named)
            for at, text in enumerate(texts):
                self.boxes[boxes[at].tobytes()] = (keys[32 * at :][:32], text.tobytes())
            return boxes

        def sealed_secrets(original: Any) -> Any:
            def wrapped(terms: Any, run_key: bytes, secrets: bytes) -> bytes:
                sealed: bytes = original(terms, run_key, secrets)
                if self.current in self.contributors:
                    self.boxes[sealed] = (run_key, secrets)
                return sealed

            return wrapped

        def derive(secret: bytes, *rest: Any, **named: Any) -> bytes:
            key = derive_key(secret, *rest, **named)
            self.derivations.setdefault(key, set()).add(secret)
            self._last_key = key
            return self._note(key)

        def split_many(secrets: Any, points: Any, threshold: int, coins: Any) -> Any:
            shares = original_split(secrets, points, threshold, coins)
            for at, secret in enumerate(secrets):
                rows = [row.astype("<u2").tobytes() for row in shares[:, at]]
                self.splits.append(Split(secret, threshold, rows))
            return shares

        def seal(key: bytes, plaintext: bytes, **named: Any) -> bytes:
            box = original_seal(key, plaintext, **named)
            self.boxes[box] = (key, plaintext)
            return box

        derive_key, original_split, original_seal = prg.derive_key, shamir.split_many, aead.seal
        method(AgreementKey, "__init__", made_key)
        if hasattr(AgreementKey, "agree_many"):
            from blindbayes.protocols.secure_sum.keys import MaskedSumSetup

            original_many, original_seal_many, original_mixed = prg.derive_many, aead.seal_many, pair_keys.mixed
            method(AgreementKey, "agree_many", agreed_many)
            method(MaskedSumSetup, "sealed_secrets", sealed_secrets)
            method(HybridKey, "encapsulate_many", vouched)
            method(HybridKey, "decapsulate_many", vouched)
            everywhere(original_many, derive_many)
            everywhere(original_seal_many, seal_many)
            everywhere(original_mixed, mixed)
        else:  # an older tree
            method(AgreementKey, "agree", agreed)
        everywhere(derive_key, derive)
        everywhere(original_split, split_many)
        everywhere(original_seal, seal)

    def _watch_words(self, everywhere: Any) -> None:
        """Vectors of words under masks."""

        def add_masks(vector: Any, added: bytes, taken: bytes) -> Any:
            result = original(vector, added, taken)
            if self.current in self.contributors:
                form: Form = {("x", self.current): 1}
                for keys, sign in ((added, 1), (taken, -1)):
                    for key in keys if isinstance(keys, list) else prg.keys_of(keys):  # an older tree gives a list
                        form = plus(form, {key: 1}, sign)
                self.rows.append(Row("words", result.tobytes(), form))
            return result

        original = prg.add_masks
        everywhere(original, add_masks)

    def _watch_scheme(self, scheme: type, method: Any) -> None:
        """Aggregator-oblivious encryption: exponents."""

        def random_key(original: Any) -> Any:
            def wrapped(this: Any, coins: Any) -> int:
                key: int = original(this, coins)
                self.forms[key] = {self._fresh("drawn"): 1}
                return key

            return wrapped

        def pair_key(original: Any) -> Any:
            def wrapped(this: Any, secret: bytes) -> int:
                key: int = original(this, secret)
                self.forms[key] = {secret: 1}
                return key

            return wrapped

        def total(original: Any) -> Any:
            def wrapped(this: Any, keys: Any) -> int:
                keys = list(keys)
                found: int = original(this, keys)
                form: Form = {}
                for key in keys:
                    form = plus(form, self.form_of(key))
                self.forms[found] = form
                return found

            return wrapped

        def split(original: Any) -> Any:
            def wrapped(this: Any, key: int, holders: int, threshold: int, coins: Any, **named: Any) -> list[int]:
                shares: list[int] = original(this, key, holders, threshold, coins, **named)
                factor = math.factorial(holders) if scheme is JoyeLibert else 1
                atoms = [self._fresh("coefficient") for _ in range(threshold - 1)]
                for point, share in enumerate(shares, 1):
                    form = plus({}, self.form_of(key), factor)
                    for degree, atom in enumerate(atoms, 1):
                        form = plus(form, {atom: point**degree})
                    self.forms[share] = form
                return shares

            return wrapped

        def encrypt(original: Any) -> Any:
            def wrapped(this: Any, plaintexts: Any, key: int, label: bytes) -> list[bytes]:
                before = len(self.rows)
                elements: list[bytes] = original(this, plaintexts, key, label)
                del self.rows[before:]  # masks made on the way; of a zero they look like the ciphertext
                self.rows.append(Row(label, elements[0], plus({("x", self.current): 1}, self.form_of(key))))
                return elements

            return wrapped

        def masks(original: Any) -> Any:
            def wrapped(this: Any, key: int, label: bytes, count: int) -> list[bytes]:
                elements: list[bytes] = original(this, key, label, count)
                if elements:
                    self.rows.append(Row(label, elements[0], self.form_of(key)))
                return elements

            return wrapped

        for hook in (random_key, pair_key, total, split, encrypt, masks):
            method(scheme, hook.__name__, hook)

    def _watch_chain(self, everywhere: Any, method: Any) -> None:
        """The running sum under Paillier; one chunk."""
        from blindbayes_papers.azimian2022.chain_sum import roles

        def masks(*arguments: Any) -> list[int]:
            found: list[int] = original(*arguments)
            self._masks.setdefault(self.current, []).append((self._last_key, found))
            return found

        def encrypt_with(first: Any) -> Any:
            def wrapped(this: Any, chunk: int, randomiser: Any) -> Any:
                cipher = first(this, chunk, randomiser)
                form = plus({("x", self.current): 1}, self._signed_masks(int(chunk), this.bits))
                self._cipher(this, cipher, form)
                return cipher

            return wrapped

        def add(first: Any) -> Any:
            def wrapped(this: Any, one: Any, other: Any) -> Any:
                cipher = first(this, one, other)
                self._cipher(this, cipher, plus(self.ciphers.get(int(one), {}), self.ciphers.get(int(other), {})))
                return cipher

            return wrapped

        original = roles.masks
        everywhere(original, masks)
        method(PublicKey, "encrypt_with", encrypt_with)
        method(PublicKey, "add", add)

    def _signed_masks(self, chunk: int, bits: int) -> Form:
        """With which signs the masks that this party made stand in its chunk: they are far wider than what they hide."""
        found = self._masks.get(self.current, [])
        for signs in itertools.product((1, -1), repeat=len(found)):
            left = chunk - sum(sign * masks[0] for sign, (_, masks) in zip(signs, found, strict=True))
            if abs(left).bit_length() <= bits:
                form: Form = {}
                for sign, (key, _) in zip(signs, found, strict=True):
                    form = plus(form, {key: 1}, sign)
                return form
        raise AssertionError("masks of a chunk were not recognised")

    def _cipher(self, public: PublicKey, cipher: Any, form: Form) -> None:
        self.ciphers[int(cipher)] = form
        self.rows.append(Row("chain", int(cipher).to_bytes(public.ciphertext_bytes, "big"), form))

    # -- asking --------------------------------------------------------------------------------------------------------

    def closure(self, coalition: Collection[str]) -> tuple[set[bytes], bytes]:
        """What the coalition knows: secrets, and everything it can read, in one string."""
        known = set().union(*(self.made.get(name, set()) for name in coalition))
        read = [blob for name in coalition for blob in self.received.get(name, [])]
        opened: set[bytes] = set()
        gap = b"\xff\x00gap\x00\xff"
        while True:
            corpus = gap.join(read)
            before = (len(known), len(read))
            for private, public, secret in self.agreements:
                if private in known or self.privates.get(public) in known:
                    known.add(secret)
            for key, sources in self.derivations.items():
                if sources & known:
                    known.add(key)
            known.update(key for key, both in self.mixtures.items() if known.issuperset(both))
            for box, (key, plaintext) in self.boxes.items():
                if key in known and box not in opened and box in corpus:
                    opened.add(box)
                    read.append(plaintext)
                    known.update(plaintext[at : at + 32] for at in range(0, len(plaintext), 32))  # of masks
            for split in self.splits:
                if split.secret not in known and sum(share in corpus for share in split.shares) >= split.threshold:
                    known.add(split.secret)
            if (len(known), len(read)) == before:
                return known, corpus

    def determined(self, coalition: Collection[str], reader: str | None = None) -> list[dict[str, int]]:
        """A basis of the linear functionals of honest vectors that the coalition can compute, for every label.

        With `reader`, nothing can be opened at all unless it is in the coalition (it alone has the decryption key).
        """
        if reader is not None and reader not in coalition:
            return []
        known, corpus = self.closure(coalition)

        def is_known(atom: Any) -> bool:
            if isinstance(atom, bytes):
                return atom in known
            kind, what = atom
            return what in coalition if kind == "x" else self.owners.get(atom) in coalition

        clear = [form for number, form in self.forms.items() if form and _bytes(number) in corpus]
        found = []
        for label in dict.fromkeys(row.label for row in self.rows):
            forms = [row.form for row in self.rows if row.label == label and row.image in corpus]
            if forms:
                found += _functionals([*forms, *clear], is_known)
        return found


def _bytes(number: int) -> bytes:
    """How a share stands in a box. Short numbers are everywhere, so they count as not recognised."""
    return (
        number.to_bytes((number.bit_length() + 7) // 8, "little") if number.bit_length() > 120 and number > 0 else b"\0none\0"
    )


def _functionals(forms: list[Form], is_known: Callable[[Any], bool]) -> list[dict[str, int]]:
    """Combinations of the forms without any unknown mask, reduced, by elimination modulo a prime."""
    unknown = sorted({atom for form in forms for atom in form if not is_known(atom)}, key=repr)
    masks = [atom for atom in unknown if not (isinstance(atom, tuple) and atom[0] == "x")]
    vectors = [atom for atom in unknown if atom not in masks]
    rows = [[form.get(atom, 0) % PRIME for atom in (*masks, *vectors)] for form in forms]
    at = 0
    for column in range(len(masks) + len(vectors)):
        pivot = next((index for index in range(at, len(rows)) if rows[index][column]), None)
        if pivot is None:
            continue
        rows[at], rows[pivot] = rows[pivot], rows[at]
        inverse = pow(rows[at][column], -1, PRIME)
        rows[at] = [value * inverse % PRIME for value in rows[at]]
        for index, row in enumerate(rows):
            if index != at and row[column]:
                factor = row[column]
                rows[index] = [(value - factor * own) % PRIME for value, own in zip(row, rows[at], strict=True)]
        at += 1
    free = [row[len(masks) :] for row in rows if not any(row[: len(masks)]) and any(row[len(masks) :])]
    return [{atom[1]: value for atom, value in zip(vectors, row, strict=True) if value} for row in free]
