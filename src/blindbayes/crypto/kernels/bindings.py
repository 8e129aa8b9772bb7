"""The kernels of one instruction set as methods: allocate results, check ranges, and call by `signatures`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.counts import CountingKernels
from blindbayes.crypto.kernels.signatures import Bytes, I64Array, Tweaks, U64Array, require

SCHEDULE = 176  # bytes of an expanded AES-128 key
MAX_WORDS = 2048  # of a row that is accumulated or looked up
MAX_FLIPPED = 8192  # words of a table that is read from a flip
MAX_COMPARED = 16  # classes compared by pairs
MAX_TAG = 128  # bits of matched tags
MAX_CLASSES = 32  # of a tree
MAX_ENTRIES = 64  # of a table of small numbers


def _words(*shape: int) -> U64Array:
    return np.empty(shape, dtype=np.uint64)


def _bytes(*shape: int) -> Bytes:
    return np.empty(shape, dtype=np.uint8)


class Kernels(CountingKernels):
    """The kernels for one instruction set."""

    def keep_memory(self, size: int) -> None:
        """Make the C library keep up to `size` bytes of freed memory for reuse."""
        self._shared["kernels_keep_memory"](size)

    def schedules(self, keys: bytes) -> Bytes:
        """Expand concatenated AES-128 keys to (n, 176)."""
        require(len(keys) % 16 == 0)
        out = _bytes(len(keys) // 16, SCHEDULE)
        self._call["schedules"](keys, len(out), out)
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
    ) -> U64Array:
        """Hash (n, 2) seeds to (n, words); block b of row r has the tweak firsts[r] + b, or first + r * step + b."""
        rows = len(seeds)
        require(words > 0)
        out = _words(rows, words)
        self._call["expand"](schedule, seeds, firsts, first, step, domain, rows, words, out)
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
        """Fold leaf streams into `folded` (128, at least the width of `rest`) and `rest` (32, width).

        The streams are `given` (32, 16, words), or AES in counter mode from block `counter` under 512 schedules. With `missing`
        the first leaf of each tree is zeros. `received`, (32, width) and an offset (2,), is added where the offset's bit is 1.
        """
        width, stride = rest.shape[1], folded.shape[1]
        require(stride >= width and width % 16 == 0 and (given is not None or schedules is not None))
        keys = schedules if given is None else None
        corrections, delta = received or (None, None)
        self._call["fold"](given, keys, counter, missing, width, corrections, delta, folded, stride, rest, width // 8)

    def streams(self, schedules: Bytes, start: int, width: int) -> Bytes:
        """Return (n, width) bytes, from byte `start`, of AES in counter mode under n keys."""
        count = len(schedules)
        out = _bytes(count, width)
        self._call["streams"](schedules, count, start, width, out)
        return out

    def transpose(self, rows: Bytes, out: npt.NDArray[Any]) -> None:
        """Transpose (n, width) bytes of little-endian bits to 8 * width rows of n bits; input rows may have gaps."""
        count, width = rows.shape
        require(count % 64 == 0 and width % 8 == 0 and out.nbytes == count * width)
        self._call["transpose"](rows, rows.strides[0], count, width, out)

    def ghash(self, h: bytes, rows: Bytes) -> Bytes:
        """Return GHASH under h, (n, 16), of each of (n, width) rows followed by a length of zero."""
        count, width = rows.shape
        require(len(h) == 16)
        out = _bytes(count, 16)
        self._call["ghash"](h, rows, rows.strides[0], count, width, out)
        return out

    # -- pads ----------------------------------------------------------------------------------------------------------

    def sender_pads(self, tweaks: Tweaks, q: U64Array, delta: U64Array, entries: int, words: int) -> U64Array:
        """Return the pads (entries, n, words) of a sender from q (n, bits, 2); see `crypto.ot`."""
        rows, bits, _ = q.shape
        require(0 < bits < 64 and 0 < entries <= 1 << bits and words > 0)
        out = _words(entries, rows, words)
        self._call["sender_pads"](tweaks.schedule, q, delta, rows, bits, entries, words, *tweaks[1:], out)
        return out

    def chooser_pads(self, tweaks: Tweaks, t: U64Array, choices: U64Array, words: int) -> U64Array:
        """Return the pads (n, words) of a chooser from t (n, bits, 2) and choices (n,)."""
        rows, bits, _ = t.shape
        require(0 < bits < 64 and words > 0)
        out = _words(rows, words)
        self._call["chooser_pads"](tweaks.schedule, t, choices, rows, bits, words, *tweaks[1:], out)
        return out

    def offer_digits(
        self, tweaks: Tweaks, q: U64Array, delta: U64Array, own: Bytes, table: Bytes, width: int, share: Bytes, sent: Bytes
    ) -> None:
        """Write shares (n,) of table[own, choice], and the message (entries - 1, n); see `protocols.two_party.digits`."""
        (rows, bits, _), (numbers, entries) = q.shape, table.shape
        require(0 < bits < 8 and 0 < entries <= min(MAX_ENTRIES, 1 << bits) and 0 < numbers <= 256 and 0 < width <= 8)
        require(sent.shape == (entries - 1, rows) and sent.flags.writeable)
        sizes = rows, bits, numbers, entries, width
        self._call["offer_digits"](tweaks.schedule, q, delta, own, table, *sizes, *tweaks[1:], share, sent, sent.strides[0])

    # -- sums by class ---------------------------------------------------------------------------------------------------

    def encode(self, columns: list[I64Array], ops: I64Array, missing: int, out: U64Array) -> int:
        """Pack columns of codes into rows of words by `ops`, and return how many codes are missing where none may be.

        `ops` are (column, kind, word, shift, value), sorted by word: see rows.h. Rows of `out` may have gaps.
        """
        (count, words), lost = out.shape, np.zeros(1, dtype=np.uint64)
        if not count:
            return 0
        stride, (steps, _) = out.strides[0] // 8, ops.shape
        require(out.dtype == np.uint64 and out.flags.writeable and out.strides == (8 * stride, 8) and stride >= words)
        require(bool((ops >= 0)[:, :4].all()) and bool((ops[:, 2] < words).all() and (np.diff(ops[:, 2]) >= 0).all()))
        require(bool((ops[:, 0] < len(columns)).all() and (ops[:, 1] < 4).all() and (ops[:, 3] < 64).all()))
        require(all(each.shape == (count,) and each.dtype == np.int64 and each.flags.c_contiguous for each in columns))
        places = np.array([column.ctypes.data for column in columns], dtype=np.uint64)
        self._call["encode"](places, ops, steps, missing, count, words, stride, out, lost)
        return int(lost[0])

    def grow(
        self, schedule: Bytes, q: U64Array, delta: U64Array, classes: int, sums: int, firsts: tuple[int, int], domains: Any
    ) -> tuple[U64Array, U64Array]:
        """Return the leaves (classes, n, 2) and level sums (sums, n, 2) of trees from q (n, levels, 2).

        `firsts` and `domains` are those of the tweaks of transfers and of trees.
        """
        count, levels = self._tree(q, classes, sums)
        leaves, made = _words(classes, count, 2), _words(sums, count, 2)
        self._call["grow"](schedule, q, delta, count, levels, classes, *firsts, *domains, leaves, made, sums)
        return leaves, made

    def regrow(
        self, schedule: Bytes, t: U64Array, own: I64Array, classes: int, sums: U64Array, firsts: tuple[int, int], domains: Any
    ) -> U64Array:
        """Return all leaves but the one on the path `own` of each row, from t (n, levels, 2) and the level sums."""
        count, levels = self._tree(t, classes, len(sums))
        leaves = _words(classes, count, 2)
        self._call["regrow"](schedule, t, own, sums, count, levels, classes, *firsts, *domains, leaves, len(sums))
        return leaves

    def _tree(self, transfers: U64Array, classes: int, sums: int) -> tuple[int, int]:
        """Return the rows and levels of trees, after checking the number of level sums."""
        count, levels, _ = transfers.shape
        widths = [(classes - 1 >> (levels - level)) + 1 for level in range(2, levels + 1)]
        require(2 <= classes <= MAX_CLASSES and (classes - 1).bit_length() == levels)
        require(sums == sum(1 if width < 4 else 2 for width in widths))
        return count, levels

    def mask_rows(self, tweaks: Tweaks, leaves: U64Array, rows: U64Array, share: U64Array) -> None:
        """Subtract the expanded leaves (classes, n, 2) from `rows` (n, words); add each class's to its line of `share`."""
        classes, (count, words) = len(leaves), rows.shape
        require(0 < words <= MAX_WORDS)
        self._call["mask_rows"](tweaks.schedule, leaves, *tweaks[1:], count, words, classes, rows, share)

    def unmask_rows(self, tweaks: Tweaks, leaves: U64Array, own: I64Array, rows: U64Array, share: U64Array) -> None:
        """Subtract the expanded leaves from `share` by class; add each row, with all its leaves, to the line of its class."""
        classes, (count, words) = len(leaves), rows.shape
        require(0 < words <= MAX_WORDS)
        self._call["unmask_rows"](tweaks.schedule, leaves, own, *tweaks[1:], count, words, classes, rows, share)

    # -- half gates --------------------------------------------------------------------------------------------------------

    def gates(
        self,
        tweaks: Tweaks,
        delta: U64Array | None,
        left: U64Array,
        right: U64Array,
        carry: U64Array | None,
        tables: U64Array,
        *,
        every: bool,
    ) -> U64Array:
        """Return the carries of a chain of AND gates on (bits, lanes, 2) labels: all of them, or the last if not `every`.

        With `delta` the gates are garbled into `tables` (bits, lanes, 4), without they are evaluated.
        """
        bits, lanes, _ = left.shape
        require(bits > 0)
        steps, stride = (bits, 16 * lanes) if every else (1, 0)
        out = _words(steps, lanes, 2)
        self._call["gates"](tweaks.schedule, delta, left, right, carry, bits, lanes, *tweaks[1:], tables, out, stride, steps)
        return out

    @staticmethod
    def _limbs(delta: U64Array | None, values: U64Array | None, bits: int) -> int:
        """Return the limbs of the garbler's numbers; 0 at the evaluator, who has neither numbers nor offset."""
        require((delta is None) == (values is None))
        require(values is None or bits <= 64 * values.shape[-1])
        return 0 if values is None else values.shape[-1]

    def compare(
        self, tweaks: Tweaks, delta: U64Array | None, values: U64Array | None, labels: U64Array, classes: int, tables: U64Array
    ) -> U64Array:
        """Return labels (ceil(log2 classes), count, 2) of the position of the first maximum.

        `values` (pairs * count, limbs) are the garbler's, `labels` (bits, pairs * count, 2) those of the evaluator's inputs.
        Without `delta` and `values` the circuit is evaluated. `tables` has one row of 4 per gate and lane.
        """
        bits, lanes, _ = labels.shape
        pairs = classes * (classes - 1) // 2
        require(2 <= classes <= MAX_COMPARED and lanes % pairs == 0 and bits > 0)
        count, limbs = lanes // pairs, self._limbs(delta, values, bits)
        gates = (bits - 1) * lanes + (classes - 1) * (classes - 2) * count
        scratch, out = _words(lanes, 2), _words((classes - 1).bit_length(), count, 2)
        sizes = count, classes, bits, limbs
        self._call["compare"](tweaks.schedule, delta, values, labels, *sizes, *tweaks[1:], tables, scratch, out, lanes, gates)
        return out

    def match(
        self, tweaks: Tweaks, delta: U64Array | None, values: U64Array | None, labels: U64Array, tag_bits: int, tables: U64Array
    ) -> tuple[U64Array, U64Array, Bytes]:
        """Return labels (lanes, 2) of the equality of tags, and keys (lanes, planes, 2) and colours (lanes, planes) of planes.

        `values` (lanes, limbs) and `labels` (tag_bits + planes, lanes, 2) are as in `compare`.
        """
        bits, lanes, _ = labels.shape
        planes = bits - tag_bits
        require(0 < tag_bits <= MAX_TAG and planes >= 0)
        sizes, gates = (lanes, tag_bits, planes, self._limbs(delta, values, bits)), (tag_bits - 1 + planes) * lanes
        out = _words(lanes, 2), _words(lanes, planes, 2), _bytes(lanes, planes)
        self._call["match"](tweaks.schedule, delta, values, labels, *sizes, *tweaks[1:], tables, *out, bits, gates)
        return out

    # -- look-ups ----------------------------------------------------------------------------------------------------------

    @staticmethod
    def looks_up(words: int, flipped: int = 0) -> bool:
        """Return True if entries of `words` words, in tables of `flipped` entries read from a flip, fit the scratch memory."""
        return 0 < words <= MAX_WORDS and flipped * words <= MAX_FLIPPED

    def offer(
        self,
        tweaks: Tweaks,
        q: U64Array,
        delta: U64Array,
        table: U64Array,
        flips: U64Array | None,
        *,
        total: U64Array,
        sent: U64Array,
    ) -> None:
        """Add the sender's shares to `total` (count, numbers, limbs) and fill `sent` (entries - 1, n, numbers * limbs).

        q (n, bits, 2); table (count or 1, selectors, entries, numbers, limbs); flips (count, selectors). See
        `protocols.two_party.lookups`.
        """
        (instances, selectors, entries, numbers, limbs), count, (rows, bits, _) = table.shape, len(total), q.shape
        words = numbers * limbs
        require(rows == count * selectors and instances in (1, count) and 0 < entries <= 1 << bits and 0 < bits < 64)
        require(limbs in (1, 2) and self.looks_up(words, 0 if flips is None else entries))
        require(flips is None or entries == 1 << bits)
        stride, sizes = selectors * entries * words if instances > 1 else 0, (count, selectors, bits, entries, words, limbs)
        derived = instances, numbers, entries - 1, rows
        self._call["offer"](tweaks.schedule, q, delta, table, stride, flips, *sizes, *tweaks[1:], total, sent, *derived)

    def take(self, tweaks: Tweaks, t: U64Array, choices: U64Array, sent: U64Array, *, total: U64Array) -> None:
        """Add the chooser's shares to `total` (count, numbers, limbs), from t (n, bits, 2), choices (n,) and `sent`."""
        (rows, bits, _), (count, numbers, limbs), others = t.shape, total.shape, len(sent)
        words = numbers * limbs
        require(count > 0 and rows % count == 0 and 0 < bits < 64 and limbs in (1, 2) and self.looks_up(words))
        sizes = count, rows // count, bits, others + 1, words, limbs
        self._call["take"](tweaks.schedule, t, choices, sent, *sizes, *tweaks[1:], total, rows, others, numbers)

    # -- short messages under many keys --------------------------------------------------------------------------------------

    def masks(self, total: U64Array, plus: bytes, minus: bytes) -> None:
        """Add the streams of the AES-256 keys in `plus` to `total`, and subtract those in `minus`."""
        require(len(plus) % 32 == len(minus) % 32 == 0 and len(total) < 1 << 32)
        self._call["masks"](plus + minus, (len(plus) + len(minus)) // 32, len(plus) // 32, len(total), total)

    def derive(self, keys: bytes, text: bytes, blocks: int) -> Bytes:
        """Return (n, 16 * blocks): for each AES-256 key the CMACs of 1, 2, ..., in four bytes, followed by the text."""
        require(len(keys) % 32 == 0 and 0 < blocks <= 8 and 0 < len(text) < 1 << 16)
        out = _bytes(len(keys) // 32, 16 * blocks)
        self._call["derive"](keys, len(out), text, len(text), blocks, out)
        return out

    def gcm(self, keys: bytes, texts: Bytes, width: int, nonce: bytes, associated: bytes, *, opens: bool) -> Bytes:
        """Apply AES-256-GCM to the first `width` bytes of n texts, each under its own key: (n, width + 16), the tags last.

        With `opens` the texts are ciphertexts, and the tags are those that they should have.
        """
        count = len(texts)
        require(len(keys) == 32 * count and len(nonce) == 12 and width <= texts.shape[1] < 1 << 32)
        out, stride = _bytes(count, width + 16), texts.shape[1]
        self._call["gcm"](keys, count, nonce, associated, len(associated), texts, stride, width, opens, out, width + 16)
        return out

    def shares(self, powers: npt.NDArray[np.float64], secrets: bytes, random: bytes, out: npt.NDArray[np.uint16]) -> int:
        """Write Shamir shares of secrets of one size to `out` (n, secrets, limbs), at n points with powers (n, t).

        Coefficients come from the `random` bytes. Return how many are missing; then no shares are written. See `crypto.shamir`.
        """
        (count, terms), (_, parts, limbs) = powers.shape, out.shape
        size = len(secrets) // max(parts, 1)
        require(parts > 0 and size > 0 and len(secrets) == parts * size and limbs == (8 * size + 14) // 15 and terms > 0)
        work, sizes = np.empty(terms * (parts * limbs + 3)), (parts, size, len(random) // 2, count, terms)
        return int(self._call["shares"](powers, secrets, random, *sizes, work, out, limbs))

    def agreements(self, private: bytes, publics: bytes) -> bytes | None:
        """Return X25519 of a private key with concatenated public keys; None if this processor gains nothing by it."""
        require(len(private) == 32 and len(publics) % 32 == 0)
        out = bytearray(len(publics))
        return bytes(out) if self._shared["agreements"](private, publics, len(publics) // 32, out) else None

    # -- joins -------------------------------------------------------------------------------------------------------------

    def blake2b_rows(self, rows: U64Array, numbers: I64Array, parameters: bytes, words: int) -> U64Array:
        """Return BLAKE2b, (n, words), of (n, 8) rows, each followed by its number."""
        count = len(rows)
        require(0 < words <= 8 and len(parameters) == 64)
        out = _words(count, words)
        self._call["blake2b_rows"](rows, numbers, count, parameters, words, out)
        return out

    def store_order(self, sparse: I64Array, size: int) -> tuple[I64Array, I64Array]:
        """Return the keys that peeling frees, in order, and the cell of each."""
        count = len(sparse)
        _require_below(sparse, size)
        order, pivots = np.empty((2, count), dtype=np.int64)
        work = np.zeros(4 * size + 7 * count, dtype=np.int64)
        freed = self._shared["store_peel"](sparse, count, size, order, pivots, work)
        return order[:freed], pivots[:freed]

    def store_assign(self, sparse: I64Array, order: I64Array, pivots: I64Array, wanted: U64Array, table: U64Array) -> None:
        """Set each cell of `pivots`, last first, so that its key decodes to the wanted value."""
        (size, width), count, freed = table.shape, len(sparse), len(order)
        for places, bound in ((sparse, size), (pivots, size), (order, count)):
            _require_below(places, bound)
        self._shared["store_assign"](sparse, order, pivots, freed, width, wanted, table, count, size)

    def store_decode(self, table: U64Array, sparse: I64Array | None, dense: U64Array) -> U64Array:
        """Decode keys to (n, width) values; without `sparse` only their dense part."""
        (size, width), count = table.shape, len(dense)
        require(size >= 64)
        if sparse is not None:
            _require_below(sparse, size)
        out, sums = _words(count, width), _words(2048, width)
        self._shared["store_decode"](table, sparse, dense, count, width, out, sums, size)
        return out


def _require_below(places: I64Array, bound: int) -> None:
    require(not places.size or bool(places.min() >= 0 and places.max() < bound))
