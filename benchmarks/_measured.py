"""What every benchmark begins with: its options, and kernels of these very sources.

Kernels that are not built, or were built before the sources changed, would be left out, and numpy measured in their place.
"""

from __future__ import annotations

import argparse
import os
import platform
from pathlib import Path
from typing import Any

from blindbayes.crypto import kernels
from blindbayes.errors import ConfigError


def require_kernels() -> None:
    """Refuse to measure numpy unasked."""
    if not kernels.available() and os.environ.get(kernels.VARIABLE) != "off":
        raise ConfigError(
            f"{kernels.describe()}; run python -m blindbayes.crypto.kernels.build, or set {kernels.VARIABLE}=off for numpy"
        )


def machine() -> str:
    """The processor, its cores and the kernels in use."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    chosen = kernels.active()
    return f"{model}, {os.cpu_count()} cores, kernels {'off' if chosen is None else chosen.name}"


class Options(argparse.ArgumentParser):
    """Options of a benchmark; help as its text stands."""

    def __init__(self, description: str | None = None) -> None:
        super().__init__(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

    def parse_known_args(self, *args: Any, **others: Any) -> Any:
        """As ever; then refuses what would measure something else."""
        found = super().parse_known_args(*args, **others)
        require_kernels()
        return found
