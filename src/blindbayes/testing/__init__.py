"""Tools for tests and trials: seeded coins, parties that vanish, transcripts, coded rows, and sites on one machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blindbayes.crypto.coins import Coins
    from blindbayes.data import encode
    from blindbayes.protocols.memory import Vanish
    from blindbayes.wire.transcript import Keep

_MODULES = {
    "Coins": "blindbayes.crypto.coins",
    "Keep": "blindbayes.wire.transcript",
    "Vanish": "blindbayes.protocols.memory",
    "encode": "blindbayes.data",
}
__all__ = ["Coins", "Keep", "Vanish", "encode"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
