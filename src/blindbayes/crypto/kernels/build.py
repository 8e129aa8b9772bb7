"""Build the kernels in place. Installing the package calls this too (hatch_build.py).

    python -m blindbayes.crypto.kernels.build            # the sets of this processor, unless they are up to date
    python -m blindbayes.crypto.kernels.build --all      # every set of the processor's family, as a wheel needs
    python -m blindbayes.crypto.kernels.build --set portable -g -O1   # named sets; further arguments go to the compiler

The result is a plain shared library, not an extension module: it needs a C compiler but no Python headers, one file serves
every Python version, and it cannot touch Python objects. Without a working compiler numpy does the same work.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER / "_kernels.so"
SOURCES = ("aes.h", "cells.h", "counts.h", "curve.h", "keyed.h", "lanes.c", "rows.h", "scores.h", "words.c")
_FLAGS = ("-std=gnu11", "-O3", "-g0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi")
_ANY: dict[str, tuple[str, ...]] = {"portable": ()}
_VAES = ("-maes", "-mpclmul", "-mavx2", "-mvaes", "-mvpclmulqdq")
_SETS: dict[str, dict[str, tuple[str, ...]]] = {  # instruction sets by processor, with their compiler flags
    "x86_64": {
        **_ANY,
        "aesni": ("-maes", "-mpclmul", "-mavx2"),
        "vaes": _VAES,
        "avx512": (*_VAES, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mgfni", "-mprefer-vector-width=256"),
    },
    "aarch64": {**_ANY, "armv8": ("-mcpu=generic+crypto",)},
}


class Unbuildable(Exception):
    """The kernels cannot be built; the message is one line with the reason."""


def compiler() -> list[str]:
    """Return the command of the C compiler: CC, or cc."""
    return shlex.split(os.environ.get("CC", "cc")) or ["cc"]


def target_machine() -> str:
    """Return the processor family that the compiler builds for; this machine's if it does not answer."""
    try:  # zig answers and fails all the same
        answer = subprocess.run([*compiler(), "-dumpmachine"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    except OSError:
        answer = ""
    machine = (answer.strip() or platform.machine()).split("-")[0].lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def sets() -> dict[str, tuple[str, ...]]:
    """Return the instruction sets of the target's processor family with their compiler flags, slowest first."""
    return _SETS.get(target_machine(), _ANY)


def native_sets() -> dict[str, tuple[str, ...]]:
    """Return the sets that this processor can run; all of its family if the compiler cannot tell."""
    probe = [*compiler(), "-march=native", "-dM", "-E", "-x", "c", os.devnull]
    try:
        answer = subprocess.run(probe, capture_output=True, text=True, check=True).stdout  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return sets()
    macros = {line.split()[1] for line in answer.splitlines() if line.startswith("#define ")}
    needed = {name: {f"__{flag[2:].upper()}__" for flag in flags if "=" not in flag} for name, flags in sets().items()}
    return {name: flags for name, flags in sets().items() if needed[name] <= macros}


def digest() -> str:
    """Return the hash of the sources; a library built from other sources is not loaded."""
    return hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in SOURCES)).hexdigest()


def quick_sets() -> dict[str, tuple[str, ...]]:
    """Return the fastest set of this processor that the library runs without the others: a quarter of the work."""
    return dict([[each for each in native_sets().items() if each[0] != "avx512"][-1]])  # avx512 is used beside vaes only


def is_current(chosen: Iterable[str]) -> bool:
    """Return True if the library was built from today's sources, with the chosen instruction sets."""
    content = LIBRARY.read_bytes() if LIBRARY.is_file() else b""
    return digest().encode() in content and all(f"_{name}\0".encode() in content for name in chosen)


def build(out: Path = LIBRARY, extra: Sequence[str] = (), chosen: Mapping[str, tuple[str, ...]] | None = None) -> list[str]:
    """Compile the chosen instruction sets (default: all of the family) and return the names of those that compiled.

    Raises
    ------
    Unbuildable
        If the platform is not supported, there is no compiler, or it fails.
    """
    words = compiler()
    if sys.byteorder != "little" or os.name != "posix":
        raise Unbuildable("they are for POSIX systems with little-endian words")
    if shutil.which(words[0]) is None:
        raise Unbuildable(f"there is no C compiler ({words[0]})")
    with tempfile.TemporaryDirectory() as folder:
        parts = {name: Path(folder) / f"{name}.o" for name in (sets() if chosen is None else chosen)}
        source = str(FOLDER / "lanes.c")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            flags = {name: [*_FLAGS, *sets()[name], *extra, f"-DISA={name}"] for name in parts}
            compiled = pool.map(lambda name: _ran([*words, *flags[name], "-c", source, "-o", str(parts[name])]), parts)
            made = [each for each, ok in zip(parts.items(), compiled, strict=True) if ok]  # old compilers lack the newest set
        if not made:
            raise Unbuildable(f"{words[0]} cannot compile them")
        present = [f"-DHAS_{name.upper()}" for name, _ in made]
        rest, whole = Path(folder) / "words.o", Path(folder) / "whole.so"
        exact = "-ffp-contract=off"  # like numpy, round after each product and each sum
        named = [exact, *present, f'-DDIGEST="{digest()}"', "-c", str(FOLDER / "words.c"), "-o", str(rest)]
        linked = [*words, "-shared", *extra, *(str(part) for _, part in made), str(rest), "-o", str(whole)]
        if not _ran([*words, *_FLAGS, *extra, *named]) or not _ran(linked):
            raise Unbuildable(f"{words[0]} cannot compile them")
        try:
            beside = out.with_name(f"{out.name}.{os.getpid()}")
            shutil.copyfile(whole, beside)
            os.replace(beside, out)  # processes that opened the old one keep it
        except OSError as problem:
            raise Unbuildable(f"{out.parent} cannot be written to") from problem
    return [name for name, _ in made]


def _ran(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def main() -> None:
    """Build and print one line with the outcome."""
    parser = argparse.ArgumentParser(description="Build the compiled kernels; unknown arguments go to the compiler.")
    parser.add_argument("--all", action="store_true", help="every instruction set of this processor's family, as wheels need")
    parser.add_argument("--set", action="append", choices=list(sets()), help="only this instruction set (repeatable)")
    options, extra = parser.parse_known_args()
    named = {name: sets()[name] for name in options.set} if options.set else None
    chosen = sets() if options.all else named or native_sets()
    if is_current(chosen) and not (options.all or options.set or extra):
        return
    try:
        print("kernels:", ", ".join(build(extra=extra, chosen=chosen)))  # noqa: T201
    except Unbuildable as why:
        print(f"kernels are left out, numpy does the work: {why}")  # noqa: T201


if __name__ == "__main__":
    main()
