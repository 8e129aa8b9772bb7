"""Checks between Python and the compiled library.

A kernel gets only arrays whose type, shape, contiguity and writability were checked; anything else is a `LocalProtocolError`.
cffi, which `cryptography` depends on, makes the calls: they release the interpreter's lock and cost a third of those of ctypes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.declared import DECLARED, DECLARED_ONCE, functions
from blindbayes.errors import LocalProtocolError

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
WORD, SIGNED, BYTE = np.dtype(np.uint64), np.dtype(np.int64), np.dtype(np.uint8)
SHORT, DOUBLE = np.dtype(np.uint16), np.dtype(np.float64)
_UNFIT = "arrays handed to a kernel do not fit it, or one another"


def require(fits: bool) -> None:
    """Refuse arguments that do not fit a kernel."""
    if not fits:
        raise LocalProtocolError(_UNFIT)


class Checked:
    """The functions of the library for one instruction set, and the checks of what they are given."""

    def __init__(self, name: str, library: Any) -> None:
        import _cffi_backend as backend

        ffi = backend.FFI()
        self.name = name
        self._from_buffer, self._cast, self._null = ffi.from_buffer, ffi.cast, ffi.NULL
        made = functions(library, backend, DECLARED.format(name))
        self._call = {kernel.removesuffix(f"_{name}"): call for kernel, call in made.items()}
        self._once = functions(library, backend, DECLARED_ONCE)

    def _memory(self, array: Any, *, writes: bool = False) -> Any:
        """cffi refuses what is not contiguous, and what is not writable where it must be."""
        try:
            return self._from_buffer("char[]", array, writes)
        except (ValueError, BufferError, TypeError):
            raise LocalProtocolError(_UNFIT) from None

    def _array(self, array: npt.NDArray[Any], shape: tuple[int, ...], kind: Any = WORD, *, writes: bool = False) -> Any:
        """The memory of an array of exactly that shape and kind."""
        if array.shape != shape or array.dtype != kind:
            raise LocalProtocolError(_UNFIT)
        return self._memory(array, writes=writes)

    def _strided(self, array: npt.NDArray[Any], kind: Any) -> tuple[Any, int]:
        """The address of a one-dimensional array of that kind, and how many bytes its values lie apart."""
        require(array.ndim == 1 and array.dtype == kind)
        return self._cast("char *", array.__array_interface__["data"][0]), array.strides[0]
