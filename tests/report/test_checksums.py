"""Checksums of a release and signatures over them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from blindbayes import RowStudy
from blindbayes.crypto.signatures import SigningKey
from blindbayes.datasets import hospitals
from blindbayes.errors import DataError
from blindbayes.io.files import read_folder
from blindbayes.report.checksums import seal_files, verify_files

DATA = hospitals(900)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path_factory.mktemp("exact") / "release")


def test_the_checksums_are_those_that_sha256sum_checks(exact: Path) -> None:
    for line in (exact / "checksums").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((exact / name).read_bytes()).hexdigest() == digest
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--quiet", "-c", "checksums"], cwd=exact, check=True, timeout=30)


def test_whoever_signs_can_be_checked_and_nobody_else(tmp_path: Path) -> None:
    keys = {name: SigningKey(bytes([at]) * 32) for at, name in enumerate(("north", "south"))}
    folder = RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path / "release", signers=keys)
    verified = verify_files(read_folder(folder))
    assert verified.signers == {name: key.lasting_public for name, key in keys.items()}
    signatures = json.loads((folder / "signatures.json").read_text())
    signatures["north"]["signature"] = signatures["south"]["signature"]
    (folder / "signatures.json").write_text(json.dumps(signatures))
    with pytest.raises(DataError, match="north"):
        verify_files(read_folder(folder))


FILES = {"a.txt": b"one", "plots/b.svg": b"two"}


@pytest.mark.parametrize("lost", ["the lattice's signature", "the curve's signature", "the lattice's key"])
def test_a_release_without_one_of_the_two_signatures_is_refused(lost: str) -> None:
    sealed = seal_files(FILES, {"north": SigningKey(bytes(32))})
    entry = json.loads(sealed["signatures.json"])["north"]
    if lost == "the lattice's key":
        del entry["ml_dsa"]
    else:
        entry["signature"] = entry["signature"][:128] if lost == "the lattice's signature" else entry["signature"][128:]
    with pytest.raises(DataError, match=r"north does not fit|not readable"):
        verify_files({**sealed, "signatures.json": json.dumps({"north": entry}).encode()})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"a.txt": b"ONE"}, "a.txt was changed"),
        ({"c.txt": b"new"}, "c.txt is not part"),
        ({"a.txt": None}, "a.txt is missing"),
        ({"checksums": None}, "no checksums"),
        ({"checksums": None, "release-1a2b/checksums": b""}, "'release-1a2b' in it looks like one; name that folder"),
        ({"checksums": b"nonsense\n"}, "not readable"),
        ({"signatures.json": b"[]"}, "signatures.json is not"),
    ],
)
def test_every_change_is_noticed(change: dict[str, bytes | None], told: str) -> None:
    sealed = seal_files(FILES, {"north": SigningKey(bytes(32))})
    assert verify_files(sealed).files == 3  # the two, and the index page
    changed = {name: content for name, content in {**sealed, **change}.items() if content is not None}
    with pytest.raises(DataError, match=told):
        verify_files(changed)
