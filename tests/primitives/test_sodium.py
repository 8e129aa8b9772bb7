"""Loading libsodium leaves no file behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_no_copy_of_libsodium_stays(tmp_path: Path) -> None:
    script = "from blindbayes.primitives import ristretto; assert len(ristretto.base_multiply(bytes([1] + [0] * 31))) == 32"
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
