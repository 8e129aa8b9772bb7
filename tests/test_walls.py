"""Import rules between packages, checked on the imports and calls of every source file.

Rows stop at `data`; I/O stays in `io`, `net`, `agent`, `data`, the ledger, `cli` and `console`; randomness enters at
`crypto.coins`. Exceptions are listed with a reason; an exception that is no longer needed fails the test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "blindbayes"
PACKAGE = "blindbayes"
PAPERS = SOURCE.parents[1] / "papers" / "blindbayes_papers"  # a separate distribution; the package `papers` here


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def walked(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """Let no tree outlive this module."""
    yield
    for each in (parsed, walked):
        each.cache_clear()


def files() -> list[str]:
    """Return every source file relative to its package; files of the papers start with `papers/`."""
    papers = (f"papers/{path.relative_to(PAPERS).as_posix()}" for path in PAPERS.rglob("*.py"))
    return sorted([*(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")), *papers])


def nodes(name: str) -> tuple[ast.AST, ...]:
    """Return all nodes of a source file."""
    return walked(PAPERS / name.removeprefix("papers/") if name.startswith("papers/") else SOURCE / name)


def is_within(name: str, *paths: str) -> bool:
    """Return True if a file is one of these modules or lies in one of these packages."""
    return any(name in (path, f"{path}.py") or name.startswith(f"{path}/") for path in paths)


def imports(name: str) -> set[str]:
    """Return every module a file imports, at any depth; `from a import b` counts as a and as a.b."""
    modules: set[str] = set()
    for node in nodes(name):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = [PACKAGE, *name.split("/")[: -node.level]]
                base = ".".join([*parts, *([base] if base else [])])
            modules |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and called(node).rpartition(".")[2] in {"import_module", "__import__", "lazy"}:
            modules |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return modules


def called(node: ast.Call) -> str:
    """Return the dotted name of the called function; empty where it is not a name."""
    parts: list[str] = []
    function: ast.expr = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join(reversed([*parts, function.id if isinstance(function, ast.Name) else ""]))


def calls(name: str) -> set[str]:
    return {called(node) for node in nodes(name) if isinstance(node, ast.Call)}


def attributes(name: str) -> set[str]:
    return {node.attr for node in nodes(name) if isinstance(node, ast.Attribute)}


def uses(name: str, *modules: str) -> set[str]:
    return {each for each in imports(name) if any(each == module or each.startswith(module + ".") for module in modules)}


def offenders(uses_by_file: Iterable[tuple[str, set[str]]], allowed: dict[str, str]) -> dict[str, set[str]]:
    """Return violations that no exception covers, and exceptions that cover no violation."""
    violations = {name: used for name, used in uses_by_file if used}
    stale = {
        f"{path} (exception not needed)": {""} for path in allowed if not any(is_within(name, path) for name in violations)
    }
    return {name: used for name, used in violations.items() if not is_within(name, *allowed)} | stale


# -- rules -------------------------------------------------------------------------------------------------------------

TABLES = ("ibis", "duckdb", "pandas", "polars", "pyarrow", "narwhals", "blindbayes.data", "sqlglot", "dask", "pyspark")
NO_TABLES = ("crypto", "wire", "statistics", "protocols", "dp", "errors", "console")


@pytest.mark.parametrize("package", NO_TABLES)
def test_tables_stop_at_statistics(package: str) -> None:
    assert offenders(((name, uses(name, *TABLES)) for name in files() if is_within(name, package)), {}) == {}


def test_engines_are_known_to_data_only() -> None:
    outside = (name for name in files() if not is_within(name, "data", "papers"))
    assert offenders(((name, uses(name, "ibis", "duckdb", "narwhals", "sqlglot")) for name in outside), {}) == {}


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
UPPER = ("study", "simulation", "report", "disclosure", "net", "agent", "cli", "console", "testing", "papers")
SHELLS = tuple(f"{PACKAGE}.{package}" for package in UPPER)
IO_PACKAGES = (
    "io",
    "net",
    "agent",
    "testing",
    "data",
    "dp/accounting/ledger",
    "disclosure/audit_log",
    "cli",
    "console",
    "papers",
)


def test_the_network_and_processes_stop_at_transport_and_the_shells() -> None:
    allowed = {
        "crypto/kernels/build": "calls the compiler, at installation",
        "codebook/importers/spss": "reads files of SPSS in a process of its own, since a damaged one may crash the library",
    }
    outside = (name for name in files() if not is_within(name, *IO_PACKAGES))
    assert offenders(((name, uses(name, *NETWORK, *PROCESSES)) for name in outside), allowed) == {}


def test_files_are_touched_at_the_edges_only() -> None:
    allowed = {
        "codebook": "a codebook is read from and written to TOML",
        "naive_bayes/base": "the model file is saved",
        "naive_bayes/load": "the model file is loaded",
        "study/tasks/result": "a result is written to a folder",
        "crypto/sodium": "the copy of libsodium that rbcl would leave in the folder for temporary files is kept in memory",
        "naive_bayes/shares": "a party's share of a model is a file of its own",
        "crypto/kernels/build": "the library is built beside its sources, at installation",
    }
    outside = (name for name in files() if not is_within(name, *IO_PACKAGES))
    broken = ((name, uses(name, *DISK) | (calls(name) & {"open", "os.open", "os.replace", "os.remove"})) for name in outside)
    assert offenders(broken, allowed) == {}


@pytest.mark.parametrize("package", ["protocols", "statistics", "wire", "crypto"])
def test_roles_and_primitives_know_no_clock_log_disk_or_network(package: str) -> None:
    exceptions = {
        "crypto/coins": "entropy of the operating system enters here",
        "crypto/sodium": "keeps in memory the copy of libsodium that rbcl would write to the temporary folder",
        "crypto/kernels/__init__": "an environment variable switches the kernels off, and the log reports a failed load",
        "crypto/kernels/build": "runs the compiler, at installation",
        "protocols/memory": "the in-memory driver, not a role: measures the time each party computes",
    }
    forbidden = (*DISK, *NETWORK, *PROCESSES, *CLOCK, "os", "logging", "blindbayes.dp.accounting.ledger", *SHELLS)
    allowed = {path: reason for path, reason in exceptions.items() if is_within(path, package)}
    violations = (
        (name, {module for module in uses(name, *forbidden) if not module.startswith("concurrent.futures")} | prompts)
        for name in files()
        if is_within(name, package)
        for prompts in [calls(name) & {"open", "print", "input"}]
    )
    assert offenders(violations, allowed) == {}


RANDOM_CALLS = {"urandom", "getrandom", "default_rng", "RandomState", "SystemRandom", "token_bytes", "randombytes", "uuid4",
                "random_state", "mpz_random", "mpz_urandomb"}  # fmt: skip


def randomness(name: str) -> set[str]:
    used = uses(name, "random", "secrets", "numpy.random", "uuid")
    return used | (attributes(name) & RANDOM_CALLS) | {call for call in calls(name) if ".random." in call}


def test_randomness_enters_at_coins() -> None:
    allowed = {
        "crypto/coins": "the entrance",
        "datasets": "synthetic demo data from a seed",
        "papers": "simulated experiments, from a seed",
    }
    assert offenders(((name, randomness(name)) for name in files()), allowed) == {}


def test_seeded_generators_of_demo_data_have_a_seed() -> None:
    for name in files():
        for node in nodes(name):
            if isinstance(node, ast.Call) and called(node).endswith("default_rng"):
                assert node.args or node.keywords, f"{name}: default_rng() without a seed"


def test_keys_are_generated_from_coins() -> None:
    """A `generate` without coins asks the operating system for entropy, and its role cannot be replayed."""
    for name in files():
        if is_within(name, "protocols", "crypto", "dp", "statistics"):
            for node in nodes(name):
                if isinstance(node, ast.Call) and called(node).rpartition(".")[2].startswith("generate"):
                    arguments = [
                        ast.unparse(argument) for argument in (*node.args, *(keyword.value for keyword in node.keywords))
                    ]
                    assert any("coins" in argument for argument in arguments), f"{name}: {ast.unparse(node)}"


def test_scikit_learn_is_used_by_its_public_names_only() -> None:
    for name in files():
        private = {module for module in uses(name, "sklearn") if any(part.startswith("_") for part in module.split("."))}
        assert private == set(), name
        for node in nodes(name):
            if isinstance(node, ast.ClassDef):
                bases = {base.id if isinstance(base, ast.Name) else getattr(base, "attr", "") for base in node.bases}
                assert not bases & {"_BaseNB", "_BaseDiscreteNB", "GaussianNB", "CategoricalNB", "MultinomialNB"}, name


def test_nothing_is_unpickled_or_evaluated() -> None:
    for name in files():
        assert (
            uses(name, "pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "code", "codeop") == set()
        ), name
        assert calls(name) & {"eval", "exec", "compile", "builtins.eval", "builtins.exec"} == set(), name
        for node in nodes(name):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name


def test_json_and_toml_are_read_in_one_place() -> None:
    """`io.untrusted` limits size, depth and digits and rejects duplicate names; other readers have no limits."""
    allowed = {
        "io/untrusted": "the parser",
        "protocols/registry": "SPEC.md, part of the package",
        "codebook": "tomlkit preserves the comments of a file that `io.untrusted` has already checked",
        "agent/site_file": "the same, of site.toml",
        "papers": "their own results, part of the package",
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


def test_only_the_screen_module_writes_around_the_sanitiser() -> None:
    """rich bypasses the sanitiser to print colours: only `cli.screen` uses it, and escapes its arguments."""
    allowed = {"cli/screen": "the exception"}
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


# -- map ---------------------------------------------------------------------------------------------------------------

PAGE = SOURCE.parents[1] / "docs" / "architecture.md"


def table() -> dict[str, tuple[str, ...]]:
    """Return the imports of each package, in the order of the table in docs/architecture.md."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    return {cells[0].strip(" `"): tuple(filter(None, cells[2].strip().split(", "))) for cells in rows}


def package_of(name: str) -> str:
    return name.split("/")[0].removesuffix(".py")


def packages_imported(name: str) -> set[str]:
    modules = imports(name)
    packages = {module.split(".")[1] for module in modules if module.startswith(f"{PACKAGE}.")}
    packages |= {"papers"} & {module.split(".")[0].removeprefix(f"{PACKAGE}_") for module in modules}
    return packages & set(table()) - {package_of(name)}


def test_the_map_lists_the_imports_of_every_package() -> None:
    """The map lists every import between packages, and no import that does not exist."""
    imported: dict[str, set[str]] = {package: set() for package in table()}
    for name in files():
        if package_of(name) not in ("__init__", "__main__"):
            assert package_of(name) in imported, f"{name}: the package is not on the map"
            imported[package_of(name)] |= packages_imported(name)
    assert {package: sorted(others) for package, others in imported.items()} == {
        package: sorted(row) for package, row in table().items()
    }


def test_no_package_imports_more_than_ten_others() -> None:
    """Modules such as `errors` do not count; the command line and the papers bring everything together."""
    more = {"agent": 11}  # only shrinks
    for package, others in table().items():
        if package not in ("cli", "papers"):
            assert len([each for each in others if (SOURCE / each).is_dir()]) <= more.get(package, 10), package


def test_packages_import_only_packages_above_them_in_the_map() -> None:
    order = list(table())
    for package, others in table().items():
        assert all(order.index(other) < order.index(package) for other in others), package


def test_no_product_package_imports_papers_or_knows_where_they_are() -> None:
    """The core names the papers' protocols to report a missing extra, but finds their modules by metadata."""
    for name in files():
        if not is_within(name, "papers"):
            assert uses(name, "blindbayes_papers") == set(), name
            texts = [node.value for node in nodes(name) if isinstance(node, ast.Constant)]
            assert not [text for text in texts if isinstance(text, str) and "blindbayes_papers" in text], name


def test_packages_of_the_lower_half_gain_no_imports() -> None:
    """Limits on the map itself."""
    allowed = {
        "crypto": {"errors"},
        "wire": {"errors", "io"},
        "statistics": {"codebook", "errors", "crypto"},
        "protocols": {"errors", "_extensions", "io", "crypto", "wire", "codebook", "statistics"},
        "data": {"codebook", "errors", "_lazy", "crypto", "statistics"},
    }
    for package, largest in allowed.items():
        assert set(table()[package]) <= largest, package
    assert not {"protocols", "data", "naive_bayes", *UPPER} & set(table()["dp"])


def branches(name: str) -> list[str]:
    """Return comparisons with a protocol's name, and of a study's protocol or partition with any string."""
    from blindbayes.study.tasks import registry as tasks

    lines = []
    for node in nodes(name):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        texts = {each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)}
        compared = {side.attr for side in sides if isinstance(side, ast.Attribute)}
        if texts & set(tasks.names()) or (
            compared & {"protocol", "partition"} and any(isinstance(text, str) for text in texts)
        ):
            lines.append(f"{name}:{node.lineno} {ast.unparse(node)}")
    return lines


def test_only_tasks_studies_and_protocols_know_a_protocol_by_its_name() -> None:
    """Drivers, policy, couriers, commands and reports ask the study's task."""
    outside = [name for name in files() if not is_within(name, "study", "protocols", "papers")]
    assert [each for name in outside for each in branches(name)] == []


# -- the checks themselves ---------------------------------------------------------------------------------------------


def test_the_checks_detect_planted_violations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "protocol"
    package.mkdir()
    (package / "bad.py").write_text(
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
    (package / "branch.py").write_text(
        "def f(s):\n    return s.protocol == 'x' or s in ('a', 'class_sums')\n", encoding="utf-8"
    )
    assert len(branches("protocol/branch.py")) == 2
    assert uses("protocol/bad.py", "sklearn") >= {"sklearn.naive_bayes._BaseNB"}
    assert offenders([("protocol/bad.py", {"os"})], {"protocol": "a reason"}) == {}
    assert offenders([("protocol/bad.py", {"os"})], {}) == {"protocol/bad.py": {"os"}}
    assert offenders([("protocol/bad.py", set())], {"protocol": "a reason"}) == {"protocol (exception not needed)": {""}}


def test_engines_between_sites_and_the_package_do_not_know_each_other() -> None:
    """An engine's component is installed with the engine, without this package; the agent connects by a socket file."""
    engines = ("nvflare", "flwr", "blindbayes_engines")
    assert offenders(((name, uses(name, *engines)) for name in files()), {}) == {}
    for path in sorted((SOURCE.parents[1] / "engines" / "blindbayes_engines").glob("*.py")):
        modules = {alias.name for node in ast.walk(parsed(path)) if isinstance(node, ast.Import) for alias in node.names}
        modules |= {node.module or "" for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)}
        outside = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"blindbayes_engines"}
        assert outside <= {"flare": {"nvflare"}, "flower": {"flwr"}}.get(path.stem, set()), path.name


TESTS = Path(__file__).parent


def private_imports(path: Path) -> Iterable[str]:
    """Yield the private names that a test imports from a package which it is no unit test of."""
    own = path.relative_to(TESTS).parts[0]
    text = path.read_text(encoding="utf-8")
    if not re.search(r"(?<![\w.])_\w", text):  # no name that could be one
        return
    for node in ast.walk(ast.parse(text)):
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        parts = module.split(".")
        if parts[0] not in (PACKAGE, "blindbayes_papers") or len(parts) < 2 or parts[1] == own:
            continue  # `from blindbayes import _extensions` names a module
        yield from (f"{module}.{each.name}" for each in node.names if each.name.startswith("_"))


def test_tests_import_no_private_names_of_other_packages() -> None:
    imported = {path.relative_to(TESTS).as_posix(): [*private_imports(path)] for path in TESTS.rglob("*.py")}
    assert {path: names for path, names in imported.items() if names} == {}


def test_a_private_import_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "TESTS", tmp_path)
    for folder in ("attacks", "wire"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_frames.py").write_text("from blindbayes.wire import Message, _pieces\n")
    assert [*private_imports(tmp_path / "attacks" / "test_frames.py")] == ["blindbayes.wire._pieces"]
    assert [*private_imports(tmp_path / "wire" / "test_frames.py")] == []
