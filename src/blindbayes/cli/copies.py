"""Where the result of a run is copied to: looked at before the run begins, and nothing is lost if it fails afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from blindbayes.errors import ConfigError


def require_new(out: Path) -> None:
    """Refuses, before a run is begun, a path where its result could not be written."""
    if out.exists():
        raise ConfigError(f"{out} exists already; nothing was begun or overwritten: take another name for --out")
    above = next(folder for folder in out.resolve().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise ConfigError(f"you may not write in {above}; nothing was begun: take another place for --out")


def not_copied(out: Path, kept: object, problem: OSError) -> ConfigError:
    """The run is done, its copy failed: nothing is lost."""
    return ConfigError(f"the run is done, but {out} cannot be written ({problem.strerror}); what it left is {kept}")
