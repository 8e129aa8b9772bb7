"""Kernels are built where there is a compiler, left out where there is none, and never used if they come from other sources."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from blindbayes.crypto import kernels
from blindbayes.crypto.kernels import build
from blindbayes.crypto.kernels.signatures import PER_SET, SHARED
from blindbayes.errors import ConfigError

ROOT = Path(__file__).parents[3]
HAS_COMPILER = shutil.which("cc") is not None


def python(*command, **environment):
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )


@pytest.fixture
def clone(tmp_path):
    """A source tree of its own, without a library."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "_kernels.so*"))
    return tmp_path


def test_without_a_compiler_one_line_says_so_and_numpy_does_the_work(clone, tmp_path):
    (tmp_path / "empty").mkdir()
    hidden = {"PATH": str(tmp_path / "empty"), "PYTHONPATH": str(clone / "src"), "CC": "", "BLINDBAYES_KERNELS": ""}
    built = python("-m", "blindbayes.crypto.kernels.build", **hidden)
    assert built.stdout == "kernels are left out, numpy does the work: there is no C compiler (cc)\n"
    assert built.stderr == ""
    shown = python("-m", "blindbayes", "--version", "-v", **hidden)
    assert shown.stdout.splitlines()[1] == "kernels: none, numpy does the work (not built)"
    hashed = (
        "import numpy as np; from blindbayes.crypto.tweaks import Domain, TweakedHash\n"
        "print(TweakedHash(b'').run(np.zeros((1, 2), np.uint64), Domain.GATE, 0))"
    )
    assert python("-c", hashed, **hidden).stdout == python("-c", hashed).stdout != ""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["demo", "test"])
def test_without_a_compiler_the_demo_and_the_protocols_run(clone, tmp_path, what):
    (tmp_path / "empty").mkdir()
    hidden = {"PATH": str(tmp_path / "empty"), "PYTHONPATH": str(clone / "src"), "CC": "", "BLINDBAYES_KERNELS": ""}
    command = {
        "demo": ("-m", "blindbayes", "demo", "--rows", "1000", "--out", str(tmp_path / "out")),
        "test": ("-m", "pytest", "-q", "-x", str(ROOT / "tests/crypto"), str(ROOT / "tests/protocols/test_class_sums.py")),
    }[what]
    done = python(*command, **hidden)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]


def build_wheel(clone, out, **environment):
    """The wheel, and what building it said."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    return wheel, done.stdout + done.stderr


@pytest.mark.slow
def test_a_wheel_without_a_compiler_is_pure_python(clone, tmp_path):
    (tmp_path / "empty").mkdir()
    wheel, said = build_wheel(clone, tmp_path / "made", PATH=str(tmp_path / "empty"), CC="")
    assert "kernels are left out" in said
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="there is no compiler")
def test_a_wheel_has_the_library_and_fits_every_python_of_the_platform(clone, tmp_path):
    wheel, _ = build_wheel(clone, tmp_path / "made")
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    assert "blindbayes/crypto/kernels/_kernels.so" in zipfile.ZipFile(wheel).namelist()
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    shown = python("-m", "blindbayes", "--version", "-v", PYTHONPATH=str(tmp_path / "installed"), BLINDBAYES_KERNELS="")
    assert shown.stdout.splitlines()[1].startswith("kernels: ")
    assert "none" not in shown.stdout


@pytest.mark.skipif(not kernels.available(), reason="no kernels are built")
def test_a_library_of_other_sources_is_left_out(clone):
    tree = {"PYTHONPATH": str(clone / "src"), "BLINDBAYES_KERNELS": ""}
    shutil.copy(build.LIBRARY, clone / "src/blindbayes/crypto/kernels")
    assert "none" not in python("-m", "blindbayes", "--version", "-v", **tree).stdout
    source = clone / "src/blindbayes/crypto/kernels/lanes.c"
    source.write_text(source.read_text() + "\n")
    shown = python("-m", "blindbayes", "--version", "-v", **tree)
    assert "built from other sources" in shown.stdout


def test_a_library_that_cannot_be_loaded_is_left_out(clone):
    (clone / "src/blindbayes/crypto/kernels/_kernels.so").write_bytes(b"no library")
    shown = python("-m", "blindbayes", "--version", "-v", PYTHONPATH=str(clone / "src"), BLINDBAYES_KERNELS="")
    assert "cannot be loaded" in shown.stdout


def test_the_variable_turns_them_off_pins_one_and_refuses_what_is_not_there():
    assert "kernels: none" in python("-m", "blindbayes", "--version", "-v", BLINDBAYES_KERNELS="off").stdout
    for name in kernels.available()[:1]:
        assert f"kernels: {name} " in python("-m", "blindbayes", "--version", "-v", BLINDBAYES_KERNELS=name).stdout
    for name in kernels.available():
        with kernels.using(name):
            assert kernels.describe().startswith(f"kernels: {name} ")
    done = python("-m", "blindbayes", "--version", "-v", BLINDBAYES_KERNELS="no-such-set")
    assert (done.returncode, done.stdout.splitlines()) == (2, ["blindbayes, version 0.1.0"])
    assert "there are no such kernels here, only auto, off" in done.stderr
    with pytest.raises(ConfigError, match="no such kernels"), kernels.using("mmx"):
        pass


def test_the_version_alone_says_nothing_of_kernels():
    assert python("-m", "blindbayes", "--version").stdout == "blindbayes, version 0.1.0\n"


@pytest.mark.skipif(not kernels.available(), reason="no kernels are built")
def test_a_library_of_these_sources_is_not_built_again(clone):
    tree = {"PYTHONPATH": str(clone / "src"), "BLINDBAYES_KERNELS": ""}
    shutil.copy(build.LIBRARY, clone / "src/blindbayes/crypto/kernels")
    assert python("-m", "blindbayes.crypto.kernels.build", **tree).stdout == ""
    source = clone / "src/blindbayes/crypto/kernels/words.c"
    source.write_text(source.read_text() + "\n")
    assert "left out" in python("-m", "blindbayes.crypto.kernels.build", CC="no-such-compiler", **tree).stdout


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no compiler")
def test_only_sets_that_the_processor_has_are_compiled_for_this_machine(monkeypatch):
    assert list(build.native_sets()) == list(kernels.available()) or not kernels.available()
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build.native_sets() == build.sets()


def test_every_source_is_in_the_digest():
    assert {path.name for path in build.FOLDER.glob("*.[ch]")} == set(build.SOURCES)


ASKED_BEFORE = {"kernels_digest", "kernels_sets"}  # as the library is loaded
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def under_sanitizers(tree, *command, **environment):
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    options = {"ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
    preloaded = {"LD_PRELOAD": found, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(tree / "src"), "BLINDBAYES_KERNELS": ""}
    return python(*command, **preloaded, **options, **environment)


@pytest.mark.slow
@pytest.mark.timeout(6000)
@pytest.mark.skipif(not HAS_COMPILER, reason="there is no compiler")
def test_kernels_under_the_address_and_undefined_behaviour_sanitizers(clone):
    """The whole conformance suite, every function of every instruction set; and a planted fault, which must be seen."""
    source = clone / "src/blindbayes/crypto/kernels/words.c"
    planted = "EXPORT const char *kernels_digest(void) {"
    kept = source.read_text()
    assert planted in kept
    source.write_text(kept.replace(planted, planted + " volatile char a[4] = {0}; volatile int i = 4; if (a[i]) return 0;"))
    built = python("-m", "blindbayes.crypto.kernels.build", "--set", "portable", *SANITIZED, PYTHONPATH=str(clone / "src"))
    if "portable" not in built.stdout:
        pytest.skip("the compiler has no sanitizers")
    shown = under_sanitizers(clone, "-m", "blindbayes", "--version", "-v")
    assert "stack-buffer-overflow" in shown.stderr or "out of bounds" in shown.stderr
    source.write_text(kept)
    built = python("-m", "blindbayes.crypto.kernels.build", *SANITIZED, PYTHONPATH=str(clone / "src"))
    assert built.stdout == f"kernels: {', '.join(build.native_sets())}\n"
    here = under_sanitizers(clone, "-c", "from blindbayes.crypto import kernels; print(*kernels.available())").stdout.split()
    assert here == list(kernels.available() or here)  # what the processor has, and no set fewer
    suite = [
        str(ROOT / "tests/crypto/kernels" / name)
        for name in ("test_cells.py", "test_conformance.py", "test_counts.py", "test_rows.py")
    ]
    options, noted = ("-q", "-x", "-p", "no:cacheprovider"), clone / "called.json"
    done = under_sanitizers(clone, "-m", "pytest", *options, *suite, BLINDBAYES_CALLED=str(noted))
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "skipped" not in done.stdout
    per_set, shared = (re.findall(r"^\w+ (\w+):", text, re.MULTILINE) for text in (PER_SET, SHARED))
    declared = {*shared, *(f"{function}_{name}" for function in per_set for name in here)}
    assert set(json.loads(noted.read_text())) == declared - ASKED_BEFORE
