"""Protocols, cryptography and the wire format use no tables, sockets, clock, log or randomness of their own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import blindbayes
import blindbayes_papers

ROOT = Path(blindbayes.__file__).parent
PAPERS = Path(blindbayes_papers.__file__).parent

ALLOWED = {  # package -> packages that it may import
    "crypto": {"errors", "crypto"},
    "wire": {"errors", "io", "wire"},  # io.typed, which decodes
    "protocols": {"errors", "_extensions", "crypto", "wire", "protocols", "codebook", "statistics"},
}
NO_IO = {
    "asyncio",
    "socket",
    "ssl",
    "grpc",
    "http",
    "urllib",
    "logging",
    "time",
    "datetime",
    "subprocess",
    "threading",
    "pathlib",
}
NO_TABLES = {"pandas", "polars", "pyarrow", "duckdb", "ibis", "narwhals", "sklearn", "sqlite3"}
NO_CHANCE = {"random", "secrets", "uuid"}
NO_CODE = {"pickle", "marshal", "shelve", "dill", "joblib"}

EXCEPTIONS = {
    ("crypto", "coins.py"): {"os"},  # the one source of randomness
    ("protocols", "memory.py"): {"time"},  # the in-memory driver measures the time that roles take
}


def modules(room: str) -> list[Path]:
    """The files of a package; the papers' protocols and primitives are held to the same rules."""
    papers = {"protocols": "SPEC.md", "crypto": "primitives/__init__.py", "wire": "wire/__init__.py"}[room]
    folders = (ROOT / room, *(each.parent for each in PAPERS.rglob(papers)))
    outside = ("kernels", "sodium.py")  # loading compiled code; `tests/test_walls.py` lists what these may do
    files = (path for folder in folders for path in folder.rglob("*.py"))
    return sorted(
        path for path in files if path.relative_to(path.parents[1]).parts[0] not in outside and path.name not in outside
    )


def imported(path: Path) -> list[tuple[str, int]]:
    """Every module that a file imports, at the top or inside a function, and the line."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno}: relative import"
            module = node.module or ""
            found.append((module, node.lineno))
            found += [(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def breaches(path: Path, room: str) -> list[str]:
    outside = NO_IO | NO_TABLES | NO_CHANCE | NO_CODE | {"os"}
    found = []
    for name, line in imported(path):
        top = name.split(".")[0]
        if top == "blindbayes":
            inner = name.split(".")[1] if "." in name else ""
            if inner and inner not in ALLOWED[room]:
                found.append(f"{path.name}:{line} imports {name}")
            continue
        chance_or_threads = name.startswith(("numpy.random", "concurrent")) and room != "crypto"
        if chance_or_threads or (top in outside and top not in EXCEPTIONS.get((room, path.name), set())):
            found.append(f"{path.name}:{line} imports {name}")
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng", "urandom") and path.name != "coins.py":
            found.append(f"{path.name}:{node.lineno} uses .{node.attr}")
        if isinstance(node, ast.Name) and node.id in ("print", "open", "input", "eval", "exec"):
            found.append(f"{path.name}:{node.lineno} uses {node.id}")
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_a_package_imports_only_what_it_may(room: str) -> None:
    assert modules(room)
    assert [each for path in modules(room) for each in breaches(path, room)] == []


def test_a_breach_is_seen(tmp_path: Path) -> None:
    for line in (
        "import socket",
        "from time import monotonic",
        "import numpy as np\nnp.random.default_rng(1)",
        "def f():\n    import pandas",
        "from blindbayes.net import driver",
        "from blindbayes import study",
        "import secrets",
        "from os import urandom",
        "import pickle",
        "print(1)",
    ):
        path = tmp_path / "module.py"
        path.write_text(line)
        assert breaches(path, "protocols"), line


def test_every_protocol_has_a_spec_with_its_machine_readable_part() -> None:
    import tomllib

    folders = [path.parent for path in (*(ROOT / "protocols").rglob("messages.py"), *PAPERS.rglob("SPEC.md"))]
    assert len(folders) >= 12
    for folder in folders:
        text = (folder / "SPEC.md").read_text("utf-8")
        block = tomllib.loads(text.split("```toml\n", 1)[1].split("```", 1)[0])
        assert isinstance(block["opened"], list), folder.name
        assert {"rounds", "messages"} <= set(block), folder.name
        assert "**Who learns what.**" in text, folder.name
        assert "**What a party that deviates gets.**" in text, folder.name


def unmarked(source: str, marked: set[str]) -> list[str]:
    """Functions that receive a message of a session without comparing its mark."""
    found = []
    for function in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        taken = [ast.unparse(call.args[1]) for call in calls if call.func.id in ("receive", "receive_all", "Receive")]
        if marked & set(taken) and not any(call.func.id == "require_mark" for call in calls):
            found.append(function.name)
    return found


def test_whoever_receives_a_message_of_a_session_compares_its_mark() -> None:
    import re

    papers = {path.parents[1] for path in PAPERS.rglob("SPEC.md")}
    for top in (ROOT, *sorted(papers)):  # two papers may each have a message of one name
        sources = [path.read_text("utf-8") for path in modules("protocols") if path.is_relative_to(top)]
        marked = {name for source in sources for name in re.findall(r"^class (\w+)\(Marked, ", source, re.M)}
        assert len(marked) > 45 or top != ROOT
        assert [each for source in sources for each in unmarked(source, marked)] == []
    kind = min(marked)
    assert unmarked(f"def role(other):\n    yield from receive(other, {kind})", marked) == ["role"]
