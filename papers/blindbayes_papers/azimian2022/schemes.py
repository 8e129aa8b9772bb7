"""The schemes that Azimian et al. (2022) compare, as printed or as the paper describes them; and the attack on theirs.

Nothing here is a product path. All of them use textbook Paillier (one full exponentiation for each encryption), as the
paper's python-paillier does, and toy keys where asked to.

- `PrintedChain`: Algorithms 1 to 3. Two passes for each count: the packed data plus random numbers, then the random numbers
  alone; one count for the labels and one for each label; a starter may not start again within `starter_gap` passes.
- `Unpacked`: "Naive Bayes with encrypted counting": one ciphertext for each count. The paper does not say how many counts a
  contributor encrypts: `cells` chooses all values x labels, the record's one-hot string with its label, or only its ones.
- `MultipleSources`: Li et al. 2018 as the paper implements it: unpacked counts, and for each a second encryption, of zero in
  place of noise, by a third party that stores everybody's ciphertexts before it adds them up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.signatures import SigningKey
from blindbayes.errors import ConfigError
from blindbayes_papers.primitives.paillier import Ciphertext, PrivateKey, PublicKey

Cells = Literal["all", "record", "present"]
Encrypt: TypeAlias = Callable[[PublicKey, int, Coins], Ciphertext]


@dataclass(frozen=True, slots=True)
class Records:
    """Categorical records as positions: `values[i]` are those of record i among all values of all attributes."""

    values: tuple[tuple[int, ...], ...] = field(repr=False)
    labels: tuple[int, ...] = field(repr=False)
    value_count: int
    label_count: int
    owners: tuple[tuple[int, ...], ...] = field(repr=False)  # the records of each contributor

    @classmethod
    def one_each(cls, values: Any, labels: Any, value_count: int, label_count: int) -> Records:
        """One record per contributor, as the paper evaluates."""
        frozen = tuple(tuple(int(at) for at in row) for row in values)
        return cls(frozen, tuple(map(int, labels)), value_count, label_count, tuple((index,) for index in range(len(frozen))))

    @property
    def size(self) -> int:
        """A, the number of records."""
        return len(self.labels)

    def label_counts(self, owner: int) -> list[int]:
        """One contributor's records of each label."""
        counts = [0] * self.label_count
        for record in self.owners[owner]:
            counts[self.labels[record]] += 1
        return counts

    def value_counts(self, owner: int, label: int) -> list[int]:
        """One contributor's records of each value, among those with the label."""
        counts = [0] * self.value_count
        for record in self.owners[owner]:
            if self.labels[record] == label:
                for at in self.values[record]:
                    counts[at] += 1
        return counts

    def vector(self, owner: int) -> list[int]:
        """All counts of one contributor: labels, then values label by label."""
        counts = self.label_counts(owner)
        for label in range(self.label_count):
            counts += self.value_counts(owner, label)
        return counts

    def totals(self) -> list[int]:
        """Return what every scheme must give."""
        totals = [0] * (self.label_count * (1 + self.value_count))
        for owner in range(len(self.owners)):
            for at, count in enumerate(self.vector(owner)):
                totals[at] += count
        return totals


def first_contributors(records: Records, count: int) -> Records:
    """The same domain with fewer contributors."""
    return Records(records.values, records.labels, records.value_count, records.label_count, records.owners[:count])


def textbook_encrypt(public: PublicKey, m: int, coins: Coins) -> Ciphertext:
    """(1 + m N) r^N mod N^2 with r uniform, as python-paillier has it."""
    return public.rerandomise(1 + m % public.n * public.n, coins)


# -- the printed scheme ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Link:
    """A message from one contributor to the next, readable by its carrier."""

    sender: int
    ciphertexts: tuple[Ciphertext, ...] = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Counting:
    """Algorithm 2: the counts, and the links of its two passes."""

    counts: list[int] = field(repr=False)
    data_links: list[Link] = field(repr=False)
    number_links: list[Link] = field(repr=False)


class PrintedChain:
    """Azimian et al.'s scheme as printed. `A` = number of records; a field has 1 + log2 A bits, as has each carry."""

    def __init__(
        self,
        records: Records,
        private: PrivateKey,
        coins: Coins,
        *,
        starter_gap: int = 1,
        encrypt: Encrypt = textbook_encrypt,
    ) -> None:
        if not 0 <= starter_gap < len(records.owners):
            raise ConfigError("starter_gap: from 0 to the number of contributors less one")
        self.records, self.private, self.coins = records, private, coins
        self.width = records.size.bit_length()  # 1 + floor(log2 A)
        # Left of the fields: space for the carries of A records and of A random numbers (section 5.2).
        self.slots = (private.public.bits - 1 - 2 * self.width) // self.width
        if self.slots < 1:
            raise ConfigError("the key is too short for one count")
        self.starter_gap = starter_gap
        self._encrypt = encrypt
        self._starters: list[int] = []
        self._signers = [SigningKey.generate(coins) for _ in records.owners]

    def chunks(self, length: int) -> int:
        """Ciphertexts for `length` counts."""
        return -(-length // self.slots)

    @property
    def encryptions(self) -> int:
        """Encryptions of one contributor for a whole model."""
        return 2 * (self.chunks(self.records.label_count) + self.records.label_count * self.chunks(self.records.value_count))

    def pack(self, counts: list[int]) -> list[int]:
        """Section 5.4: bit strings of `slots` fields."""
        return [
            sum(count << (at * self.width) for at, count in enumerate(counts[start : start + self.slots]))
            for start in range(0, len(counts), self.slots)
        ]

    def unpack(self, chunks: list[int], length: int) -> list[int]:
        """The fields."""
        mask = (1 << self.width) - 1
        return [(chunk >> (at * self.width)) & mask for chunk in chunks for at in range(self.slots)][:length]

    def _payload(self, ciphertexts: tuple[Ciphertext, ...]) -> bytes:
        return self.private.public.pack_ciphertexts(ciphertexts)

    def order(self) -> list[int]:
        """A random order whose first has not started one of the last `starter_gap` passes."""
        order = list(range(len(self.records.owners)))
        recent = self._starters[-self.starter_gap :] if self.starter_gap else []
        while True:
            self.coins.shuffle(order)
            if order[0] not in recent:
                self._starters.append(order[0])
                return order

    def contribution(self, added: Callable[[int], list[int]], *, record: bool = False) -> tuple[list[int], list[Link]]:
        """Algorithm 1: one pass. `added(i)` is what contributor i adds. The links come back only if `record`."""
        public = self.private.public
        links: list[Link] = []
        before: Link | None = None
        for owner in self.order():
            running = tuple(self._encrypt(public, value, self.coins) for value in added(owner))
            if before is not None:
                signer = self._signers[before.sender].public
                signatures.verify(
                    signer, self._payload(before.ciphertexts), before.signature, party=f"contributor {before.sender}"
                )
                running = tuple(public.add(a, b) for a, b in zip(before.ciphertexts, running, strict=True))
            before = Link(owner, running, self._signers[owner].sign(self._payload(running)))
            if record:
                links.append(before)
        return self.private.decrypt_many(running), links

    def counting(self, counts: Callable[[int], list[int]], length: int, *, record: bool = False) -> Counting:
        """Algorithm 2: a pass with data and random numbers, one with the random numbers alone."""
        bits = self.slots * self.width
        numbers = [[self.coins.bits(bits) for _ in range(self.chunks(length))] for _ in self.records.owners]

        def both(owner: int) -> list[int]:
            return [value + number for value, number in zip(self.pack(counts(owner)), numbers[owner], strict=True)]

        with_data, data_links = self.contribution(both, record=record)
        alone, number_links = self.contribution(numbers.__getitem__, record=record)
        difference = [a - b for a, b in zip(with_data, alone, strict=True)]
        return Counting(self.unpack(difference, length), data_links, number_links)

    def model(self) -> list[int]:
        """Algorithm 3: the labels, then the values label by label."""
        records = self.records
        counts = self.counting(records.label_counts, records.label_count).counts
        for label in range(records.label_count):
            counts += self.counting(lambda owner, label=label: records.value_counts(owner, label), records.value_count).counts  # type: ignore[misc]
        return counts


def subtract_links(private: PrivateKey, counting: Counting) -> dict[int, list[int]]:
    """The attack: a builder that sees the links of both passes reads what every single contributor counted.

    In each pass, the difference of the plaintexts of two neighbouring links is one contributor's number; the difference of
    the two passes is its packed data. No signature and no rule about starters stands in the way.
    """

    def added(links: list[Link]) -> dict[int, list[int]]:
        readings: dict[int, list[int]] = {}
        before = [0] * len(links[0].ciphertexts)
        for link in links:
            now = private.decrypt_many(link.ciphertexts)
            readings[link.sender] = [a - b for a, b in zip(now, before, strict=True)]
            before = now
        return readings

    with_data, alone = added(counting.data_links), added(counting.number_links)
    return {sender: [a - b for a, b in zip(with_data[sender], alone[sender], strict=True)] for sender in with_data}


# -- what the paper compares with ------------------------------------------------------------------------------------


class Unpacked:
    """One ciphertext for each count. Not private if only the ones are sent: the paper's lower bound on encryptions."""

    def __init__(self, records: Records, private: PrivateKey, coins: Coins, cells: Cells = "all") -> None:
        self.records, self.private, self.coins, self.cells = records, private, coins, cells

    def positions(self, owner: int) -> list[int]:
        """Return which of a contributor's counts are encrypted."""
        records, labels, values = self.records, self.records.label_count, self.records.value_count
        if self.cells == "all":
            return list(range(labels * (1 + values)))
        if self.cells == "record":  # the label counts, and the value counts of the labels that occur in its records
            own = sorted({records.labels[record] for record in records.owners[owner]})
            return [*range(labels), *(labels + label * values + at for label in own for at in range(values))]
        return [at for at, count in enumerate(records.vector(owner)) if count]

    @property
    def encryptions(self) -> int:
        """Number of encryptions of the first contributor."""
        return len(self.positions(0))

    def add_up(self, encrypt: Encrypt = textbook_encrypt) -> dict[int, Ciphertext]:
        """The encrypted counters that every contributor adds to, by position."""
        public = self.private.public
        counters: dict[int, Ciphertext] = {}
        for owner in range(len(self.records.owners)):
            vector = self.records.vector(owner)
            for at in self.positions(owner):
                c = encrypt(public, vector[at], self.coins)
                counters[at] = public.add(counters[at], c) if at in counters else c
        return counters

    def model(self) -> list[int]:
        """The counts."""
        counters = self.add_up()
        length = self.records.label_count * (1 + self.records.value_count)
        return [self.private.decrypt(counters[at]) if at in counters else 0 for at in range(length)]


class MultipleSources:
    """Li et al.'s learning over multiple sources, as Azimian et al. describe and implement it."""

    def __init__(self, records: Records, private: PrivateKey, coins: Coins) -> None:
        self.records, self.private, self.coins = records, private, coins

    @property
    def encryptions(self) -> int:
        """Number of encryptions of one contributor and of the third party on its behalf."""
        return 2 * self.records.label_count * (1 + self.records.value_count)

    def add_up(self, encrypt: Encrypt = textbook_encrypt) -> list[Ciphertext]:
        """The encrypted counts. Every source's ciphertexts are stored until all are there."""
        public = self.private.public
        stored = []
        for owner in range(len(self.records.owners)):
            own = [encrypt(public, count, self.coins) for count in self.records.vector(owner)]
            stored.append([public.add(c, encrypt(public, 0, self.coins)) for c in own])
        totals = list(stored[0])
        for source in stored[1:]:
            totals = [public.add(a, b) for a, b in zip(totals, source, strict=True)]
        return totals

    def model(self) -> list[int]:
        """The counts."""
        return self.private.decrypt_many(self.add_up())
