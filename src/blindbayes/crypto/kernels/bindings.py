"""The border. A kernel sees nothing but arrays and lengths that were checked here: contiguous, of the right kind and size, and
writable where it writes; whoever hands in anything else gets a `LocalProtocolError`.

cffi, which `cryptography` brings along, makes the calls: they let go of the interpreter's lock, and cost a third of ctypes'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.checked import BYTE, DOUBLE, SHORT, SIGNED, WORD, Bytes, I64Array, U64Array, require
from blindbayes.crypto.kernels.counts import CountingKernels

SCHEDULE = 176  # bytes of an expanded AES-128 key
MAX_WORDS = 2048  # of a row that is accumulated, or looked up
MAX_TURNED = 8192  # words of a table that is read from a flip
MAX_COMPARED = 16  # classes that are compared by pairs
MAX_TAG = 128  # bits of tags that are matched
MAX_CLASSES = 32  # of a tree
MAX_ENTRIES = 64  # of a table of small numbers


class Kernels(CountingKernels):
    """The kernels for one instruction set."""

    def keep_memory(self, size: int) -> None:
        """Tell the C library to keep this many bytes of freed memory."""
        self._once["kernels_keep_memory"](size)

    def _lines(self, rows: Bytes) -> Any:
        """The memory of rows of bytes, each contiguous, that may lie apart, one behind the other."""
        require(rows.ndim == 2 and rows.dtype == BYTE and rows.strides[1] == 1)
        require(rows.strides[0] >= rows.shape[1] or len(rows) <= 1)
        return self._cast("uint8_t *", rows.ctypes.data)

    def _key(self, schedule: Bytes) -> Any:
        return self._array(schedule, (1, SCHEDULE), BYTE)

    def schedules(self, keys: bytes) -> Bytes:
        """AES-128 keys, one after the other, expanded: (n, 176)."""
        require(len(keys) % 16 == 0)
        out = np.empty((len(keys) // 16, SCHEDULE), dtype=np.uint8)
        self._call["schedules"](self._memory(keys), len(out), self._memory(out, writes=True))
        return out

    def expand(
        self,
        schedule: Bytes,
        seeds: U64Array,
        domain: int,
        words: int,
        *,
        firsts: U64Array | None = None,
        first: int = 0,
        step: int = 0,
        out: U64Array | None = None,
    ) -> U64Array:
        """(n, words) of hashes of (n, 2) seeds; block b of row r has the tweak firsts[r] + b, or first + r * step + b."""
        rows = len(seeds)
        require(words > 0)
        out = np.empty((rows, words), dtype=np.uint64) if out is None else out
        given = self._null if firsts is None else self._array(firsts, (rows,))
        to = self._array(out, (rows, words), writes=True)
        key, own = self._key(schedule), self._array(seeds, (rows, 2))
        self._call["expand"](key, own, given, first, step, domain, rows, words, to)
        return out

    # -- correlated transfers ------------------------------------------------------------------------------------------

    def fold(
        self,
        folded: Bytes,
        rest: Bytes,
        *,
        given: U64Array | None = None,
        schedules: Bytes | None,
        counter: int,
        missing: bool,
        received: tuple[Bytes, U64Array] | None = None,
    ) -> None:
        """Leaf streams, `given` (32, 16, words) or in counter mode from block `counter`, to `folded` (128, at least the width
        of `rest`) and `rest` (32, width). With `missing` the first leaf of each tree is zeros. What was `received`, (32, width)
        and an offset (2,), is added where the offset's bit is 1."""
        width, stride = rest.shape[1], folded.shape[1]
        require(stride >= width and width % 16 == 0)
        streams = self._null if given is None else self._array(given, (32, 16, width // 8))
        keys = heard = delta = self._null
        if given is None:
            require(schedules is not None)
            keys = self._array(schedules, (512, SCHEDULE), BYTE)  # type: ignore[arg-type]
        if received is not None:
            heard, delta = self._array(received[0], (32, width), BYTE), self._array(received[1], (2,))
        to = self._array(folded, (128, stride), BYTE, writes=True)
        also = self._array(rest, (32, width), BYTE, writes=True)
        self._call["fold"](streams, keys, counter, missing, width, heard, delta, to, stride, also)

    def streams(self, schedules: Bytes, at: int, width: int) -> Bytes:
        """(n, width): bytes from `at` on of AES in counter mode under n keys."""
        count = len(schedules)
        out = np.empty((count, width), dtype=np.uint8)
        self._call["streams"](self._array(schedules, (count, SCHEDULE), BYTE), count, at, width, self._memory(out))
        return out

    def transpose(self, rows: Bytes, out: npt.NDArray[Any]) -> None:
        """(n, width) bytes of bits, little-endian, to 8 * width rows of n bits in `out`. Rows may lie apart."""
        count, width = rows.shape
        stride = rows.strides[0]
        require(count % 64 == 0 and width % 8 == 0 and out.nbytes == count * width)
        self._call["transpose"](self._lines(rows), stride, count, width, self._memory(out, writes=True))

    def ghash(self, h: bytes, rows: Bytes) -> Bytes:
        """(n, 16): GHASH under h of each of (n, width) rows, which may lie apart, and of a length of zero behind it."""
        count, width = rows.shape
        require(len(h) == 16)
        out = np.empty((count, 16), dtype=np.uint8)
        self._call["ghash"](self._memory(h), self._lines(rows), rows.strides[0], count, width, self._memory(out))
        return out

    # -- pads ----------------------------------------------------------------------------------------------------------

    def sender_pads(
        self, schedule: Bytes, q: U64Array, delta: U64Array, entries: int, words: int, first: int, domain: int
    ) -> U64Array:
        """(entries, n, words) from q (n, bits, 2); see `primitives.ot`."""
        rows, bits, _ = q.shape
        require(0 < bits < 64 and 0 < entries <= 1 << bits and words > 0)
        out = np.empty((entries, rows, words), dtype=np.uint64)
        key, own, offset, to = self._key(schedule), self._array(q, (rows, bits, 2)), self._array(delta, (2,)), self._memory(out)
        self._call["sender_pads"](key, own, offset, rows, bits, entries, words, first, domain, to)
        return out

    def chooser_pads(self, schedule: Bytes, t: U64Array, choices: U64Array, words: int, first: int, domain: int) -> U64Array:
        """(n, words) from t (n, bits, 2) and choices (n,)."""
        rows, bits, _ = t.shape
        require(0 < bits < 64 and words > 0)
        out = np.empty((rows, words), dtype=np.uint64)
        key, own, chosen = self._key(schedule), self._array(t, (rows, bits, 2)), self._array(choices, (rows,))
        self._call["chooser_pads"](key, own, chosen, rows, bits, words, first, domain, self._memory(out))
        return out

    def offer_digits(
        self,
        schedule: Bytes,
        q: U64Array,
        delta: U64Array,
        own: Bytes,
        table: Bytes,
        width: int,
        first: int,
        domain: int,
        share: Bytes,
        sent: Bytes,
    ) -> None:
        """Shares (n,) of table[own, choice], and (entries - 1, n) what is sent, whose rows may lie apart: protocol/digits."""
        (rows, bits, _), (numbers, entries) = q.shape, table.shape
        require(0 < bits < 8 and 0 < entries <= min(MAX_ENTRIES, 1 << bits) and 0 < numbers <= 256 and 0 < width <= 8)
        require(sent.shape == (entries - 1, rows) and sent.flags.writeable)
        key, keys, offset = self._key(schedule), self._array(q, (rows, bits, 2)), self._array(delta, (2,))
        mine, known = self._array(own, (rows,), BYTE), self._array(table, (numbers, entries), BYTE)
        to, off, apart = self._array(share, (rows,), BYTE, writes=True), self._lines(sent), sent.strides[0]
        sizes = rows, bits, numbers, entries, width
        self._call["offer_digits"](key, keys, offset, mine, known, *sizes, first, domain, to, off, apart)

    # -- sums by class ---------------------------------------------------------------------------------------------------

    def encode(self, columns: list[I64Array], ops: I64Array, missing: int, out: U64Array) -> int:
        """Rows of words, which may lie apart, from columns of codes by `ops` (column, kind, word, shift, value), sorted by
        word; returns how many codes are missing that may not be. See rows.h."""
        (count, words), lost = out.shape, np.zeros(1, dtype=np.uint64)
        if not count:
            return 0
        apart, (steps, _) = out.strides[0] // 8, ops.shape
        require(out.dtype == WORD and out.flags.writeable and out.strides == (8 * apart, 8) and apart >= words)
        require(bool((ops >= 0)[:, :4].all()) and bool((ops[:, 2] < words).all() and (np.diff(ops[:, 2]) >= 0).all()))
        require(bool((ops[:, 0] < len(columns)).all() and (ops[:, 1] < 4).all() and (ops[:, 3] < 64).all()))
        for column in columns:
            self._array(column, (count,), SIGNED)
        places = np.array([column.ctypes.data for column in columns], dtype=np.uint64)
        to, given = self._cast("uint64_t *", out.ctypes.data), self._array(ops, (steps, 5), SIGNED)
        self._call["encode"](self._memory(places), given, steps, missing, count, words, apart, to, self._memory(lost))
        return int(lost[0])

    def grow(
        self, schedule: Bytes, q: U64Array, delta: U64Array, classes: int, sums: int, firsts: tuple[int, int], domains: Any
    ) -> tuple[U64Array, U64Array]:
        """Leaves (classes, n, 2) and level sums (sums, n, 2) of trees from q (n, levels, 2); `firsts` and `domains` of the
        tweaks of transfers and trees."""
        count, levels = self._tree(q, classes, sums)
        leaves, made = np.empty((classes, count, 2), dtype=np.uint64), np.empty((sums, count, 2), dtype=np.uint64)
        key, own, offset = self._key(schedule), self._array(q, (count, levels, 2)), self._array(delta, (2,))
        self._call["grow"](
            key, own, offset, count, levels, classes, *firsts, *domains, self._memory(leaves), self._memory(made)
        )
        return leaves, made

    def regrow(
        self, schedule: Bytes, t: U64Array, own: I64Array, classes: int, sums: U64Array, firsts: tuple[int, int], domains: Any
    ) -> U64Array:
        """The leaves again, from t (n, levels, 2) and the level sums: all but the one on the path `own` of each row."""
        count, levels = self._tree(t, classes, len(sums))
        leaves = np.empty((classes, count, 2), dtype=np.uint64)
        key, mine, chosen = self._key(schedule), self._array(t, (count, levels, 2)), self._array(own, (count,), SIGNED)
        made = self._array(sums, (len(sums), count, 2))
        self._call["regrow"](key, mine, chosen, made, count, levels, classes, *firsts, *domains, self._memory(leaves))
        return leaves

    def _tree(self, transfers: U64Array, classes: int, sums: int) -> tuple[int, int]:
        """Rows and levels of trees, if the level sums are as many as they have."""
        count, levels, _ = transfers.shape
        widths = [(classes - 1 >> (levels - level)) + 1 for level in range(2, levels + 1)]
        require(2 <= classes <= MAX_CLASSES and (classes - 1).bit_length() == levels)
        require(sums == sum(1 if width < 4 else 2 for width in widths))
        return count, levels

    def mask_rows(self, schedule: Bytes, leaves: U64Array, first: int, domain: int, rows: U64Array, share: U64Array) -> None:
        """Take the expanded leaves (classes, n, 2) off `rows` (n, words), and add each class's to its line of `share`."""
        classes, (count, words) = len(leaves), rows.shape
        require(0 < words <= MAX_WORDS)
        key, seeds = self._key(schedule), self._array(leaves, (classes, count, 2))
        to, off = self._array(rows, (count, words), writes=True), self._array(share, (classes, words), writes=True)
        self._call["mask_rows"](key, seeds, first, domain, count, words, classes, to, off)

    def unmask_rows(
        self, schedule: Bytes, leaves: U64Array, own: I64Array, first: int, domain: int, rows: U64Array, share: U64Array
    ) -> None:
        """Take the expanded leaves off `share`, class by class; add each row, with all its leaves, to the line of its class."""
        classes, (count, words) = len(leaves), rows.shape
        require(0 < words <= MAX_WORDS)
        key, seeds = self._key(schedule), self._array(leaves, (classes, count, 2))
        mine, given = self._array(own, (count,), SIGNED), self._array(rows, (count, words))
        to = self._array(share, (classes, words), writes=True)
        self._call["unmask_rows"](key, seeds, mine, first, domain, count, words, classes, given, to)

    # -- half gates --------------------------------------------------------------------------------------------------------

    def gates(
        self,
        schedule: Bytes,
        delta: U64Array | None,
        left: U64Array,
        right: U64Array,
        carry: U64Array | None,
        tables: U64Array,
        *,
        first: int,
        domain: int,
        every: bool,
    ) -> U64Array:
        """The carries of a chain of AND gates on (bits, lanes, 2) labels: (bits, lanes, 2), or unless `every` those of the last
        alone, (1, lanes, 2). Without `delta` they are evaluated. `tables`: (bits, lanes, 4)."""
        bits, lanes, _ = left.shape
        require(bits > 0)
        out = np.empty((bits if every else 1, lanes, 2), dtype=np.uint64)
        offset = self._null if delta is None else self._array(delta, (2,))
        own, other = self._array(left, (bits, lanes, 2)), self._array(right, (bits, lanes, 2))
        before = self._null if carry is None else self._array(carry, (lanes, 2))
        made = self._array(tables, (bits, lanes, 4), writes=delta is not None)
        apart = 16 * lanes if every else 0
        key, to = self._key(schedule), self._memory(out)
        self._call["gates"](key, offset, own, other, before, bits, lanes, first, domain, made, to, apart)
        return out

    def _own(self, delta: U64Array | None, values: U64Array | None, bits: int, lanes: int) -> tuple[Any, Any, int]:
        """The offset and the numbers (lanes, limbs) of who garbles, and their limbs; nothing of who evaluates."""
        if delta is None or values is None:
            require(delta is values)
            return self._null, self._null, 0
        require(bits <= 64 * values.shape[-1])
        return self._array(delta, (2,)), self._array(values, (lanes, values.shape[-1])), values.shape[-1]

    def compare(
        self,
        schedule: Bytes,
        delta: U64Array | None,
        values: U64Array | None,
        labels: U64Array,
        classes: int,
        tables: U64Array,
        *,
        first: int,
        domain: int,
    ) -> U64Array:
        """The position of the first maximum, (ceil(log2 classes), count, 2) labels, from `values` (pairs * count, limbs) of who
        garbles and `labels` (bits, pairs * count, 2) of the other's. Without both `delta` and `values` it is evaluated.
        `tables`: as many rows of 4 as there are gates and lanes."""
        bits, lanes, _ = labels.shape
        pairs = classes * (classes - 1) // 2
        require(2 <= classes <= MAX_COMPARED and lanes % pairs == 0 and bits > 0)
        count = lanes // pairs
        offset, own, limbs = self._own(delta, values, bits, lanes)
        rows = (bits - 1) * lanes + (classes - 1) * (classes - 2) * count
        made = self._array(tables, (rows, 4), writes=delta is not None)
        behind, out = np.empty((lanes, 2), np.uint64), np.empty(((classes - 1).bit_length(), count, 2), np.uint64)
        key, theirs = self._key(schedule), self._array(labels, (bits, lanes, 2))
        scratch, to = self._memory(behind), self._memory(out)
        self._call["compare"](key, offset, own, theirs, count, classes, bits, limbs, first, domain, made, scratch, to)
        return out

    def match(
        self,
        schedule: Bytes,
        delta: U64Array | None,
        values: U64Array | None,
        labels: U64Array,
        tag_bits: int,
        tables: U64Array,
        *,
        first: int,
        domain: int,
    ) -> tuple[U64Array, U64Array, Bytes]:
        """Labels (lanes, 2) of whether tags are equal; keys (lanes, planes, 2) and colours (lanes, planes) of the planes behind
        them where they are. `values` (lanes, limbs) and `labels` (tag_bits + planes, lanes, 2) as in `compare`."""
        bits, lanes, _ = labels.shape
        planes = bits - tag_bits
        require(0 < tag_bits <= MAX_TAG and planes >= 0)
        offset, own, limbs = self._own(delta, values, bits, lanes)
        made = self._array(tables, ((tag_bits - 1 + planes) * lanes, 4), writes=delta is not None)
        equal, keys = np.empty((lanes, 2), dtype=np.uint64), np.empty((lanes, planes, 2), dtype=np.uint64)
        colours = np.empty((lanes, planes), dtype=np.uint8)
        to = self._memory(equal), self._memory(keys), self._memory(colours)
        key, theirs = self._key(schedule), self._array(labels, (bits, lanes, 2))
        self._call["match"](key, offset, own, theirs, lanes, tag_bits, planes, limbs, first, domain, made, *to)
        return equal, keys, colours

    # -- look-ups ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def looks_up(words: int, turned: int = 0) -> bool:
        """Whether entries of so many words, and tables of so many entries read from a flip, fit the kernels' scratch."""
        return 0 < words <= MAX_WORDS and turned * words <= MAX_TURNED

    def offer(
        self,
        schedule: Bytes,
        q: U64Array,
        delta: U64Array,
        table: U64Array,
        flips: U64Array | None,
        *,
        first: int,
        domain: int,
        total: U64Array,
        sent: U64Array,
    ) -> None:
        """See `protocol.lookups`. q (n, bits, 2); table (count or 1, selectors, entries, numbers, limbs); flips (count,
        selectors). Adds to `total` (count, numbers, limbs), fills `sent` (entries - 1, n, numbers * limbs)."""
        (instances, selectors, entries, numbers, limbs), count, (rows, bits, _) = table.shape, len(total), q.shape
        words = numbers * limbs
        require(rows == count * selectors and instances in (1, count) and 0 < entries <= 1 << bits and 0 < bits < 64)
        require(limbs in (1, 2) and self.looks_up(words, 0 if flips is None else entries))
        require(flips is None or entries == 1 << bits)
        key, own, offset = self._key(schedule), self._array(q, (rows, bits, 2)), self._array(delta, (2,))
        turned = self._null if flips is None else self._array(flips, (count, selectors))
        lines, apart = self._array(table, table.shape), selectors * entries * words if instances > 1 else 0
        kept, to = (
            self._array(total, (count, numbers, limbs), writes=True),
            self._array(sent, (entries - 1, rows, words), writes=True),
        )
        size = count, selectors, bits, entries, words, limbs
        self._call["offer"](key, own, offset, lines, apart, turned, *size, first, domain, kept, to)

    def take(
        self, schedule: Bytes, t: U64Array, choices: U64Array, sent: U64Array, *, first: int, domain: int, total: U64Array
    ) -> None:
        """The other side: t (n, bits, 2), choices (n,), what was `sent`; adds to `total` (count, numbers, limbs)."""
        (rows, bits, _), (count, numbers, limbs), entries = t.shape, total.shape, len(sent) + 1
        words = numbers * limbs
        require(count > 0 and rows % count == 0 and 0 < bits < 64 and limbs in (1, 2) and self.looks_up(words))
        key, own, chosen = self._key(schedule), self._array(t, (rows, bits, 2)), self._array(choices, (rows,))
        came, to = self._array(sent, (entries - 1, rows, words)), self._array(total, total.shape, writes=True)
        self._call["take"](key, own, chosen, came, count, rows // count, bits, entries, words, limbs, first, domain, to)

    # -- many keys, each for a little --------------------------------------------------------------------------------------

    def masks(self, total: U64Array, plus: bytes, minus: bytes) -> None:
        """Add the streams of the AES-256 keys in `plus` to `total`, and take those in `minus` off."""
        require(len(plus) % 32 == len(minus) % 32 == 0 and len(total) < 1 << 32)
        to, keys = self._array(total, (len(total),), writes=True), plus + minus
        self._call["masks"](self._memory(keys), len(keys) // 32, len(plus) // 32, len(total), to)

    def derive(self, keys: bytes, text: bytes, blocks: int) -> Bytes:
        """(n, 16 * blocks): of each AES-256 key the CMACs of 1, 2, ..., in four bytes, before the text."""
        require(len(keys) % 32 == 0 and 0 < blocks <= 8 and 0 < len(text) < 1 << 16)
        out = np.empty((len(keys) // 32, 16 * blocks), dtype=np.uint8)
        self._call["derive"](self._memory(keys), len(out), self._memory(text), len(text), blocks, self._memory(out))
        return out

    def gcm(self, keys: bytes, texts: Bytes, width: int, nonce: bytes, associated: bytes, *, opens: bool) -> Bytes:
        """AES-256-GCM of the first `width` bytes of each of n texts, each under its own key: (n, width + 16), the tags last.
        `opens`: of ciphertexts, with the tags that they should have."""
        count = len(texts)
        require(len(keys) == 32 * count and len(nonce) == 12 and width <= texts.shape[1] < 1 << 32)
        out = np.empty((count, width + 16), dtype=np.uint8)
        own, at, data = self._memory(keys), self._memory(nonce), self._memory(associated)
        given, apart, to = self._array(texts, texts.shape, BYTE), texts.shape[1], self._memory(out)
        self._call["gcm"](own, count, at, data, len(associated), given, apart, width, opens, to, width + 16)
        return out

    def shares(self, powers: npt.NDArray[np.float64], secrets: bytes, drawn: bytes, out: npt.NDArray[np.uint16]) -> int:
        """Shares of secrets of one size, (n, secrets, limbs), at n points from their powers (n, t), with coefficients out of
        those drawn; how many of these there are too few, and then no shares: see `primitives.shamir`."""
        (count, terms), (_, parts, limbs) = powers.shape, out.shape
        size = len(secrets) // max(parts, 1)
        require(parts > 0 and size > 0 and len(secrets) == parts * size and limbs == (8 * size + 14) // 15 and terms > 0)
        work = np.empty(terms * (parts * limbs + 3))
        given, own = self._array(powers, (count, terms), DOUBLE), self._memory(secrets)
        to = self._array(out, (count, parts, limbs), SHORT, writes=True)
        sizes = parts, size, len(drawn) // 2, count, terms
        return int(self._call["shares"](given, own, self._memory(drawn), *sizes, self._memory(work), to))

    def agreements(self, private: bytes, publics: bytes) -> bytes | None:
        """X25519 of a private key with public ones, one after the other; None where this processor gains nothing."""
        require(len(private) == 32 and len(publics) % 32 == 0)
        out = bytearray(len(publics))
        made = self._once["agreements"](
            self._memory(private), self._memory(publics), len(publics) // 32, self._memory(out, writes=True)
        )
        return bytes(out) if made else None

    # -- joins -------------------------------------------------------------------------------------------------------------

    def blake2b_rows(self, rows: U64Array, numbers: I64Array, parameters: bytes, words: int) -> U64Array:
        """BLAKE2b of (n, 8) rows, each with a number behind it: (n, words)."""
        count = len(rows)
        require(0 < words <= 8 and len(parameters) == 64)
        out = np.empty((count, words), dtype=np.uint64)
        own, behind = self._array(rows, (count, 8)), self._array(numbers, (count,), SIGNED)
        self._call["blake2b_rows"](own, behind, count, self._memory(parameters), words, self._memory(out))
        return out

    def store_order(self, sparse: I64Array, size: int) -> tuple[I64Array, I64Array]:
        """The keys that peeling frees, in order, and the cell of each."""
        count = len(sparse)
        require(not count or bool(sparse.min() >= 0 and sparse.max() < size))
        order, pivots = np.empty((2, count), dtype=np.int64)
        work = np.zeros(4 * size + 7 * count, dtype=np.int64)
        freed = self._once["store_peel"](
            self._array(sparse, (count, 3), SIGNED), count, size, self._memory(order), self._memory(pivots), self._memory(work)
        )
        return order[:freed], pivots[:freed]

    def store_assign(self, sparse: I64Array, order: I64Array, pivots: I64Array, wanted: U64Array, table: U64Array) -> None:
        """Give every cell of `pivots` what its key is still short of, the last first."""
        (size, width), count, freed = table.shape, len(sparse), len(order)
        for places, bound in ((sparse, size), (pivots, size), (order, count)):
            require(not places.size or bool(places.min() >= 0 and places.max() < bound))
        at, cells = self._array(sparse, (count, 3), SIGNED), self._array(pivots, (freed,), SIGNED)
        values, to = self._array(wanted, (count, width)), self._array(table, (size, width), writes=True)
        self._once["store_assign"](at, self._array(order, (freed,), SIGNED), cells, freed, width, values, to)

    def store_decode(self, table: U64Array, sparse: I64Array | None, dense: U64Array) -> U64Array:
        """What a store gives, (n, width); without `sparse` the dense part alone."""
        (size, width), count = table.shape, len(dense)
        require(size >= 64)
        if sparse is not None:
            require(not count or bool(sparse.min() >= 0 and sparse.max() < size))
        at = self._null if sparse is None else self._array(sparse, (count, 3), SIGNED)
        out, sums = np.empty((count, width), dtype=np.uint64), np.empty((2048, width), dtype=np.uint64)
        own, masks = self._array(table, (size, width)), self._array(dense, (count,))
        self._once["store_decode"](own, at, masks, count, width, self._memory(out), self._memory(sums))
        return out
