"""Backups whose passphrase costs nothing, where its cost is not the point: 0.2 s of CPU for each backup and each restore."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from blindbayes.agent.store import backup


def make_light(patch: pytest.MonkeyPatch) -> None:
    """Let scrypt take two rounds."""

    def light(**settings: Any) -> Scrypt:
        return Scrypt(**{**settings, "n": 2})

    patch.setattr(backup, "Scrypt", light)
