"""The walls between the rooms of the package, held by reading the imports and calls of every source file.

Rows stop at `data`; I/O stays in `io`, `net`, `agent`, `data`, the ledger, `cli` and `console`; randomness enters at
`crypto.coins`. What stands outside a wall for a reason is listed here with the reason, and must still be there.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "blindbayes"
PACKAGE = "blindbayes"
PAPERS = SOURCE.parents[1] / "papers" / "blindbayes_papers"  # a distribution of its own; here the room `papers`


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def files() -> list[str]:
    """Every file, as a path in its package; those of the papers under `papers/`."""
    papers = (f"papers/{path.relative_to(PAPERS).as_posix()}" for path in PAPERS.rglob("*.py"))
    return sorted([*(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")), *papers])


def source(name: str) -> ast.Module:
    return parsed(PAPERS / name.removeprefix("papers/") if name.startswith("papers/") else SOURCE / name)


def in_rooms(name: str, *rooms: str) -> bool:
    """Whether a file is one of these files, or lies in one of these rooms."""
    return any(name in (room, f"{room}.py") or name.startswith(f"{room}/") for room in rooms)


def imports(name: str) -> set[str]:
    """Every module a file imports, at any depth; `from a import b` counts as a and as a.b."""
    found: set[str] = set()
    for node in ast.walk(source(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = [PACKAGE, *name.split("/")[: -node.level]]
                base = ".".join([*parts, *([base] if base else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and called(node).rpartition(".")[2] in {"import_module", "__import__", "lazy"}:
            found |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def called(node: ast.Call) -> str:
    """The dotted name of what is called, as far as it is a name."""
    parts: list[str] = []
    at: ast.expr = node.func
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    return ".".join(reversed([*parts, at.id if isinstance(at, ast.Name) else ""]))


def calls(name: str) -> set[str]:
    return {called(node) for node in ast.walk(source(name)) if isinstance(node, ast.Call)}


def attributes(name: str) -> set[str]:
    return {node.attr for node in ast.walk(source(name)) if isinstance(node, ast.Attribute)}


def uses(name: str, *modules: str) -> set[str]:
    return {found for found in imports(name) if any(found == module or found.startswith(module + ".") for module in modules)}


def offenders(names: Iterator[tuple[str, set[str]]], allowed: dict[str, str]) -> dict[str, set[str]]:
    """What breaks the wall beyond the listed exceptions; an exception that is no longer needed is an offence too."""
    broken = {name: found for name, found in names if found}
    there = [room for room in allowed if any(in_rooms(name, room) for name in files())]
    stale = {f"{room} (listed, and not needed)": {""} for room in there if not any(in_rooms(name, room) for name in broken)}
    return {name: found for name, found in broken.items() if not in_rooms(name, *allowed)} | stale


# -- the walls ---------------------------------------------------------------------------------------------------------

TABLES = ("ibis", "duckdb", "pandas", "polars", "pyarrow", "narwhals", "blindbayes.data", "sqlglot", "dask", "pyspark")
NO_TABLES = ("crypto", "wire", "statistics", "protocols", "dp", "errors", "console")


@pytest.mark.parametrize("room", NO_TABLES)
def test_tables_stop_at_statistics(room: str) -> None:
    assert offenders(((name, uses(name, *TABLES)) for name in files() if in_rooms(name, room)), {}) == {}


def test_engines_are_known_to_data_only() -> None:
    allowed = {}
    outside = (name for name in files() if not in_rooms(name, "data", "papers"))
    assert offenders(((name, uses(name, "ibis", "duckdb", "narwhals", "sqlglot")) for name in outside), allowed) == {}


DISK = ("pathlib", "tempfile", "shutil", "glob", "io", "fcntl", "mmap", "sqlite3", "csv", "gzip")
NETWORK = (
    "socket",
    "socketserver",
    "ssl",
    "asyncio",
    "grpc",
    "http",
    "urllib.request",
    "selectors",
    "select",
    "ftplib",
    "smtplib",
)
PROCESSES = ("subprocess", "multiprocessing", "threading", "concurrent", "signal", "pty")
CLOCK = ("time", "datetime")
UPPER = ("study", "simulation", "report", "net", "agent", "cli", "console", "testing", "papers")
SHELLS = tuple(f"{PACKAGE}.{room}" for room in UPPER)
IO_ROOMS = ("io", "net", "agent", "testing", "data", "dp/accounting/ledger", "cli", "console", "papers")


def test_the_network_and_processes_stop_at_transport_and_the_shells() -> None:
    allowed = {
        "crypto/kernels/build": "calls the compiler, at installation",
    }
    outside = (name for name in files() if not in_rooms(name, *IO_ROOMS))
    assert offenders(((name, uses(name, *NETWORK, *PROCESSES)) for name in outside), allowed) == {}


def test_files_are_touched_at_the_edges_only() -> None:
    allowed = {
        "codebook": "a codebook is read from and written to TOML",
        "naive_bayes/estimator": "the model file is saved and loaded",
        "naive_bayes/fitted": "the model file is saved and loaded",
        "study/tasks/result": "a result is written to a folder",
        "crypto/sodium": "the copy of libsodium that rbcl would leave in the folder for temporary files is kept in memory",
        "naive_bayes/shares": "a party's share of a model is a file of its own",
        "crypto/kernels/build": "the library is built beside its sources, at installation",
    }
    outside = (name for name in files() if not in_rooms(name, *IO_ROOMS))
    broken = ((name, uses(name, *DISK) | (calls(name) & {"open", "os.open", "os.replace", "os.remove"})) for name in outside)
    assert offenders(broken, allowed) == {}


@pytest.mark.parametrize("room", ["protocols", "statistics", "wire", "crypto"])
def test_roles_and_primitives_know_no_clock_log_disk_or_network(room: str) -> None:
    forbidden = (*DISK, *NETWORK, *PROCESSES, *CLOCK, "logging", "blindbayes.dp.accounting.ledger", *SHELLS)
    for name in files():
        if in_rooms(name, room):
            assert {module for module in uses(name, *forbidden) if not module.startswith("concurrent.futures")} == set(), name
            assert calls(name) & {"open", "print", "input"} == set(), name
            if name != "crypto/coins.py":
                assert uses(name, "os") == set(), name


RANDOM_CALLS = {"urandom", "getrandom", "default_rng", "RandomState", "SystemRandom", "token_bytes", "randombytes", "uuid4",
                "random_state", "mpz_random", "mpz_urandomb"}  # fmt: skip


def randomness(name: str) -> set[str]:
    used = uses(name, "random", "secrets", "numpy.random", "uuid")
    return used | (attributes(name) & RANDOM_CALLS) | {call for call in calls(name) if ".random." in call}


def test_randomness_enters_at_coins() -> None:
    allowed = {
        "crypto/coins": "this is the entrance",
        "datasets": "synthetic demo data from a seed",
        "papers": "simulations of the papers' experiments, from a seed",
    }
    assert offenders(((name, randomness(name)) for name in files()), allowed) == {}


def test_seeded_generators_of_demo_data_have_a_seed() -> None:
    for name in files():
        for node in ast.walk(source(name)):
            if isinstance(node, ast.Call) and called(node).endswith("default_rng"):
                assert node.args or node.keywords, f"{name}: default_rng() without a seed"


def test_keys_that_a_library_draws_are_not_part_of_a_protocol() -> None:
    """A `generate` that takes no coins asks the operating system behind our back: its role could not be replayed."""
    for name in files():
        if in_rooms(name, "protocols", "crypto", "dp", "statistics"):
            for node in ast.walk(source(name)):
                if isinstance(node, ast.Call) and called(node).rpartition(".")[2].startswith("generate"):
                    given = [ast.unparse(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords))]
                    assert any("coins" in argument for argument in given), f"{name}: {ast.unparse(node)}"


def test_scikit_learn_is_used_by_its_public_names_only() -> None:
    for name in files():
        private = {module for module in uses(name, "sklearn") if any(part.startswith("_") for part in module.split("."))}
        assert private == set(), name
        for node in ast.walk(source(name)):
            if isinstance(node, ast.ClassDef):
                bases = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
                assert not bases & {"_BaseNB", "_BaseDiscreteNB", "GaussianNB", "CategoricalNB", "MultinomialNB"}, name


def test_nothing_is_unpickled_or_evaluated() -> None:
    for name in files():
        assert (
            uses(name, "pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "codeop") == set()
        ), name
        assert calls(name) & {"eval", "exec", "compile", "builtins.eval", "builtins.exec"} == set(), name
        for node in ast.walk(source(name)):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name


def test_json_and_toml_are_read_in_one_place() -> None:
    """Size, depth, digits and names that stand twice are checked by `io.untrusted`; a reader that bypasses it has no bounds."""
    allowed = {
        "io/untrusted": "this is the place",
        "protocols/registry": "SPEC.md, part of the package",
        "codebook": "tomlkit keeps the comments of a file that `io.untrusted` has read before",
        "papers": "their own figures, part of the package",
    }
    readers = {
        "json.loads",
        "json.load",
        "msgspec.json.decode",
        "tomllib.loads",
        "tomllib.load",
        "tomlkit.parse",
        "tomlkit.load",
    }
    assert offenders(((name, calls(name) & readers) for name in files()), allowed) == {}


def test_the_terminal_is_written_to_behind_the_border_only() -> None:
    """rich writes around the border, so that its colours pass: `cli.screen` alone does that, and escapes what it is given."""
    allowed = {"cli/screen": "this is the way around"}
    assert offenders(((name, uses(name, "rich.console", "rich.print")) for name in files()), allowed) == {}


def test_errors_and_codebook_are_leaves() -> None:
    assert {module for module in imports("errors.py") if module.startswith(PACKAGE)} == set()
    assert {module for module in imports("io/untrusted.py") if module.startswith("blindbayes.") and module.count(".") == 1} == {
        "blindbayes.errors"
    }
    at_top = {
        node.module
        for path in (SOURCE / "codebook").glob("*.py")
        for node in parsed(path).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
        if not (node.module or "").startswith("blindbayes.codebook.")
    }
    assert at_top == {"blindbayes.errors", "blindbayes.io.untrusted"}


# -- the map -----------------------------------------------------------------------------------------------------------

PAGE = SOURCE.parents[1] / "docs" / "architecture.md"


def table() -> dict[str, tuple[str, ...]]:
    """Room -> the rooms it imports, in the order of the map in docs/architecture.md."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): tuple(filter(None, cells[2].strip().split(", "))) for cells in rows}


def room_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def rooms_imported(name: str) -> set[str]:
    rooms = set(table())
    found = {module.split(".")[1] for module in imports(name) if module.startswith(f"{PACKAGE}.")}
    found |= {"papers"} & {module.split(".")[0].removeprefix(f"{PACKAGE}_") for module in imports(name)}
    return {room for room in found if room in rooms} - {room_of(name)}


def test_the_map_is_the_imports_of_every_room() -> None:
    """No room imports another than the map says; what the map says and nobody needs is taken out."""
    found: dict[str, set[str]] = {room: set() for room in table()}
    for name in files():
        if room_of(name) not in ("__init__", "__main__"):
            assert room_of(name) in found, f"{name}: the room is not on the map"
            found[room_of(name)] |= rooms_imported(name)
    assert {room: sorted(others) for room, others in found.items()} == {room: sorted(row) for room, row in table().items()}


def test_rooms_have_no_circle() -> None:
    """Each imports rooms above it in the map alone, at the top of a file or inside a function."""
    order = list(table())
    for room, others in table().items():
        assert all(order.index(other) < order.index(room) for other in others), room


def test_no_product_room_imports_papers_or_knows_where_they_are() -> None:
    """They are found by their metadata: the core names their protocols to say which extra is missing, and no module."""
    for name in files():
        if not in_rooms(name, "papers"):
            assert uses(name, "blindbayes_papers") == set(), name
            texts = [node.value for node in ast.walk(source(name)) if isinstance(node, ast.Constant)]
            assert not [text for text in texts if isinstance(text, str) and "blindbayes_papers" in text], name


def test_rooms_of_the_lower_half_stay_as_small_as_they_were() -> None:
    """What the map may never grow into, whatever it says."""
    allowed = {
        "crypto": {"errors"},
        "wire": {"errors"},
        "statistics": {"codebook", "errors", "crypto"},
        "protocols": {"errors", "_extensions", "io", "crypto", "wire", "codebook", "statistics"},
        "data": {"codebook", "errors", "_lazy", "crypto", "statistics"},
    }
    for room, most in allowed.items():
        assert set(table()[room]) <= most, room
    assert not {"protocols", "data", "naive_bayes", *UPPER} & set(table()["dp"])


def branches(name: str) -> list[str]:
    """Comparisons with a protocol's name, and of a study's protocol or partition with any text."""
    from blindbayes.study import schemes

    found = []
    for node in ast.walk(source(name)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        texts = {each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)}
        asked = {side.attr for side in sides if isinstance(side, ast.Attribute)}
        if texts & set(schemes.names()) or (asked & {"protocol", "partition"} and any(isinstance(text, str) for text in texts)):
            found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    return found


def test_only_schemes_studies_and_protocols_know_a_protocol_by_its_name() -> None:
    """Drivers, policy, couriers, commands, wizard and reports ask the scheme."""
    outside = [name for name in files() if not in_rooms(name, "study", "protocols", "papers")]
    assert [each for name in outside for each in branches(name)] == []


# -- the reader itself -------------------------------------------------------------------------------------------------


def test_the_reader_sees_what_it_must_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    room = tmp_path / "protocol"
    room.mkdir()
    (room / "bad.py").write_text(
        "import numpy as np\nfrom ..data import count\nfrom os import urandom\nimport socket as s\n"
        "def f():\n    import pickle\n    from sklearn.naive_bayes import _BaseNB\n    np.random.rand()\n    eval('1')\n"
        "    __import__('secrets')\n",
        encoding="utf-8",
    )
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    monkeypatch.setitem(globals(), "PAPERS", tmp_path / "none")
    assert files() == ["protocol/bad.py"]
    assert uses("protocol/bad.py", *TABLES) == {"blindbayes.data", "blindbayes.data.count"}
    assert uses("protocol/bad.py", "socket", "pickle") == {"socket", "pickle"}
    assert "os.urandom" in imports("protocol/bad.py")
    assert randomness("protocol/bad.py") >= {"secrets", "np.random.rand"}
    assert "eval" in calls("protocol/bad.py")
    (room / "branch.py").write_text("def f(s):\n    return s.protocol == 'x' or s in ('a', 'class_sums')\n", encoding="utf-8")
    assert len(branches("protocol/branch.py")) == 2
    assert uses("protocol/bad.py", "sklearn") >= {"sklearn.naive_bayes._BaseNB"}


def test_engines_between_sites_and_the_package_do_not_know_each_other() -> None:
    """An engine's component is installed beside the engine, without this package; the agent speaks to it by a socket file."""
    engines = ("nvflare", "flwr", "blindbayes_engines")
    assert offenders(((name, uses(name, *engines)) for name in files()), {}) == {}
    for path in sorted((SOURCE.parents[1] / "engines" / "blindbayes_engines").glob("*.py")):
        found = {alias.name for node in ast.walk(parsed(path)) if isinstance(node, ast.Import) for alias in node.names}
        found |= {node.module or "" for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)}
        outside = {name.split(".")[0] for name in found} - set(sys.stdlib_module_names) - {"blindbayes_engines"}
        assert outside <= {"flare": {"nvflare"}, "flower": {"flwr"}}.get(path.stem, set()), path.name
