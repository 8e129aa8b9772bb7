"""The functions of the compiled library, as C declares them, and how they are had.

By cffi's own backend: its parser of C would take a tenth of a second in every process, to read the few kinds that stand here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

DECLARED = """
void schedules_{0}(void *, size_t, void *);
void expand_{0}(void *, void *, void *, uint64_t, uint64_t, uint64_t, size_t, size_t, void *);
void fold_{0}(void *, void *, uint64_t, int, size_t, void *, void *, void *, size_t, void *);
void streams_{0}(void *, size_t, uint64_t, size_t, void *);
void transpose_{0}(void *, size_t, size_t, size_t, void *);
void sender_pads_{0}(void *, void *, void *, size_t, size_t, size_t, size_t, uint64_t, uint64_t, void *);
void chooser_pads_{0}(void *, void *, void *, size_t, size_t, size_t, uint64_t, uint64_t, void *);
void encode_{0}(void *, void *, size_t, int64_t, size_t, size_t, size_t, void *, void *);
void grow_{0}(void *, void *, void *, size_t, size_t, size_t, uint64_t, uint64_t, uint64_t, uint64_t, void *, void *);
void regrow_{0}(void *, void *, void *, void *, size_t, size_t, size_t, uint64_t, uint64_t, uint64_t, uint64_t, void *);
void mask_rows_{0}(void *, void *, uint64_t, uint64_t, size_t, size_t, size_t, void *, void *);
void offer_digits_{0}(void *, void *, void *, void *, void *, size_t, size_t, size_t, size_t, size_t, uint64_t, uint64_t,
    void *, void *, size_t);
void unmask_rows_{0}(void *, void *, void *, uint64_t, uint64_t, size_t, size_t, size_t, void *, void *);
void gates_{0}(void *, void *, void *, void *, void *, size_t, size_t, uint64_t, uint64_t, void *, void *, size_t);
void offer_{0}(void *, void *, void *, void *, size_t, void *, size_t, size_t, size_t, size_t, size_t, size_t, uint64_t,
    uint64_t, void *, void *);
void take_{0}(void *, void *, void *, void *, size_t, size_t, size_t, size_t, size_t, size_t, uint64_t, uint64_t, void *);
void compare_{0}(void *, void *, void *, void *, size_t, size_t, size_t, size_t, uint64_t, uint64_t, void *, void *, void *);
void match_{0}(void *, void *, void *, void *, size_t, size_t, size_t, size_t, uint64_t, uint64_t, void *, void *, void *,
    void *);
void ghash_{0}(void *, void *, size_t, size_t, size_t, void *);
void blake2b_rows_{0}(void *, void *, size_t, void *, size_t, void *);
void masks_{0}(void *, size_t, size_t, size_t, void *);
void derive_{0}(void *, size_t, void *, size_t, size_t, void *);
size_t shares_{0}(void *, void *, void *, size_t, size_t, size_t, size_t, size_t, void *, void *);
void gcm_{0}(void *, size_t, void *, void *, size_t, void *, size_t, size_t, int, void *, size_t);
"""
DECLARED_ONCE = """
const char *kernels_digest(void);
const char *kernels_sets(void);
void kernels_keep_memory(int);
int agreements(void *, void *, size_t, void *);
void cells_scan(void *, size_t, void *, size_t, void *, size_t, void *, size_t, void *, void *, void *, void *, size_t, void *,
    void *, int);
size_t store_peel(void *, size_t, size_t, void *, void *, void *);
void store_assign(void *, void *, void *, size_t, size_t, void *, void *);
void store_decode(void *, void *, void *, size_t, size_t, void *, void *);
size_t count_cells(void *, void *, size_t, size_t, size_t, void *);
size_t count_moments(void *, void *, size_t, size_t, int64_t, void *);
void grid_codes(void *, int64_t, size_t, double, double, double, double, double, int64_t, void *, void *);
size_t whole_positions(void *, int64_t, size_t, int64_t, size_t, void *, void *);
size_t add_cells(void *, size_t, void *, size_t, size_t, void *);
void add_densities(void *, size_t, int64_t, int64_t, double, size_t, void *, void *);
"""
_ONE = re.compile(r"([\w ]+ \*?)(\w+)\(([^)]*)\);")


def functions(library: Any, backend: Any, declared: str) -> dict[str, Callable[..., Any]]:
    """The functions of a library that `cffi`'s backend has opened, by name. `AttributeError` for one that is not in it."""
    void = backend.new_void_type()
    kinds = {name: backend.new_primitive_type(name) for name in ("size_t", "uint64_t", "int64_t", "int", "double")}
    text = backend.new_pointer_type(backend.new_primitive_type("char"))
    kinds |= {"void": void, "void *": backend.new_pointer_type(void), "const char *": text}
    found = {}
    for answer, name, given in _ONE.findall(declared):
        takes = () if given == "void" else tuple(kinds[each] for each in re.split(r",\s+", given))
        found[name] = library.load_function(backend.new_function_type(takes, kinds[answer.strip()], False), name)
    return found
