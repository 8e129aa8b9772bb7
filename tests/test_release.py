"""Distributions that tools/release.py builds: equal bytes from one commit, and a bill of materials inside."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(release: ModuleType, folder: Path, mask: int, zone: str, **environment: str) -> dict[str, str]:
    """Build a pure wheel and an sdist under another umask, time zone and folder; return the digests."""
    folder.mkdir()
    before = os.umask(mask)
    try:
        sources = release.exported(folder / "sources")
        for kind in ("sdist", "wheel"):
            release.hatch(sources, kind, folder / "dist", CC="none", TZ=zone, PYTHONHASHSEED=str(mask), **environment)
    finally:
        os.umask(before)
    return dict(release.digests(folder / "dist"))


@pytest.mark.slow
def test_two_builds_of_one_commit_are_equal_byte_for_byte(release: ModuleType, tmp_path: Path) -> None:
    first = built(release, tmp_path / "a", 0o022, "UTC")
    assert sorted(Path(name).suffix for name in first) == [".gz", ".whl"]
    assert built(release, tmp_path / "b", 0o077, "Pacific/Auckland") == first
    later = str(int(release.commit_time()) + 4)
    other = built(release, tmp_path / "c", 0o022, "UTC", SOURCE_DATE_EPOCH=later)
    assert all(other[name] != digest for name, digest in first.items())  # the comparison sees a time that is not fixed
    (wheel,) = (tmp_path / "a" / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        bill = json.loads(archive.read(next(name for name in names if name.endswith(".dist-info/sboms/blindbayes.cdx.json"))))
    assert bill["metadata"]["component"]["name"] == "blindbayes"
    assert not [name for name in names if ".so" in Path(name).suffixes]
    assert not [name for name in names if "__pycache__" in name]


def test_an_interpreter_must_start_and_a_shim_is_passed_over(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, line in (("shim", "exit 127"), ("real", "exit 0")):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "python3.99"
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'shim'}:{tmp_path / 'real'}")
    assert release.interpreter("3.99") == str(tmp_path / "real" / "python3.99")
    monkeypatch.setenv("PATH", str(tmp_path / "shim"))
    assert release.interpreter("3.99") is None


def test_a_release_holds_what_is_committed(release: ModuleType, tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folder = release.exported(tmp_path / "out")
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(listed.stdout.splitlines())
