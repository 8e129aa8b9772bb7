"""Primitives that more than one paper needs: integers and bytes, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def unsafe_keys(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why no site takes part in a study with short keys; nothing if it has none."""
    toy = "the study asks for toy keys, which protect nothing; remove the option toy_keys"
    return (toy,) if options.get("toy_keys") else ()
