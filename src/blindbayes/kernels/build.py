"""Builds the kernels in place: `python -m blindbayes.kernels.build`. Installing calls this too (hatch_build.py).

A plain shared library, not an extension module: it needs a C compiler and no headers of Python, one file serves every Python,
and nothing in it can reach an object. Where there is no compiler, or it cannot, one line says so and numpy does the work.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER / "_kernels.so"
SOURCES = ("aes.h", "curve.h", "keyed.h", "lanes.c", "rows.h", "scores.h", "words.c")
_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi")
_ANY: dict[str, tuple[str, ...]] = {"portable": ()}
_VAES = ("-maes", "-mpclmul", "-mavx2", "-mvaes", "-mvpclmulqdq")
_SETS: dict[str, dict[str, tuple[str, ...]]] = {  # instruction sets by processor, and what the compiler must be told
    "x86_64": {
        **_ANY,
        "aesni": ("-maes", "-mpclmul", "-mavx2"),
        "vaes": _VAES,
        "avx512": (*_VAES, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mgfni", "-mprefer-vector-width=256"),
    },
    "aarch64": {**_ANY, "armv8": ("-mcpu=generic+crypto",)},
}


class Unbuildable(Exception):
    """Why there are no kernels, in a line."""


def sets() -> dict[str, tuple[str, ...]]:
    """The instruction sets of this processor's family, the slowest first, with their flags."""
    machine = platform.machine().lower()
    return _SETS.get({"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine), _ANY)


def digest() -> str:
    """Of the sources: a library that was built from others is not used."""
    return hashlib.sha256(b"".join((FOLDER / name).read_bytes() for name in SOURCES)).hexdigest()


def build(out: Path = LIBRARY, extra: Sequence[str] = ()) -> list[str]:
    """Compile; returns the instruction sets that are in. Raises `Unbuildable`."""
    words = shlex.split(os.environ.get("CC", "cc")) or ["cc"]
    if sys.byteorder != "little" or os.name != "posix":
        raise Unbuildable("they are for POSIX systems with little-endian words")
    if shutil.which(words[0]) is None:
        raise Unbuildable(f"there is no C compiler ({words[0]})")
    with tempfile.TemporaryDirectory() as folder:
        made = []
        for name, flags in sets().items():
            part = Path(folder) / f"{name}.o"
            if _ran([*words, *_FLAGS, *flags, *extra, f"-DISA={name}", "-c", str(FOLDER / "lanes.c"), "-o", str(part)]):
                made.append((name, part))  # an old compiler may not know the newest set
        if not made:
            raise Unbuildable(f"{words[0]} cannot compile them")
        present = [f"-DHAS_{name.upper()}" for name, _ in made]
        rest, whole = Path(folder) / "words.o", Path(folder) / "whole.so"
        named = [*present, f'-DDIGEST="{digest()}"', "-c", str(FOLDER / "words.c"), "-o", str(rest)]
        linked = [*words, "-shared", *extra, *(str(part) for _, part in made), str(rest), "-o", str(whole)]
        if not _ran([*words, *_FLAGS, *extra, *named]) or not _ran(linked):
            raise Unbuildable(f"{words[0]} cannot compile them")
        try:
            beside = out.with_name(f"{out.name}.{os.getpid()}")
            shutil.copyfile(whole, beside)
            os.replace(beside, out)  # who has the old one open keeps it
        except OSError as problem:
            raise Unbuildable(f"{out.parent} cannot be written to") from problem
    return [name for name, _ in made]


def _ran(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603


def main() -> None:
    """Build, and say in one line what came of it. Arguments are further flags for the compiler."""
    try:
        print("kernels:", ", ".join(build(extra=sys.argv[1:])))  # noqa: T201
    except Unbuildable as why:
        print(f"kernels are left out, numpy does the work: {why}")  # noqa: T201


if __name__ == "__main__":
    main()
