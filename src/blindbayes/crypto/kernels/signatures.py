"""Signatures of the compiled functions, and calls that check every argument against them.

A kernel only sees arrays that are contiguous, of the declared type and shape, and writable where it writes; other arguments
raise `LocalProtocolError`. cffi's backend makes the calls: they release the interpreter's lock and cost a third of ctypes'. Its
parser of C declarations is not used: it would take a tenth of a second in every process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]

# `result name: argument, ... | size ...`, with `name`, `name type`, `name dtype[size ...]` or `name kind` for an argument.
# The type of a number is size_t unless it is stated. A size of a shape is a number, another argument, or a size after the bar,
# which is passed last and only checked. After a type or kind, `?` allows None, `=` means that the kernel writes, and `=name`
# that it writes if that argument is not None. Kinds: `memory` is contiguous bytes of any type, `key` an expanded AES-128 key,
# `lines` contiguous rows of bytes at a positive distance, `dtype~` a one-dimensional array with any stride, and `address` is
# not checked. The methods of `Kernels` check ranges, and lengths of `memory`.
PER_SET = """
void schedules: keys memory, count, out u8[count 176]=
void expand: key key, seeds u64[rows 2], firsts u64[rows]?, first u64, step u64, domain u64, rows, words, out u64[rows words]=
void fold: streams u64[32 16 words]?, keys u8[512 176]?, counter u64, missing int, width, received u8[32 width]?, delta u64[2]?,
    folded u8[128 stride]=, stride, rest u8[32 width]= | words
void streams: keys u8[count 176], count, start u64, width, out u8[count width]=
void transpose: rows lines, stride, count, width, out memory=
void ghash: h memory, rows lines, stride, count, width, out u8[count 16]=
void sender_pads: key key, q u64[rows bits 2], delta u64[2], rows, bits, entries, words, first u64, domain u64,
    out u64[entries rows words]=
void chooser_pads: key key, t u64[rows bits 2], choices u64[rows], rows, bits, words, first u64, domain u64,
    out u64[rows words]=
void offer_digits: key key, q u64[rows bits 2], delta u64[2], own u8[rows], table u8[numbers entries], rows, bits, numbers,
    entries, width, first u64, domain u64, share u8[rows]=, sent lines, stride
void encode: columns memory, ops i64[steps 5], steps, missing i64, count, words, stride, out address, lost u64[1]=
void grow: key key, q u64[rows levels 2], delta u64[2], rows, levels, classes, transfer_first u64, tree_first u64,
    transfer_domain u64, tree_domain u64, leaves u64[classes rows 2]=, made u64[sums rows 2]= | sums
void regrow: key key, t u64[rows levels 2], own i64[rows], made u64[sums rows 2], rows, levels, classes, transfer_first u64,
    tree_first u64, transfer_domain u64, tree_domain u64, leaves u64[classes rows 2]= | sums
void mask_rows: key key, leaves u64[classes count 2], first u64, domain u64, count, words, classes, rows u64[count words]=,
    share u64[classes words]=
void unmask_rows: key key, leaves u64[classes count 2], own i64[count], first u64, domain u64, count, words, classes,
    rows u64[count words], share u64[classes words]=
void gates: key key, delta u64[2]?, left u64[bits lanes 2], right u64[bits lanes 2], carry u64[lanes 2]?, bits, lanes,
    first u64, domain u64, tables u64[bits lanes 4]=delta, out u64[steps lanes 2]=, stride | steps
void compare: key key, delta u64[2]?, values u64[lanes limbs]?, labels u64[bits lanes 2], count, classes, bits, limbs,
    first u64, domain u64, tables u64[gates 4]=delta, scratch u64[lanes 2]=, out memory= | lanes gates
void match: key key, delta u64[2]?, values u64[lanes limbs]?, labels u64[bits lanes 2], lanes, tag_bits, planes, limbs,
    first u64, domain u64, tables u64[gates 4]=delta, equal u64[lanes 2]=, keys u64[lanes planes 2]=,
    colours u8[lanes planes]= | bits gates
void offer: key key, q u64[rows bits 2], delta u64[2], table u64[instances selectors entries numbers limbs], stride,
    flips u64[count selectors]?, count, selectors, bits, entries, words, limbs, first u64, domain u64,
    total u64[count numbers limbs]=, sent u64[others rows words]= | instances numbers others rows
void take: key key, t u64[rows bits 2], choices u64[rows], sent u64[others rows words], count, selectors, bits, entries, words,
    limbs, first u64, domain u64, total u64[count numbers limbs]= | rows others numbers
void masks: keys memory, count, plus, words, total u64[words]=
void derive: keys memory, count, text memory, size, blocks, out memory=
void gcm: keys memory, count, nonce memory, associated memory, size, texts u8[count stride], stride, width, opens int,
    out memory=, out_stride
size_t shares: powers f64[count terms], secrets memory, random memory, parts, size, words, count, terms, work memory=,
    out u16[count parts limbs]= | limbs
void blake2b_rows: rows u64[count 8], numbers i64[count], count, parameters memory, words, out u64[count words]=
"""
SHARED = """
text kernels_digest:
text kernels_sets:
void kernels_keep_memory: size int
int agreements: private memory, publics memory, count, out memory=
void cells_scan: text memory, size, marks memory, columns, places memory, count, plain memory, rows, tables memory=,
    values memory=, ends memory=, store memory=, capacity, codes memory=, state memory=, wide int
size_t store_peel: sparse i64[count 3], count, size, order i64[count]=, pivots i64[count]=, work memory=
void store_assign: sparse i64[count 3], order i64[freed], pivots i64[freed], freed, width, wanted u64[count width],
    table u64[size width]= | count size
void store_decode: table u64[size width], sparse i64[count 3]?, dense u64[count], count, width, out u64[count width]=,
    sums memory= | size
size_t count_cells: labels i64[count], codes i64[count], count, classes, columns, out i64[2 classes columns]=
size_t count_moments: labels i64[count], codes i64[count], count, classes, missing i64, out i64[2 classes 6]=
void grid_codes: values f64~, stride i64, count, scale f64, low f64, high f64, centre f64, limit f64, missing i64,
    out i64[count]=, lost u64[2]=
size_t whole_positions: values i64~, stride i64, count, low i64, size, table i64[size], out i64[count]=
size_t add_cells: codes i64[count], count, table f64[classes entries], known, classes, scores f64[classes count]= | entries
void add_densities: codes i64[count], count, missing i64, centre i64, scale f64, classes, terms f64[3 classes],
    scores f64[classes count]=
"""
_SIGNATURE = re.compile(r"^(\w+) (\w+):[ ]?(.*(?:\n    .*)*)$", re.MULTILINE)
_ARGUMENT = re.compile(r"(\w+)(?: (\w+)(?:\[([\w ]+)\])?(~)?(\?)?(?:(=)(\w*))?)?")
_DTYPES = {"u64": np.uint64, "i64": np.int64, "f64": np.float64, "u16": np.uint16, "u8": np.uint8}
_NUMBERS = {"u64": "uint64_t", "i64": "int64_t", "f64": "double", "int": "int", "size_t": "size_t"}
_KINDS = ("memory", "key", "lines", "address")
_UNFIT = "arrays handed to a kernel do not fit it, or one another"


class Tweaks(NamedTuple):
    """Expanded key, first tweak and domain of the hashes of one call."""

    schedule: Bytes
    first: int
    domain: int


def require(fits: bool) -> None:
    """Raise `LocalProtocolError` unless the arguments fit."""
    if not fits:
        raise LocalProtocolError(_UNFIT)


class CheckedFunction:
    """A function of the library that refuses arguments that do not fit its signature."""

    def __init__(self, backend: Any, library: Any, symbol: str, result: str, arguments: str) -> None:
        self.symbol, ffi = symbol, backend.FFI()
        self._from_buffer, self._cast, self._null = ffi.from_buffer, ffi.cast, ffi.NULL
        passed, _, derived = arguments.partition(" | ")
        parsed = [_ARGUMENT.fullmatch(each).groups() for each in passed.split(", ")] if passed else []  # type: ignore[union-attr]
        names = [each[0] for each in parsed] + derived.split()
        self._count, self._constants = len(parsed), (1, 2, 3, 4, 5, 6, 8, 16, 32, 128, 176, 512)
        names += [str(value) for value in self._constants]
        self._arrays: list[tuple[int, Any, Any, Any, bool]] = []
        self._pointers: list[tuple[int, str, Any]] = []
        void = backend.new_void_type()
        types = []
        for place, (_, kind, shape, strided, optional, writes, condition) in enumerate(parsed):
            is_array = shape or strided or kind in _KINDS
            types.append(backend.new_pointer_type(void) if is_array else backend.new_primitive_type(_NUMBERS[kind or "size_t"]))
            if strided or kind in ("lines", "address"):
                self._pointers.append((place, kind, _DTYPES.get(kind)))
            elif is_array:
                sizes = [names.index(size) for size in ("1 176" if kind == "key" else shape or "").split()]
                taken = itemgetter(slice(sizes[0], sizes[0] + 1)) if len(sizes) == 1 else itemgetter(*sizes) if sizes else None
                dtype = None if kind == "memory" else np.dtype(_DTYPES.get(kind, np.uint8))
                written = names.index(condition) if condition else bool(writes)
                self._arrays.append((place, dtype, taken, written, bool(optional)))
        text = backend.new_pointer_type(backend.new_primitive_type("char"))
        answer = {"void": void, "text": text}.get(result) or backend.new_primitive_type(_NUMBERS[result])
        self._function = library.load_function(backend.new_function_type(tuple(types), answer, False), symbol)

    def __call__(self, *given: Any) -> Any:
        arguments, sizes = list(given[: self._count]), given + self._constants
        for place, dtype, shape, writes, optional in self._arrays:
            array = given[place]
            if array is None and optional:
                arguments[place] = self._null
                continue
            if dtype is not None and (array.dtype != dtype or array.shape != shape(sizes)):
                raise LocalProtocolError(_UNFIT)
            written = writes if writes is True or writes is False else given[writes] is not None
            try:  # cffi refuses memory that is not contiguous, or not writable where it must be
                arguments[place] = self._from_buffer("char[]", array, written)
            except (ValueError, BufferError, TypeError):
                raise LocalProtocolError(_UNFIT) from None
        for place, kind, dtype in self._pointers:
            array = given[place]
            if kind == "lines":
                require(array.ndim == 2 and array.dtype == np.uint8 and array.strides[1] == 1)
                require(array.strides[0] >= array.shape[1] or len(array) <= 1)
            elif kind != "address":
                require(array.ndim == 1 and array.dtype == dtype)
            arguments[place] = self._cast("char *", array.__array_interface__["data"][0])
        return self._function(*arguments)


def functions(library: Any, backend: Any, name: str | None = None, only: Iterable[str] = ()) -> dict[str, CheckedFunction]:
    """Return the functions of one instruction set, or those shared by all sets; `only` the named ones.

    Raises
    ------
    AttributeError
        If the library lacks one of them.
    """
    return {
        each: CheckedFunction(backend, library, each if name is None else f"{each}_{name}", result, " ".join(text.split()))
        for result, each, text in _SIGNATURE.findall(SHARED if name is None else PER_SET)
        if not only or each in only
    }
