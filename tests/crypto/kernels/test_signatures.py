"""The table of signatures: every argument of a kernel is checked before the call."""

from types import SimpleNamespace

import numpy as np
import pytest

from blindbayes.crypto.kernels.signatures import PER_SET, SHARED, CheckedFunction
from blindbayes.errors import LocalProtocolError

backend = pytest.importorskip("_cffi_backend")


class Library:
    """A library whose functions return their arguments, and remember their C types."""

    def load_function(self, kind, symbol):
        self.kind, self.symbol = kind, symbol
        return lambda *arguments: arguments


def function(signature):
    library = Library()
    return CheckedFunction(backend, library, "f", "void", signature), library


def test_sizes_types_and_contiguity_are_checked():
    call, _ = function("rows u64[count width], count, width, out u8[count]= | spare")
    rows, out = np.zeros((3, 2), np.uint64), np.zeros(3, np.uint8)
    assert len(call(rows, 3, 2, out, 0)) == 4
    locked = out.copy()
    locked.flags.writeable = False
    for bad in (
        (rows[:2], 3, 2, out, 0),
        (rows, 3, 1, out, 0),
        (rows.astype(np.int64), 3, 2, out, 0),
        (np.zeros((3, 4), np.uint64)[:, ::2], 3, 2, out, 0),
        (rows, 3, 2, locked, 0),
        (None, 3, 2, out, 0),
        (rows, 3, 2, out[:2], 0),
    ):
        with pytest.raises((LocalProtocolError, AttributeError)):
            call(*bad)


def test_none_is_null_only_where_the_signature_allows_it():
    call, _ = function("key u64[2]?, tables u64[2]=key")
    readable = np.zeros(2, np.uint64)
    readable.flags.writeable = False
    assert call(None, readable)[0] == backend.FFI().NULL  # without a key the tables are only read
    with pytest.raises(LocalProtocolError, match="fit"):
        call(np.zeros(2, np.uint64), readable)


def test_numbers_have_the_declared_c_types():
    _, library = function("first u64, low i64, scale f64, flag int, size")
    assert [each.cname for each in library.kind.args] == ["uint64_t", "int64_t", "double", "int", "size_t"]


@pytest.mark.parametrize("table", [PER_SET, SHARED])
def test_every_declared_function_is_parsed(table):
    from blindbayes.crypto.kernels import signatures

    parsed = signatures._SIGNATURE.findall(table)
    assert len(parsed) == sum(1 for line in table.splitlines() if line and not line.startswith(" "))
    fake = SimpleNamespace(load_function=lambda kind, symbol: symbol)
    for result, name, arguments in parsed:
        CheckedFunction(backend, fake, name, result, " ".join(arguments.split()))
