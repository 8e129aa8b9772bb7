"""Loading libsodium leaves no file behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_no_copy_of_libsodium_stays(tmp_path: Path) -> None:
    script = "from blindbayes.crypto import ristretto; assert len(ristretto.base_multiply(bytes([1] + [0] * 31))) == 32"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []


def test_a_temporary_folder_that_may_hold_no_programs_does_not_matter(tmp_path: Path) -> None:
    """As hardened servers and containers mount it."""
    code = "from blindbayes.crypto import ristretto; print('loaded')"
    mounted = f"mount -t tmpfs -o noexec tmpfs {tmp_path} && TMPDIR={tmp_path} {sys.executable} -c {code!r}"
    try:
        done = subprocess.run(["unshare", "-rm", "sh", "-c", mounted], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("this machine lets nobody mount in a namespace of one's own")
    assert done.stdout.strip() == "loaded", done.stderr
